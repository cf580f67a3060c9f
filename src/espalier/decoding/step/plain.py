"""A step without shortcuts: biases, mask, samplers and draw over a row of logits, and the record at once.

Every config and every filter can take this way. It knows nothing about models, caches or the order in which a strategy
calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import Answers
from espalier.decoding.step.allowed import NEG_INF, allowed_bits, held_back, permitted
from espalier.decoding.step.dead_ends import dead_end
from espalier.decoding.step.record import RowRecords, Scored, Watch, bans_of, refusals
from espalier.decoding.step.row import Decision, Row
from espalier.decoding.step.summed import can_sum, sums_of
from espalier.errors import DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.fast.draw_fast import DrawnToken, choose, heated
from espalier.sampling.fast.whole import shown
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.trace.measure import allowed_mass
from espalier.trace.records import StepRecord


def decide_plainly(row: Row, mask: Mask | None, watch: Watch, questions: Answers) -> Decision:
    """As `decide`."""
    step = PlainStep(row, watch, questions)
    left = step.left(mask)
    drawn = step.choose(left)
    return Decision(drawn.token, drawn.prob, step.record(left, drawn, questions) if watch.is_on else None)


def decide_late_plainly(
    row: Row, mask: Callable[[], Mask], allows: Callable[[int], bool], watch: Watch, questions: Answers
) -> Decision:
    """As `decide_late`."""
    if not watch.is_on and (drawn_token := row.draw(None)) is not None:
        if allows(drawn_token[0]):
            return Decision(*drawn_token, None)
        bits = mask()
        again = row.draw(bits)
        return decide_plainly(row, bits, watch, questions) if again is None else Decision(*again, None)
    step, rejected = PlainStep(row, watch, questions), None
    drawn = step.choose(step.left(None))
    if allows(drawn.token):
        if not watch.is_on:
            return Decision(drawn.token, drawn.prob, None)
        left = step.left(mask())
    else:
        left, rejected = step.left(mask()), Scored(drawn.token, drawn.prob, drawn.logit)
        drawn = step.choose(left)
        if not watch.is_on:
            return Decision(drawn.token, drawn.prob, None)
    return Decision(drawn.token, drawn.prob, step.record(left, drawn, questions, rejected=rejected))


class _Left(NamedTuple):
    """The tokens that are allowed under a mask. bits: `(W,) int32`, None for all; flags: `(V,) bool`, the same without
    the bans of filters, made only where it is needed. before: flags before `min_tokens` held back ends."""

    mask: Mask | None
    bits: Mask | None
    flags: NDArray[np.bool_] | None
    before: NDArray[np.bool_] | None


class PlainStep:
    """One row of logits: draws under a mask as often as it is asked, and makes the record."""

    __slots__ = (
        "_biased", "_chain", "_context", "_favourite", "_has_row", "_is_early", "_questions", "_raw", "_stream",
        "_vocab", "_watch", "is_watched",
    )  # fmt: skip

    def __init__(self, row: Row, watch: Watch, questions: Answers) -> None:
        raw, self._vocab, chain, self._stream, context, self._favourite = row
        self._raw, self._chain, self._context = raw, chain, context
        self._watch, self._questions = watch, questions
        self.is_watched = watch.is_on  # once: a property costs time at every step
        self._is_early = context.step < chain.config.min_tokens
        # A biased copy of the whole row is made only where it is needed: else `choose` biases the allowed tokens.
        self._has_row = self.is_watched or self._is_early or len(chain.filters) > 0
        self._biased = chain.bias(raw, context) if self._has_row else raw  # (V,) float32

    def left(self, mask: Mask | None) -> _Left:
        """mask: the constraint's, `(W,) int32`; None without one, or where it is not asked."""
        raw, biased = self._raw, self._biased
        bits = allowed_bits(raw, mask, self._vocab, self._chain)  # (W,) int32 or None
        flags = None  # (V,) bool or None
        if self.is_watched or self._is_early:
            flags = None if bits is None else masks.unpack(bits, raw.shape[0])
            if biased is not raw:
                finite = biased > NEG_INF  # bans of filters shrink the allowed set
                flags = finite if flags is None else flags & finite
        before = flags
        if self._is_early:
            flags = held_back(biased, flags, self._chain.fitted.ends)
            bits = None if flags is None else masks.from_bool(flags)
        return _Left(mask, bits, flags, before)

    def choose(self, left: _Left) -> DrawnToken:
        """Draw a token. Raises DeadEnd, naming the constraint, field or filter that left no token."""
        raw, biased, watch = self._raw, self._biased, self._watch
        show = watch.top_k if self.is_watched and watch.lists else 0
        if (
            biased is raw
            and self.is_watched
            and (drawn := shown(raw, left.bits, self._chain, self._stream, self._favourite))
        ):
            return drawn
        try:
            return choose(
                biased, left.bits, self._chain, self._stream, is_biased=self._has_row,
                best=self._favourite if biased is raw else None, show=show,
            )  # fmt: skip
        except DeadEnd:
            raise self._dead_end(left) from None

    def check_alive(self, left: _Left) -> None:
        """Raises DeadEnd where `choose` would. For a step that is recorded."""
        alive = self._biased > NEG_INF  # (V,) bool
        if not bool((alive if left.flags is None else alive & left.flags).any()):
            raise self._dead_end(left)

    def record(
        self,
        left: _Left,
        drawn: DrawnToken,
        questions: Answers,
        *,
        rejected: Scored | None = None,
        was_forced: bool = False,
    ) -> StepRecord:
        """left: the tokens that the constraint and all bans leave. rejected: the token that was drawn first and
        refused."""
        raw, chain, vocab, allowed, token = self._raw, self._chain, self._vocab, left.flags, drawn.token
        bans = bans_of(raw, self._biased, chain, self._context, allowed=allowed, before=left.before)
        sums = None
        if not (was_forced or self._is_early or len(chain.filters)) and can_sum(chain):
            sums = sums_of(raw, left.bits, chain, self._favourite)
        rows = RowRecords(
            raw,
            allowed,
            drawn,
            kept=(token,) if rejected is None else (token, rejected.token),
            step=self._context.step,
            favourite=self._favourite,
            vocab=vocab,
            watch=self._watch,
            questions=questions,
            rejected=rejected,
            bans=bans,
            min_tokens=chain.config.min_tokens,
            removed_by=refusals(raw, allowed, left.mask, vocab, questions.member_masks(), bans, can_ban=chain.can_ban),
            z_sampled=self._z_sampled(allowed, token if was_forced else None) if sums is None else sums.z_sampled,
            numbers=None if sums is None else sums.numbers(float(raw[token])),
        )
        return rows.record(Scored(token, drawn.prob, drawn.logit), was_forced=was_forced)

    def _z_sampled(self, allowed: NDArray[np.bool_] | None, forced: int | None) -> float | None:
        """The probability of the allowed tokens, or of a forced one alone, after penalties, bias and temperature; None
        where no such distribution is defined."""
        chain, raw = self._chain, self._raw
        if chain.config.is_greedy or chain.config.dynatemp_range:
            return None
        if forced is not None:
            allowed = np.zeros(raw.shape[0], dtype=np.bool_)  # (V,)
            allowed[forced] = True
        return 1.0 if allowed is None else allowed_mass(heated(_undo_bans(raw, self._biased, chain), chain), allowed)

    def _dead_end(self, left: _Left) -> DeadEnd:
        allowed = permitted(left.mask, self._vocab, self._raw.shape[0])
        return dead_end(allowed, self._raw, self._chain, self._context.step, self._questions)


def _undo_bans(raw: Logits, biased: Logits, chain: Chain) -> Logits:
    """`(V,) float32`, the biased logits with banned tokens as they were: p' is a distribution over all tokens."""
    if biased is raw:
        return raw
    added = chain.fitted.add(raw)
    return added if not len(chain.filters) and not chain.fitted.bans else np.where(biased > NEG_INF, biased, added)
