"""The walk of a strategy that takes one token per forward pass and takes none back; how a token is taken is its own.

It knows neither masks nor draws: it is given a function from logits to a decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from espalier.decoding.plan import Job, Plan, Taken
from espalier.decoding.ports import Append, Need
from espalier.decoding.step import Decision
from espalier.decoding.text_run import EndRule, TextRun
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
    matcher, run = job.matcher, TextRun(EndRule(job))
    has_filters = len(job.chain.filters) > 0  # only filters look at the tokens so far; copying them costs
    job.chain.start(job.prompt)
    answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
    while True:
        if answer is None:
            raise AssertionError("the driver must answer a Need")
        generated = run.tokens
        context = FilterContext(
            step=len(generated), prompt=job.prompt, generated=tuple(generated) if has_filters else ()
        )
        decision = take(answer[0][-1], context)
        token = decision.token
        if matcher is not None:
            matcher.advance(token)
        job.chain.on_token(token, decision.prob)
        yield Taken(token=token, text=run.take(token), record=decision.record)
        if run.ending is not None:
            return run.outcome(matcher, mask_seconds=timed.seconds)
        answer = yield Need(append=(Append(branch=0, tokens=(token,)),))
