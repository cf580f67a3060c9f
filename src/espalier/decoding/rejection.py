"""The `rejection` strategy, llama.cpp's order: draw without the mask, keep an allowed token, else mask and draw again.

An allowed token v is taken with probability `c_p(v) + (1 - c_p(A)) c_q(v)`: c_p is the chain over all tokens, c_q the
chain over the allowed ones. This equals `mask` only where the chain truncates nothing. Without a trace, the mask is
built only where a token was refused. Mirostat learns from the taken token only; llama.cpp's also learns from the
refused one.
"""

from __future__ import annotations

from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import Job, Plan, Strategy, Take
from espalier.decoding.step.decide import decide, decide_late
from espalier.decoding.step.row import TokenDecision
from espalier.decoding.timed_mask import TimedMask
from espalier.decoding.walk import walk
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits


def rejection_plan(job: Job) -> Plan:
    """One sequence, one token per forward pass."""
    timed = TimedMask(job)
    return walk(job, take_late(job, timed), timed)


def take_late(job: Job, timed: TimedMask) -> Take:
    """The function that takes one token."""
    matcher, questions = job.matcher, MatcherQuestions(job.matcher)

    def take_free(raw: Logits, context: FilterContext) -> TokenDecision:
        # Nothing can be refused: bans of `ignore_eos` and of the config belong to the chain, not to a constraint.
        return decide(
            raw, timed.mask(None), vocab=job.vocab, chain=job.chain, stream=job.stream, context=context, watch=job.watch
        )

    if matcher is None:
        return take_free

    def take(raw: Logits, context: FilterContext) -> TokenDecision:
        return decide_late(
            raw,
            lambda: timed.timed(matcher.mask),
            matcher.allows,
            vocab=job.vocab,
            chain=job.chain,
            stream=job.stream,
            context=context,
            watch=job.watch,
            questions=questions,
        )

    return take


def late_take(job: Job) -> Take:
    """What takes one token, for a replay."""
    return take_late(job, TimedMask(job))


REJECTION = Strategy(make_plan=rejection_plan, make_take=late_take)
