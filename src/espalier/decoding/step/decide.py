"""One step: from raw logits and a token mask to a token and its record. Mask, sampler chain, draw, in this order.

A common step is drawn by one kernel, and its record is made when it is read; whatever else there is goes through
`plain.py`. It knows nothing about models, caches or the order in which a strategy calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from espalier.decoding.matcher_questions import NO_MATCHER, Answers, MatcherQuestions
from espalier.decoding.step.plain import PlainStep, decide_late_plainly, decide_plainly
from espalier.decoding.step.record import Watch
from espalier.decoding.step.row import Decision, Row, drawn_quickly
from espalier.decoding.step.stages import favourite_of
from espalier.decoding.step.summed import decide_late_summed, decide_summed
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.draw_fast import DrawnToken
from espalier.sampling.filters import FilterContext
from espalier.sampling.history import Counts
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.records import StepRecord

UNWATCHED = Watch("off")


def decide(
    raw: Logits,
    mask: Mask | None,
    *,
    vocab: Vocab,
    chain: Chain,
    stream: RandomStream,
    context: FilterContext,
    watch: Watch,
    questions: MatcherQuestions = NO_MATCHER,
) -> Decision:
    """Mask, then chain, then draw. `raw` is `(V,) float32` and is not changed; `mask` is `(W,) int32` or None.

    Takes `chain.draws_per_token` numbers of the stream: first the chance of xtc, where xtc is on, then the draw. The
    chain is not changed: the caller calls `chain.on_token` with the token and its probability.

    questions: about the matcher that made the mask; asked for the record alone. Where the filters ban anything, a
    recorded step asks them a second time, one by one. Where nothing else is in the way, a record with lists is made
    when it is read: the step keeps a copy of a short row, of the mask and of the counts that penalties look at.

    Raises BadLogits for NaN, +inf or nothing finite, DeadEnd where nothing is allowed.
    """
    favourite = favourite_of(raw, context.step)
    is_on = watch.is_on
    if not is_on and (drawn := drawn_quickly(raw, mask, vocab, chain, stream, context, favourite)) is not None:
        return Decision(*drawn, None)
    row = Row(raw, vocab, chain, stream, context, favourite)
    if is_on and not watch.lists:
        began = stream.count
        if (decision := decide_summed(row, mask, watch, questions)) is not None:
            return decision
        stream.rollback(stream.count - began)
    counts = row.counts(watch) if is_on else None
    if counts is None:
        return decide_plainly(row, mask, watch, questions)
    began = stream.count
    token, prob = row.draw(mask) or decide_plainly(row, mask, UNWATCHED, questions)[:2]
    bits = None if mask is None else mask.copy()
    answers = questions.kept(bits, token, favourite)
    make = partial(_made, row.kept(), bits, counts, began, watch, answers, token)
    return Decision(token, prob, StepRecord.later(make))


def decide_late(
    raw: Logits,
    mask: Callable[[], Mask],
    allows: Callable[[int], bool],
    *,
    vocab: Vocab,
    chain: Chain,
    stream: RandomStream,
    context: FilterContext,
    watch: Watch,
    questions: MatcherQuestions = NO_MATCHER,
) -> Decision:
    """Chain, draw, and only where `allows` refuses the drawn token: mask, chain, draw again. The rest is as `decide`.

    mask: builds the mask, `(W,) int32`, of the tokens that `allows` allows. It is called once where the token was
    refused or the step is recorded, and else not at all. A second draw takes `chain.draws_per_token` numbers more. The
    blame is the reason why the drawn token was refused, or, where it was not, why the top choice was.
    """
    row = Row(raw, vocab, chain, stream, context, favourite_of(raw, context.step))
    is_on = watch.is_on
    if is_on and not watch.lists:
        began, mask = stream.count, _Once(mask)
        if (decision := decide_late_summed(row, mask, watch, questions)) is not None:
            return decision
        stream.rollback(stream.count - began)
    counts = row.counts(watch) if is_on and questions.can_wait else None
    if counts is None:
        return decide_late_plainly(row, mask, allows, watch, questions)
    began, bits = stream.count, mask().copy()
    token, prob, _ = decide_late_plainly(row, lambda: bits, allows, UNWATCHED, questions)
    answers = questions.kept(bits, token, row.favourite)
    make = partial(_made_late, row.kept(), bits, counts, began, watch, answers, token)
    return Decision(token, prob, StepRecord.later(make))


class _Once:
    """A mask that is built at the first call and given again after."""

    __slots__ = ("_build", "_mask")

    def __init__(self, build: Callable[[], Mask]) -> None:
        self._build = build
        self._mask: Mask | None = None

    def __call__(self) -> Mask:
        if self._mask is None:
            self._mask = self._build()
        return self._mask


def _made(
    row: Row, mask: Mask | None, counts: Counts, began: int, watch: Watch, answers: Answers, token: int
) -> StepRecord:
    """The record of `decide`, which decides again. began: where the stream stood. token: what was taken."""
    return _check_record(decide_plainly(row.then(counts, began), mask, watch, answers), token)


def _made_late(
    row: Row, mask: Mask, counts: Counts, began: int, watch: Watch, answers: Answers, token: int
) -> StepRecord:
    """The record of `decide_late`, which decides again."""
    again = decide_late_plainly(row.then(counts, began), lambda: mask, partial(masks.test, mask), watch, answers)
    return _check_record(again, token)


def _check_record(again: Decision, token: int) -> StepRecord:
    """The record of a step that was decided again."""
    if again.token != token:
        raise AssertionError(f"token {token} was taken, and deciding again takes {again.token}")
    return again.written()


def record_forced(
    raw: Logits,
    token: int,
    mask: Mask | None,
    *,
    vocab: Vocab,
    chain: Chain,
    context: FilterContext,
    watch: Watch,
    questions: MatcherQuestions = NO_MATCHER,
) -> StepRecord | None:
    """The record of an allowed token that is taken without a draw; None at level `off`. Arguments as in `decide`.

    What the model wanted and what the constraint removed are as in any step. `post_chain` holds the token alone.
    `z_sampled` is the token's probability after penalties, bias and temperature over the whole vocabulary: the share of
    this step in the weight of the text. Raises BadLogits, DeadEnd.
    """
    if not watch.is_on:
        return None
    nothing = RandomStream(0, 0)  # nothing is drawn from it
    row = Row(raw, vocab, chain, nothing, context, favourite_of(raw, context.step))
    step = PlainStep(row, watch, questions)
    left = step.left(mask)
    step.check_alive(left)
    drawn = DrawnToken(token, 1.0, float(raw[token]), np.array([token]), np.ones(1), raw[[token]])
    return step.record(left, drawn, questions, was_forced=True)
