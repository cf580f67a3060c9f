"""The walk of a strategy that takes one token per forward pass and takes none back; how a token is taken is its own.

It knows neither masks nor draws: it is given a function from logits to a decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from espalier.decoding.matcher_questions import outcome
from espalier.decoding.plan import Job, Plan, Taken
from espalier.decoding.ports import Append, Need
from espalier.decoding.step import Decision
from espalier.decoding.stops import TextAssembler
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask

Take: TypeAlias = Callable[[Logits, FilterContext], Decision]
"""`(V,) float32`, not to be kept, and where the sequence stands -> what is taken. Of the chain it changes nothing."""


class TimedMask:
    """Builds the masks of a job: the matcher's, or, where there is none and `ignore_eos`, all real ids but EOS.

    is_free: whether neither is there, and every mask is None. seconds: what the matcher's took so far, None where the
    job has no clock, or no matcher.
    """

    def __init__(self, job: Job) -> None:
        self._matcher = job.matcher
        self._clock = job.clock if job.matcher is not None else None
        self._no_eos: Mask | None = None
        if job.chain.config.ignore_eos:
            self._no_eos = masks.from_bool(job.vocab.real_ids)
            masks.set_bits_inplace(self._no_eos, job.vocab.eos_ids, False)
        self.seconds = None if self._clock is None else 0.0

    def __call__(self) -> Mask | None:
        """`(W,) int32`; None where there is neither."""
        if self._matcher is None:
            return self._no_eos
        if self._clock is None or self.seconds is None:
            return self._matcher.mask()
        began = self._clock()
        mask = self._matcher.mask()
        self.seconds += self._clock() - began
        return mask


def walk(job: Job, take: Take, timed: TimedMask) -> Plan:
    """One sequence, one token per forward pass, each as `take` says. timed: what `take` builds its masks with."""
    config, vocab, matcher = job.chain.config, job.vocab, job.matcher
    assembler = TextAssembler(config.stop)
    ends = frozenset(() if config.ignore_eos else vocab.eos_ids)
    generated: list[int] = []
    has_filters = len(job.chain.filters) > 0  # only filters look at the tokens so far; copying them costs
    job.chain.start(job.prompt)
    answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
    while True:
        if answer is None:
            raise AssertionError("the driver must answer a Need")
        context = FilterContext(
            step=len(generated), prompt=job.prompt, generated=tuple(generated) if has_filters else ()
        )
        decision = take(answer[0][-1], context)
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
            return outcome(job, generated, assembler, "stop", stop, mask_seconds=timed.seconds)
        if len(generated) >= job.max_tokens:
            return outcome(job, generated, assembler, "length", None, mask_seconds=timed.seconds)
        answer = yield Need(append=(Append(branch=0, tokens=(token,)),))
