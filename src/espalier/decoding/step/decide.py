"""One step: from raw logits and a token mask to a token and its record. Mask, sampler chain, draw, in this order.

It knows nothing about models, caches or the order in which a strategy calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import NO_MATCHER, Answers, MatcherQuestions
from espalier.decoding.step.record import RowRecords, Scored, Watch, bans_of, refusals
from espalier.decoding.step.stages import NEG_INF, SHORT, favourite_of, permitted
from espalier.decoding.step.summed import can_sum, logit_of, summed, sums_of
from espalier.errors import DeadEnd, Stranded
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.draw_fast import DrawnToken, choose, heated
from espalier.sampling.fast.whole import drawn as drawn_whole
from espalier.sampling.fast.whole import shown as shown_whole
from espalier.sampling.filters import FilterContext
from espalier.sampling.history import Counts
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

    def written(self) -> StepRecord:
        """The record of a watched step."""
        if self.record is None:
            raise AssertionError("a step that is recorded has no record")
        return self.record


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
    if not is_on and (found := _drawn_quickly(raw, mask, vocab, chain, stream, context, favourite)) is not None:
        return Decision(*found, None)
    row = _Row(raw, vocab, chain, stream, context, favourite)
    if is_on and not watch.lists and row.can_sum(questions):
        began = stream.count
        if (quick := row.draw(mask)) is not None:
            record = row.summed(mask, quick, watch, questions)
            if record is not None:
                return Decision(*quick, record)
            stream.rollback(stream.count - began)
    counts = row.counts(watch) if is_on else None
    if counts is None:
        return row.decide(mask, watch, questions)
    began = stream.count
    token, prob = row.draw(mask) or row.decide(mask, UNWATCHED, questions)[:2]
    bits = None if mask is None else mask.copy()
    asked = questions.kept(bits, token, favourite)
    make = partial(_made, row.kept(), bits, counts, began, watch, asked, token)
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
    row = _Row(raw, vocab, chain, stream, context, favourite_of(raw, context.step))
    is_on = watch.is_on
    if is_on and not watch.lists and row.can_sum(questions):
        began, mask = stream.count, _Once(mask)
        if (found := row.summed_late(mask, allows, watch, questions)) is not None:
            return found
        stream.rollback(stream.count - began)
    counts = row.counts(watch) if is_on and questions.can_wait else None
    if counts is None:
        return row.decide_late(mask, allows, watch, questions)
    began, bits = stream.count, mask().copy()
    token, prob, _ = row.decide_late(lambda: bits, allows, UNWATCHED, questions)
    asked = questions.kept(bits, token, row.favourite)
    make = partial(_made_late, row.kept(), bits, counts, began, watch, asked, token)
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
    row: _Row, mask: Mask | None, counts: Counts, began: int, watch: Watch, answers: Answers, token: int
) -> StepRecord:
    """The record of `decide`, which decides again. began: where the stream stood. token: what was taken."""
    return _written(row.then(counts, began).decide(mask, watch, answers), token)


def _made_late(
    row: _Row, mask: Mask, counts: Counts, began: int, watch: Watch, answers: Answers, token: int
) -> StepRecord:
    """The record of `decide_late`, which decides again."""
    again = row.then(counts, began).decide_late(lambda: mask, partial(masks.test, mask), watch, answers)
    return _written(again, token)


def _written(again: Decision, token: int) -> StepRecord:
    """The record of a step that was decided again."""
    if again.token != token:
        raise AssertionError(f"token {token} was taken, and deciding again takes {again.token}")
    return again.written()


UNWATCHED = Watch("off")


class _Row(NamedTuple):
    """One row of logits, `(V,) float32`, and what a token is drawn with."""

    raw: Logits
    vocab: Vocab
    chain: Chain
    stream: RandomStream
    context: FilterContext
    favourite: int

    def counts(self, watch: Watch) -> Counts | None:
        """What has to be kept of the chain to decide again later; None where that cannot be done, and where it
        shall not be: the row is too long to be copied, nothing is listed, or the record is read at once."""
        can_wait = watch.lists and not watch.at_once and self.raw.shape[0] <= SHORT
        return self.chain.counts() if can_wait else None

    def can_sum(self, questions: MatcherQuestions) -> bool:
        """Whether the numbers of a record without lists can be had from one kernel."""
        chain = self.chain
        if len(chain.filters) or self.context.step < chain.config.min_tokens or questions.has_members:
            return False
        return can_sum(chain)

    def draw(self, mask: Mask | None) -> tuple[int, float] | None:
        """As `_drawn_quickly`."""
        return _drawn_quickly(self.raw, mask, *self[1:])

    def summed(
        self,
        mask: Mask | None,
        taken: tuple[int, float],
        watch: Watch,
        questions: MatcherQuestions,
        rejected: Scored | None = None,
    ) -> StepRecord | None:
        """The record without lists; None where it has to be made at once, from the row."""
        vocab, token = self.vocab, taken[0]
        found = sums_of(self.raw, _real(mask, vocab), self.chain, token, self.favourite)
        if found is None:
            return None
        refused = self.favourite if rejected is None else rejected.token
        is_asked = watch.says_why and (rejected is not None or not found.is_allowed)
        asked = questions.kept(None, token, refused if is_asked else None)
        return summed(
            found, taken, float(self.raw[token]), step=self.context.step, favourite=self.favourite, vocab=vocab,
            watch=watch, questions=asked, rejected=rejected,
        )  # fmt: skip

    def summed_late(
        self, mask: Callable[[], Mask], allows: Callable[[int], bool], watch: Watch, questions: MatcherQuestions
    ) -> Decision | None:
        """`decide_late` at a level without lists; None where `summed` is, and where no kernel can draw."""
        first, rejected = self.draw(None), None
        if first is None:
            return None
        bits, taken = mask(), first
        if not allows(first[0]):
            rejected = Scored(*first, logit_of(self.raw, self.chain, first[0]))
            again = self.draw(bits)
            if again is None:
                return None
            taken = again
        record = self.summed(bits, taken, watch, questions, rejected)
        return None if record is None else Decision(*taken, record)

    def kept(self) -> _Row:
        """The same with a copy of the logits, which the model overwrites."""
        return _Row(self.raw.copy(), *self[1:])

    def then(self, counts: Counts, began: int) -> _Row:
        """The same before the token was drawn."""
        stream = RandomStream.at(self.stream.seed, self.stream.stream, began)
        return self._replace(chain=self.chain.then(counts), stream=stream)

    def decide(self, mask: Mask | None, watch: Watch, questions: Answers) -> Decision:
        step = _Step(self, watch, questions)
        left = step.left(mask)
        drawn = step.choose(left)
        return Decision(drawn.token, drawn.prob, step.record(left, drawn, questions) if watch.is_on else None)

    def decide_late(
        self,
        mask: Callable[[], Mask],
        allows: Callable[[int], bool],
        watch: Watch,
        questions: Answers,
    ) -> Decision:
        if not watch.is_on and (found := self.draw(None)) is not None:
            if allows(found[0]):
                return Decision(*found, None)
            bits = mask()
            again = self.draw(bits)
            return self.decide(bits, watch, questions) if again is None else Decision(*again, None)
        step, rejected = _Step(self, watch, questions), None
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


def _drawn_quickly(
    raw: Logits,
    mask: Mask | None,
    vocab: Vocab,
    chain: Chain,
    stream: RandomStream,
    context: FilterContext,
    favourite: int,
) -> tuple[int, float] | None:
    """A token and its probability; None where one kernel cannot draw it, and then no number of the stream was used."""
    if len(chain.filters) or context.step < chain.config.min_tokens:
        return None
    return drawn_whole(raw, _real(mask, vocab), chain, stream, favourite)


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
    row = _Row(raw, vocab, chain, nothing, context, favourite_of(raw, context.step))
    step = _Step(row, watch, questions)
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

    def __init__(self, row: _Row, watch: Watch, questions: Answers) -> None:
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
            flags = _held_back(biased, flags, self._chain.fitted.ends)
            bits = None if flags is None else masks.from_bool(flags)
        return _Left(mask, bits, flags, before)

    def choose(self, left: _Left) -> DrawnToken:
        """Draw a token. Raises DeadEnd, naming the constraint, field or filter that left no token."""
        raw, biased, watch = self._raw, self._biased, self._watch
        show = watch.top_k if self.is_watched and watch.lists else 0
        if (
            biased is raw
            and self.is_watched
            and (found := shown_whole(raw, left.bits, self._chain, self._stream, self._favourite))
        ):
            return found
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
        questions: Answers,
        *,
        rejected: Scored | None = None,
        was_forced: bool = False,
    ) -> StepRecord:
        """left: the tokens that the constraint and all bans leave. rejected: the token that was drawn first and
        refused."""
        raw, chain, vocab, allowed, token = self._raw, self._chain, self._vocab, left.flags, taken.token
        bans = bans_of(raw, self._biased, chain, self._context, allowed=allowed, before=left.before)
        found = None
        if not (was_forced or self._is_early or len(chain.filters)) and can_sum(chain):
            found = sums_of(raw, left.bits, chain, token, self._favourite)
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
            z_sampled=self._z_sampled(allowed, token if was_forced else None) if found is None else found.z_sampled,
            numbers=None if found is None else found.numbers(float(raw[token])),
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


def _real(mask: Mask | None, vocab: Vocab) -> Mask | None:
    """The mask; without one the real ids, where there are others."""
    return _real_bits(vocab) if mask is None and vocab.has_padding else mask


@lru_cache(maxsize=16)
def _real_bits(vocab: Vocab) -> Mask:
    return masks.from_bool(vocab.real_ids)


def _held_back(biased: Logits, allowed: NDArray[np.bool_] | None, ends: Sequence[int]) -> NDArray[np.bool_] | None:
    """`allowed` without the tokens that would end the text too early; `allowed` itself where no other token is left."""
    rest = biased > NEG_INF if allowed is None else allowed & (biased > NEG_INF)  # (V,) bool
    rest[list(ends)] = False
    return rest if bool(rest.any()) else allowed


def dead_end(allowed: NDArray[np.bool_] | None, raw: Logits, chain: Chain, step: int, questions: Answers) -> DeadEnd:
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
