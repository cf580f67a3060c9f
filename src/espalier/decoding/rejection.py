"""The `rejection` strategy, llama.cpp's order: draw from the free chain, keep what is allowed, else mask and redraw.

Its law, for v in A: `c_p(v) + (1 - c_p(A)) c_q(v)`, with c_p the chain over all tokens and c_q the chain over those
allowed. It is that of `mask` only where the chain truncates nothing. Untraced, the mask is built only where a token
was refused. Mirostat learns from the token taken alone, where llama.cpp's own also learns from the refused one.
"""

from __future__ import annotations

from functools import partial

from espalier.constraints.base import Composite, Matcher
from espalier.decoding.matcher_questions import explained, member_masks, ruler
from espalier.decoding.plan import Job, Plan, Strategy
from espalier.decoding.step import Decision, decide, decide_late
from espalier.decoding.walk import Take, TimedMask, walk
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits, Mask


def rejection_plan(job: Job) -> Plan:
    """One sequence, one token per forward pass."""
    timed = TimedMask(job)
    return walk(job, take_late(job, timed), timed)


def take_late(job: Job, timed: TimedMask) -> Take:
    """How one token is taken."""
    return _free(job, timed) if job.matcher is None else _held(job, job.matcher, timed)


def _held(job: Job, matcher: Matcher, timed: TimedMask) -> Take:
    composite = matcher if isinstance(matcher, Composite) else None  # once: the check is slow

    def mask() -> Mask:
        found = timed()
        if found is None:
            raise AssertionError("a job with a matcher has masks")
        return found

    def take(raw: Logits, context: FilterContext) -> Decision:
        return decide_late(
            raw, mask, matcher.allows, vocab=job.vocab, chain=job.chain, stream=job.stream, context=context,
            watch=job.watch, explain=partial(explained, matcher), members=partial(member_masks, composite), rule=rule,
        )  # fmt: skip

    rule = ruler(matcher)
    return take


def _free(job: Job, timed: TimedMask) -> Take:
    """Nothing can be refused: what `ignore_eos` and the config ban is no constraint, and the free chain has it."""

    def take(raw: Logits, context: FilterContext) -> Decision:
        return decide(
            raw, timed(), vocab=job.vocab, chain=job.chain, stream=job.stream, context=context, watch=job.watch
        )

    return take


REJECTION = Strategy(make_plan=rejection_plan)
