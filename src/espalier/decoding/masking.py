"""The `mask` strategy: token mask, then sampler chain, then draw. It samples from `q_t`, the chain's distribution over
the allowed tokens."""

from __future__ import annotations

from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import Job, Plan, Strategy, Take
from espalier.decoding.step.decide import decide
from espalier.decoding.step.row import TokenDecision
from espalier.decoding.timed_mask import TimedMask
from espalier.decoding.walk import walk
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits


def mask_plan(job: Job) -> Plan:
    """One sequence, one token per forward pass."""
    timed = TimedMask(job)
    return walk(job, take_masked(job, timed), timed)


def take_masked(job: Job, timed: TimedMask) -> Take:
    """The function that takes one token."""
    mask, questions = timed.masks_of(job.matcher), MatcherQuestions(job.matcher)

    def take(raw: Logits, context: FilterContext) -> TokenDecision:
        return decide(
            raw,
            None if mask is None else mask(),
            vocab=job.vocab,
            chain=job.chain,
            stream=job.stream,
            context=context,
            watch=job.watch,
            questions=questions,
        )

    return take


def masked_take(job: Job) -> Take:
    """What takes one token, for a replay."""
    return take_masked(job, TimedMask(job))


MASK = Strategy(make_plan=mask_plan, make_take=masked_take)
