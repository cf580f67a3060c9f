"""The loop of strategies that take one token per forward pass and never take one back.

It knows neither masks nor draws: the strategy passes a function from logits to a decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from espalier.decoding.plan import Job, Plan, Taken
from espalier.decoding.ports import Append, Need, answered
from espalier.decoding.step.row import Decision
from espalier.decoding.text.run import EndRule, TextRun
from espalier.decoding.timed_mask import TimedMask
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits

Take: TypeAlias = Callable[[Logits, FilterContext], Decision]
"""From `(V,) float32` logits, which must not be kept, and the filters' context to a decision. Does not change the
chain."""


def walk(job: Job, take: Take, timed: TimedMask) -> Plan:
    """One sequence, one token per forward pass. take: takes a token. timed: builds the masks of `take`."""
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
