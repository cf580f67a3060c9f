"""One step: from raw logits and a token mask to a token and its record. Mask, sampler chain, draw, in this order.

It knows nothing about models, caches or the order in which a strategy calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import NO_MATCHER, MatcherQuestions
from espalier.decoding.step.record import RowRecords, Scored, Watch, bans_of, refusals
from espalier.decoding.step.stages import NEG_INF, favourite_of, permitted
from espalier.errors import DeadEnd, Stranded
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.draw_fast import DrawnToken, choose, heated
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import allowed_mass
from espalier.trace.records import StepRecord

APART = "change a member, so that some text satisfies all of them"


class Decision(NamedTuple):
    """token: what was taken. prob: its probability in what was drawn from. record: None at level `off`."""

    token: int
    prob: float
    record: StepRecord | None


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
    recorded step asks them a second time, one by one.

    Raises BadLogits for NaN, +inf or nothing finite, DeadEnd where nothing is allowed.
    """
    step = _Step(raw, vocab, chain, stream, context, watch, questions)
    left = step.left(mask)
    drawn = step.choose(left)
    if not step.is_watched:
        return Decision(drawn.token, drawn.prob, None)
    return Decision(drawn.token, drawn.prob, step.record(left, drawn, questions))


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
    step = _Step(raw, vocab, chain, stream, context, watch, questions)
    drawn, rejected = step.choose(step.left(None)), None
    if allows(drawn.token):
        if not step.is_watched:
            return Decision(drawn.token, drawn.prob, None)
        left = step.left(mask())
    else:
        left, rejected = step.left(mask()), Scored(drawn.token, drawn.prob, drawn.logit)
        drawn = step.choose(left)
        if not step.is_watched:
            return Decision(drawn.token, drawn.prob, None)
    return Decision(drawn.token, drawn.prob, step.record(left, drawn, questions, rejected=rejected))


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
    step = _Step(raw, vocab, chain, nothing, context, watch, questions)
    left = step.left(mask)
    step.check_alive(left)
    taken = DrawnToken(token, 1.0, float(raw[token]), np.array([token]), np.ones(1), raw[[token]])
    return step.record(left, taken, questions, was_forced=True)


class _Left(NamedTuple):
    """The tokens that are allowed under a mask. bits: `(W,) int32`, None for all; flags: `(V,) bool`, the same without
    the bans of filters, made only where it is needed. before: flags before `min_tokens` held back ends."""

    mask: Mask | None
    bits: Mask | None
    flags: NDArray[np.bool_] | None
    before: NDArray[np.bool_] | None


class _Step:
    """One row of logits: draws under a mask as often as it is asked, and makes the record."""

    __slots__ = (
        "_biased", "_chain", "_context", "_favourite", "_has_row", "_is_early", "_questions", "_raw", "_stream",
        "_vocab", "_watch", "is_watched",
    )  # fmt: skip

    def __init__(
        self,
        raw: Logits,
        vocab: Vocab,
        chain: Chain,
        stream: RandomStream,
        context: FilterContext,
        watch: Watch,
        questions: MatcherQuestions,
    ) -> None:
        self._raw, self._vocab, self._chain, self._stream = raw, vocab, chain, stream
        self._context, self._watch, self._questions = context, watch, questions
        self._favourite = favourite_of(raw, context.step)
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
            flags = _held_back(biased, flags, self._chain.fitted.ends)
            bits = None if flags is None else masks.from_bool(flags)
        return _Left(mask, bits, flags, before)

    def choose(self, left: _Left) -> DrawnToken:
        """Draw a token. Raises DeadEnd, naming the constraint, field or filter that left no token."""
        raw, biased, watch = self._raw, self._biased, self._watch
        show = watch.top_k if self.is_watched and watch.lists else 0
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
        taken: DrawnToken,
        questions: MatcherQuestions,
        *,
        rejected: Scored | None = None,
        was_forced: bool = False,
    ) -> StepRecord:
        """left: the tokens that the constraint and all bans leave. rejected: the token that was drawn first and
        refused."""
        raw, chain, vocab, allowed, token = self._raw, self._chain, self._vocab, left.flags, taken.token
        bans = bans_of(raw, self._biased, chain, self._context, allowed=allowed, before=left.before)
        rows = RowRecords(
            raw,
            allowed,
            taken,
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
            z_sampled=self._z_sampled(allowed, token if was_forced else None),
        )
        return rows.record(Scored(token, taken.prob, taken.logit), was_forced=was_forced)

    def _z_sampled(self, allowed: NDArray[np.bool_] | None, forced: int | None) -> float | None:
        """The probability of the allowed tokens, or of a forced one alone, after penalties, bias and temperature; None
        where no such distribution is defined."""
        chain, raw = self._chain, self._raw
        if chain.config.is_greedy or chain.config.dynatemp_range:
            return None
        if forced is not None:
            allowed = np.zeros(raw.shape[0], dtype=np.bool_)  # (V,)
            allowed[forced] = True
        return 1.0 if allowed is None else allowed_mass(heated(_unbanned(raw, self._biased, chain), chain), allowed)

    def _dead_end(self, left: _Left) -> DeadEnd:
        allowed = permitted(left.mask, self._vocab, self._raw.shape[0])
        return dead_end(allowed, self._raw, self._chain, self._context.step, self._questions)


def allowed_bits(raw: Logits, mask: Mask | None, vocab: Vocab, chain: Chain) -> Mask | None:
    """The allowed tokens, `(W,) int32`: the mask, or all real ids without one, less the bans of the config; None where
    every token is allowed."""
    left = chain.fitted.permitted
    if mask is not None:
        bits = masks.resized(mask, raw.shape[0])
    elif vocab.has_padding:
        bits = _real_bits(vocab)
    else:
        return left
    return bits if left is None else bits & left


@lru_cache(maxsize=16)
def _real_bits(vocab: Vocab) -> Mask:
    return masks.from_bool(vocab.real_ids)


def _held_back(biased: Logits, allowed: NDArray[np.bool_] | None, ends: Sequence[int]) -> NDArray[np.bool_] | None:
    """`allowed` without the tokens that would end the text too early; `allowed` itself where no other token is left."""
    rest = biased > NEG_INF if allowed is None else allowed & (biased > NEG_INF)  # (V,) bool
    rest[list(ends)] = False
    return rest if bool(rest.any()) else allowed


def dead_end(
    allowed: NDArray[np.bool_] | None, raw: Logits, chain: Chain, step: int, questions: MatcherQuestions
) -> DeadEnd:
    """The error that names what left no token: the members of the constraint, the first field of the config after whose
    ban none was left, or a filter. allowed: by the constraint alone. It is Stranded where the request itself asks for
    things that share no token."""
    left = raw > NEG_INF if allowed is None else allowed & (raw > NEG_INF)  # (V,) bool
    if not bool(left.any()):
        reason = f"no token is allowed at step {step} and the text is not complete"
        names = () if allowed is None or bool(allowed.any()) else questions.member_names()
        return stranded(names, reason) if names else DeadEnd(reason)
    for name, banned in chain.fitted.bans:
        left &= ~banned
        if not bool(left.any()):
            return Stranded(f"{name} bans every token that is left at step {step}", field=name)
    return DeadEnd(f"the filters ({', '.join(chain.filters.names)}) ban every token that is left at step {step}")


def stranded(names: Sequence[str], reason: str, *, hint: str = APART) -> Stranded:
    """The error for members of a constraint that allow no token in common."""
    return Stranded(f"{reason}: {' and '.join(names)} allow none in common", hint=hint, field="constraint")


def _unbanned(raw: Logits, biased: Logits, chain: Chain) -> Logits:
    """`(V,) float32`, the biased logits with banned tokens as they were: p' is a distribution over all tokens."""
    if biased is raw:
        return raw
    added = chain.fitted.add(raw)
    return added if not len(chain.filters) and not chain.fitted.bans else np.where(biased > NEG_INF, biased, added)
