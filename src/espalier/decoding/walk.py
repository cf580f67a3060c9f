"""The walk of a strategy that takes one token per forward pass and takes none back; how a token is taken is its own.

It knows neither masks nor draws: it is given a function from logits to a decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from espalier.decoding.plan import Job, Plan, Taken
from espalier.decoding.ports import Append, Need, answered
from espalier.decoding.step import Decision
from espalier.decoding.text_run import EndRule, TextRun
from espalier.decoding.timed_mask import TimedMask
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits

Take: TypeAlias = Callable[[Logits, FilterContext], Decision]
"""`(V,) float32`, not to be kept, and where the sequence stands -> what is taken. Of the chain it changes nothing."""


def walk(job: Job, take: Take, timed: TimedMask) -> Plan:
    """One sequence, one token per forward pass, each as `take` says. timed: what `take` builds its masks with."""
    matcher, run = job.matcher, TextRun(EndRule(job))
    job.chain.start(job.prompt)
    answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
    while True:
        decision = take(answered(answer)[0][-1], job.context(run.tokens))
        token = decision.token
        if matcher is not None:
            matcher.advance(token)
        job.chain.on_token(token, decision.prob)
        yield Taken(token=token, text=run.take(token), record=decision.record)
        if run.ending is not None:
            return run.outcome(matcher, mask_seconds=timed.seconds)
        answer = yield Need(append=(Append(branch=0, tokens=(token,)),))
