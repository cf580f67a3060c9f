"""The loop of strategies that take one token per forward pass and never take one back.

It knows neither masks nor draws: the strategy passes a function from logits to a decision.
"""

from __future__ import annotations

from espalier.decoding.plan import Job, Plan, SampledToken, Take
from espalier.decoding.ports import Append, Need
from espalier.decoding.text.run import EndRule, TextRun
from espalier.decoding.timed_mask import TimedMask


def walk(job: Job, take: Take, timed: TimedMask) -> Plan:
    """One sequence, one token per forward pass. take: takes a token. timed: builds the masks of `take`."""
    matcher, chain, run = job.matcher, job.chain, TextRun(EndRule(job))
    chain.start(job.prompt)
    answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
    while True:
        decision = take(answer[0][-1], job.context(run.tokens))
        token = decision.token
        if matcher is not None:
            matcher.advance(token)
        chain.on_token(token, decision.prob)
        yield SampledToken(token, run.take(token), decision.record)
        if run.ending is not None:
            return run.outcome(matcher, mask_seconds=timed.seconds)
        answer = yield Need((Append(0, (token,)),))
