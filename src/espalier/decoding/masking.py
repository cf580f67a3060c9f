"""The `mask` strategy: mask, then chain, then draw. Its law is `q_t`, the chain's distribution over the allowed set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from espalier.automata.blame import Blame
from espalier.constraints.base import Composite, Matcher
from espalier.decoding.plan import FinishReason, Job, Outcome, Plan, Taken
from espalier.decoding.ports import Append, Need
from espalier.decoding.step import decide
from espalier.decoding.stops import TextAssembler
from espalier.errors import LimitExceeded, NotAvailable
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask


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
    job.chain.start(job.prompt)
    answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
    while True:
        if answer is None:
            raise AssertionError("the driver must answer a Need")
        decision = decide(
            answer[0][-1],  # (V,) float32
            matcher.mask() if matcher is not None else no_eos,
            vocab=vocab,
            chain=job.chain,
            stream=job.stream,
            context=FilterContext(
                step=len(generated), prompt=job.prompt, generated=tuple(generated) if has_filters else ()
            ),
            watch=job.watch,
            explain=partial(_explain, matcher),
            members=partial(_members, composite),
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
            return _outcome(job, generated, assembler, "stop", stop)
        if len(generated) >= job.max_tokens:
            return _outcome(job, generated, assembler, "length", None)
        answer = yield Need(append=(Append(branch=0, tokens=(token,)),))


def _explain(matcher: Matcher | None, token: int) -> Blame | None:
    if matcher is None or matcher.allows(token):
        return None  # padding or a filter's ban: not the constraint's doing
    try:
        return matcher.explain(token)
    except (NotAvailable, LimitExceeded):
        return None  # the record then says that it was refused, and not why


def _members(composite: Composite | None) -> Sequence[tuple[str, Mask]]:
    if composite is None:
        return ()
    try:
        return composite.member_masks()
    except (NotAvailable, LimitExceeded):
        return ()  # the record then says how much was removed, and not by whom


def _outcome(
    job: Job, generated: list[int], assembler: TextAssembler, finish: FinishReason, stop: str | int | None
) -> Outcome:
    tail = assembler.finish()
    matcher = job.matcher
    # The held-back tail can itself complete a stop text: none does, since `finish` is only reached without one.
    return Outcome(
        tokens=tuple(generated),
        text=assembler.text,
        tail=tail.text,
        finish=finish,
        stop=stop if stop is not None else tail.stop,
        # A stop text may end the output with more tokens taken than shown: then the matcher's state is not the text's.
        is_complete=matcher is None or matcher.is_finished or (finish == "length" and matcher.is_accepting),
    )
