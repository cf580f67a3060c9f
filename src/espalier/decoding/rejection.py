"""The `rejection` strategy, llama.cpp's order: draw from the free chain, keep what is allowed, else mask and redraw.

Its law, for v in A: `c_p(v) + (1 - c_p(A)) c_q(v)`, with c_p the chain over all tokens and c_q the chain over those
allowed. It is that of `mask` only where the chain truncates nothing. Untraced, the mask is built only where a token
was refused. Mirostat learns from the token taken alone, where llama.cpp's own also learns from the refused one.
"""

from __future__ import annotations

from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import Job, Plan, Strategy
from espalier.decoding.step import Decision, decide, decide_late
from espalier.decoding.timed_mask import TimedMask
from espalier.decoding.walk import Take, walk
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits


def rejection_plan(job: Job) -> Plan:
    """One sequence, one token per forward pass."""
    timed = TimedMask(job)
    return walk(job, take_late(job, timed), timed)


def take_late(job: Job, timed: TimedMask) -> Take:
    """How one token is taken."""
    matcher, questions = job.matcher, MatcherQuestions(job.matcher)

    def take_free(raw: Logits, context: FilterContext) -> Decision:
        # Nothing can be refused: what `ignore_eos` and the config ban is no constraint, and the free chain has it.
        return decide(
            raw, timed.mask(None), vocab=job.vocab, chain=job.chain, stream=job.stream, context=context, watch=job.watch
        )

    if matcher is None:
        return take_free

    def take(raw: Logits, context: FilterContext) -> Decision:
        return decide_late(
            raw, lambda: timed.timed(matcher.mask), matcher.allows, vocab=job.vocab, chain=job.chain,
            stream=job.stream, context=context, watch=job.watch, questions=questions,
        )  # fmt: skip

    return take


REJECTION = Strategy(make_plan=rejection_plan)
