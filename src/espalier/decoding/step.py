"""One step: from raw logits and a mask to a token and its record. The only writer of the stages in this order.

It knows nothing about models, caches or strategies' order of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.automata.reasons.blame import Blame
from espalier.decoding.stages import CONSTRAINT, NEG_INF, PADDING, Stages, banned_by, favourite_of, permitted, shares
from espalier.errors import DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.draw_fast import Choice, choose, heated
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import OTHERS, allowed_mass, measure
from espalier.trace.records import StepRecord, TraceLevel
from espalier.trace.sidecar import distribution

LISTED: tuple[TraceLevel, ...] = ("steps", "full")
"""Levels at which the candidates of each stage, and the reasons, are written down."""


class Watch(NamedTuple):
    """How much of a step is written down. top_k: candidates per stage from level `steps` on. counts: why a favourite
    was refused is written down at level `summary` too, since it is counted."""

    level: TraceLevel = "steps"
    top_k: int = 10
    counts: bool = False

    @property
    def says_why(self) -> bool:
        return self.level in LISTED or (self.counts and self.level != "off")


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
    explain: Callable[[int], Blame | None] = lambda token: None,
    members: Callable[[], Sequence[tuple[str, Mask]]] = tuple,
    rule: Callable[[int], str | None] = lambda token: None,
) -> Decision:
    """Mask, then chain, then draw. `raw` is `(V,) float32` and is not changed; `mask` is `(W,) int32` or None.

    Of the stream `chain.draws_per_token` numbers are used: xtc's chance first, where xtc is on, then the draw's. Of the
    chain nothing changes: `chain.on_token` with the token and its probability is the caller's.

    explain: why a token is refused, or None where that is not known; asked from level `steps` on for the model's
    favourite if it is. members: the masks of a composition's members, in order of blame; nothing where there are none.
    Where the filters ban anything, they are asked a second time, one by one. rule: where a token that was taken begins.

    Raises BadLogits for NaN, +inf or nothing finite, DeadEnd where nothing is allowed.
    """
    step = _Step(raw, vocab, chain, stream, context, watch)
    left = step.left(mask)
    drawn = step.choose(left)
    if not step.is_watched:
        return Decision(drawn.token, drawn.prob, None)
    return Decision(drawn.token, drawn.prob, step.record(left, drawn, None, explain, members, rule))


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
    explain: Callable[[int], Blame | None] = lambda token: None,
    members: Callable[[], Sequence[tuple[str, Mask]]] = tuple,
    rule: Callable[[int], str | None] = lambda token: None,
) -> Decision:
    """Chain, draw, and only where `allows` refuses what was drawn: mask, chain, draw again. The rest is as `decide`.

    mask: builds the mask, `(W,) int32`, of the tokens that `allows` allows; called once where the token was refused, or
    the step is measured, and else not at all. A second draw takes `chain.draws_per_token` numbers more. The blame is
    why the drawn token was refused, where it was, and else why the favourite was.
    """
    step = _Step(raw, vocab, chain, stream, context, watch)
    drawn, first = step.choose(step.left(None)), None
    if allows(drawn.token):
        if not step.is_watched:
            return Decision(drawn.token, drawn.prob, None)
        left = step.left(mask())
    else:
        left, first = step.left(mask()), drawn
        drawn = step.choose(left)
        if not step.is_watched:
            return Decision(drawn.token, drawn.prob, None)
    return Decision(drawn.token, drawn.prob, step.record(left, drawn, first, explain, members, rule))


class _Left(NamedTuple):
    """What may be taken under a mask. bits: `(W,) int32`, None for everything; flags: the same without what filters
    ban, `(V,) bool`, made where somebody looks at it. before: flags as they were before `min_tokens`."""

    mask: Mask | None
    bits: Mask | None
    flags: NDArray[np.bool_] | None
    before: NDArray[np.bool_] | None


class _Step:
    """One row of logits and who looks at it: draws under a mask as often as it is asked, and writes the record."""

    __slots__ = (
        "_biased", "_chain", "_context", "_favourite", "_has_row", "_is_early", "_raw", "_stream", "_vocab", "_watch",
        "is_watched",
    )  # fmt: skip

    def __init__(
        self, raw: Logits, vocab: Vocab, chain: Chain, stream: RandomStream, context: FilterContext, watch: Watch
    ) -> None:
        self._raw, self._vocab, self._chain, self._stream = raw, vocab, chain, stream
        self._context, self._watch = context, watch
        self._favourite = favourite_of(raw, context.step)
        self.is_watched = watch.level != "off"
        self._is_early = context.step < chain.config.min_tokens
        # Where nobody looks at it, no whole row is made: `choose` adds the config's biases to what is left.
        self._has_row = self.is_watched or self._is_early or len(chain.filters) > 0
        self._biased = chain.bias(raw, context) if self._has_row else raw  # (V,) float32

    def left(self, mask: Mask | None) -> _Left:
        """mask: of the constraint; None where there is none, or nobody asks it."""
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

    def choose(self, left: _Left) -> Choice:
        """Raises DeadEnd, saying who left nothing."""
        raw, biased, watch = self._raw, self._biased, self._watch
        try:
            return choose(
                biased, left.bits, self._chain, self._stream, is_biased=self._has_row,
                best=self._favourite if biased is raw else None, show=watch.top_k if watch.level in LISTED else 0,
            )  # fmt: skip
        except DeadEnd:
            allowed = permitted(left.mask, self._vocab, raw.shape[0])
            raise DeadEnd(dead_end(allowed, raw, self._chain, self._context.step)) from None

    def record(
        self,
        left: _Left,
        drawn: Choice,
        first: Choice | None,
        explain: Callable[[int], Blame | None],
        members: Callable[[], Sequence[tuple[str, Mask]]],
        rule: Callable[[int], str | None],
    ) -> StepRecord:
        """left: what the constraint and all bans leave. first: what was drawn and refused, None where nothing was."""
        raw, chain, vocab, watch, allowed = self._raw, self._chain, self._vocab, self._watch, left.flags
        favourite, listed = self._favourite, watch.level in LISTED
        numbers = measure(raw, allowed, top=float(raw[favourite]))
        z_sampled = None
        if not chain.config.is_greedy and not chain.config.dynatemp_range:
            warm = heated(_unbanned(raw, self._biased, chain), chain) if allowed is not None else raw
            z_sampled = allowed_mass(warm, allowed)
        bans: list[tuple[str, NDArray[np.bool_]]] = []
        if allowed is not None and chain.can_ban:
            bans = bans_of(raw, self._biased, chain, self._context)
            if left.before is not allowed:
                bans.append(("min_tokens", ~allowed if left.before is None else left.before & ~allowed))
        kept = (drawn.token,) if first is None else (drawn.token, first.token)
        stages = Stages(raw, allowed, numbers, vocab, kept, watch.top_k)
        is_changed = allowed is not None and not allowed[favourite]
        blamed = favourite if first is None else first.token
        return StepRecord(
            step=self._context.step,
            token_id=drawn.token,
            text=vocab.text_of(drawn.token),
            bytes=vocab.bytes_of(drawn.token),
            logprob=float(raw[drawn.token]) - numbers.log_total,
            pre_masking=stages.wanted() if listed else (),
            post_grammar=stages.allowed() if listed else (),
            post_chain=stages.sampled(drawn) if listed else (),
            resampled=stages.candidate(drawn.token, drawn.prob, drawn.logit),
            allowed_count=int(np.count_nonzero(allowed)) if allowed is not None else raw.shape[0],
            removed_mass=numbers.removed_mass,
            tax_nats=numbers.tax_nats,
            z_sampled=z_sampled,
            entropy_before=numbers.entropy_before,
            entropy_after=numbers.entropy_after,
            was_changed=bool(is_changed),
            was_rejected=first is not None,
            rejected=None if first is None else stages.candidate(first.token, first.prob, first.logit),
            is_special=drawn.token in vocab.special_texts,
            blame=(explain(blamed) or banned_by(blamed, bans, chain.config.min_tokens))
            if watch.says_why and (is_changed or first is not None)
            else None,
            removed_by=refusals(raw, allowed, left.mask, vocab, members(), bans, asks=chain.can_ban)
            if allowed is not None
            else (),
            rule=rule(drawn.token),
            distribution=distribution(raw, allowed) if watch.level == "full" else None,
        )


def allowed_bits(raw: Logits, mask: Mask | None, vocab: Vocab, chain: Chain) -> Mask | None:
    """What may be taken, packed, `(W,) int32`: the mask, or all real ids, without what the config bans; None where
    nothing is forbidden."""
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
    """`allowed` without the tokens that would end the text too early; as it was where nothing else is left."""
    rest = biased > NEG_INF if allowed is None else allowed & (biased > NEG_INF)  # (V,) bool
    rest[list(ends)] = False
    return rest if bool(rest.any()) else allowed


def dead_end(allowed: NDArray[np.bool_] | None, raw: Logits, chain: Chain, step: int) -> str:
    """Says who left nothing: the constraint, the first of the config's bans after which nothing was left, or a filter.
    allowed: what the constraint alone allows."""
    left = raw > NEG_INF if allowed is None else allowed & (raw > NEG_INF)  # (V,) bool
    if not bool(left.any()):
        return f"no token is allowed at step {step} and the text is not complete"
    for name, banned in chain.fitted.bans:
        left &= ~banned
        if not bool(left.any()):
            return f"{name} bans every token that is left at step {step}"
    return f"the filters ({', '.join(chain.filters.names)}) ban every token that is left at step {step}"


def _unbanned(raw: Logits, biased: Logits, chain: Chain) -> Logits:
    """`(V,) float32`, the biased logits with what was banned as it was before: p' is over all tokens."""
    if biased is raw:
        return raw
    added = chain.fitted.add(raw)
    return added if not len(chain.filters) and not chain.fitted.bans else np.where(biased > NEG_INF, biased, added)


def bans_of(raw: Logits, biased: Logits, chain: Chain, context: FilterContext) -> list[tuple[str, NDArray[np.bool_]]]:
    """`(V,) bool` each, by who bans, in order of blame: the config's fields, then the filters. These are asked again,
    one by one, where they banned anything; what that does not tell is `OTHERS`."""
    found = list(chain.fitted.bans)
    alone = chain.fitted.apply(raw)
    banned = (alone > NEG_INF) & (biased == NEG_INF)  # (V,) bool, by any filter
    if not bool(banned.any()):
        return found
    active = [one for one in chain.filters if chain.filters.is_enabled(one.name)]
    if len(active) == 1:
        return [*found, (active[0].name, banned)]
    row = alone.copy()
    for one in active:
        after = one.apply(row.copy(), context)
        mine = banned & (row > NEG_INF) & (after == NEG_INF)
        if bool(mine.any()):
            found.append((one.name, mine))
        row = after
    return [*found, (OTHERS, banned)]


def refusals(
    raw: Logits,
    allowed: NDArray[np.bool_],
    mask: Mask | None,
    vocab: Vocab,
    members: Sequence[tuple[str, Mask]],
    bans: Sequence[tuple[str, NDArray[np.bool_]]],
    *,
    asks: bool,
) -> tuple[tuple[str, float], ...]:
    """asks: whether anything but a constraint could remove a token at any step; without that and without members a
    record has nothing to share out."""
    if not members and not asks:
        return ()
    constrained = None if members else permitted(mask, vocab, raw.shape[0])
    return shares(raw, allowed, constrained, members, bans, name=PADDING if mask is None else CONSTRAINT)
