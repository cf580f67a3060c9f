"""Builds the token masks of a job and adds up how long they took.

It knows no strategy: several matchers of one job, such as those of beams, share one timer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from espalier.constraints.base import Matcher
from espalier.decoding.plan import Job
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask

T = TypeVar("T")


class TimedMask:
    """The masks of a job's matchers; without a matcher, `ignore_eos` is a mask: all real ids but EOS.

    seconds: the time spent in matchers so far; None where the job has no clock or no matcher.
    """

    __slots__ = ("_clock", "_no_eos", "seconds")

    def __init__(self, job: Job) -> None:
        self._clock = job.clock if job.matcher is not None else None
        self.seconds = None if self._clock is None else 0.0
        self._no_eos: Mask | None = None
        if job.chain.config.ignore_eos:
            self._no_eos = masks.from_bool(job.vocab.real_ids)
            masks.set_bits_inplace(self._no_eos, job.vocab.eos_ids, False)

    def mask(self, matcher: Matcher | None) -> Mask | None:
        """The allowed tokens, `(W,) int32`; None where every token is allowed."""
        if matcher is None:
            return self._no_eos
        return matcher.mask() if self._clock is None else self.timed(matcher.mask)

    def masks_of(self, matcher: Matcher | None) -> Callable[[], Mask | None] | None:
        """What gives `mask` of one matcher at every step; None where every token is allowed at all of them."""
        if matcher is None and self._no_eos is None:
            return None
        if matcher is None:
            return partial(self.mask, None)
        return matcher.mask if self._clock is None else partial(self.timed, matcher.mask)

    def timed(self, ask: Callable[[], T]) -> T:
        """The answer of a matcher; the time that it takes is added to `seconds`."""
        if self._clock is None or self.seconds is None:
            return ask()
        began = self._clock()
        answer = ask()
        self.seconds += self._clock() - began
        return answer
