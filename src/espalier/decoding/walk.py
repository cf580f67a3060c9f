"""The loop of strategies that take one token per forward pass and never take one back.

It knows neither masks nor draws: the strategy passes a function from logits to a decision.
"""

from __future__ import annotations

from espalier.decoding.plan import Job, Plan, SampledToken, Take
from espalier.decoding.ports import Append, Need, answered
from espalier.decoding.text.run import EndRule, TextRun
from espalier.decoding.timed_mask import TimedMask


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
        yield SampledToken(token=token, text=run.take(token), record=decision.record)
        if run.ending is not None:
            return run.outcome(matcher, mask_seconds=timed.seconds)
        answer = yield Need(append=(Append(branch=0, tokens=(token,)),))
