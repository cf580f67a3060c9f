"""The `mask` strategy: mask, then chain, then draw. Its law is `q_t`, the chain's distribution over the allowed set."""

from __future__ import annotations

from functools import partial

from espalier.constraints.base import Composite
from espalier.decoding.plan import Job, Plan, Taken
from espalier.decoding.ports import Append, Need
from espalier.decoding.shadow import explained, member_masks, outcome
from espalier.decoding.step import decide
from espalier.decoding.stops import TextAssembler
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks


def mask_plan(job: Job) -> Plan:
    """One sequence, one token per forward pass."""
    config, vocab, matcher = job.chain.config, job.vocab, job.matcher
    assembler = TextAssembler(config.stop)
    ends = frozenset(() if config.ignore_eos else vocab.eos_ids)
    # With no constraint, `ignore_eos` is a mask of its own: everything but EOS.
    no_eos = None
    if config.ignore_eos:
        no_eos = masks.from_bool(vocab.real_ids)
        masks.set_bits_inplace(no_eos, vocab.eos_ids, False)
    composite = matcher if isinstance(matcher, Composite) else None  # once: the check is slower than a warm mask
    generated: list[int] = []
    has_filters = len(job.chain.filters) > 0  # only filters look at the tokens so far; copying them costs
    clock = job.clock if matcher is not None else None
    masked = None if clock is None else 0.0  # seconds
    job.chain.start(job.prompt)
    answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
    while True:
        if answer is None:
            raise AssertionError("the driver must answer a Need")
        began = clock() if clock is not None else 0.0
        mask = matcher.mask() if matcher is not None else no_eos
        if clock is not None and masked is not None:
            masked += clock() - began
        decision = decide(
            answer[0][-1],  # (V,) float32
            mask,
            vocab=vocab,
            chain=job.chain,
            stream=job.stream,
            context=FilterContext(
                step=len(generated), prompt=job.prompt, generated=tuple(generated) if has_filters else ()
            ),
            watch=job.watch,
            explain=partial(explained, matcher),
            members=partial(member_masks, composite),
        )
        token = decision.token
        if matcher is not None:
            matcher.advance(token)
        job.chain.on_token(token, decision.prob)
        generated.append(token)
        stopping_id = token in config.stop_ids
        piece = assembler.feed(b"" if stopping_id else job.spelled.get(token) or vocab.bytes_of(token))
        yield Taken(token=token, text=piece.text, record=decision.record)
        if token in ends or stopping_id or piece.stop is not None:
            stop: str | int | None = token if stopping_id and token not in ends else piece.stop
            return outcome(job, generated, assembler, "stop", stop, mask_seconds=masked)
        if len(generated) >= job.max_tokens:
            return outcome(job, generated, assembler, "length", None, mask_seconds=masked)
        answer = yield Need(append=(Append(branch=0, tokens=(token,)),))
