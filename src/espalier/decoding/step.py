"""One step: from raw logits and a mask to a token and its record. The only writer of the stages in this order.

It knows nothing about models, caches or strategies' order of calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.automata.blame import Blame
from espalier.decoding.stages import CONSTRAINT, NEG_INF, PADDING, Stages, banned_by, favourite_of, permitted, shares
from espalier.errors import DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast import choose, heated
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import OTHERS, allowed_mass, measure
from espalier.trace.records import StepRecord

TraceLevel = Literal["off", "measures", "full"]
"""off: nothing recorded. measures: masses and entropies. full: candidates of every stage too."""


class Watch(NamedTuple):
    """How much of a step is written down. top_k: candidates per stage at level `full`."""

    level: TraceLevel = "full"
    top_k: int = 10


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
) -> Decision:
    """Mask, then chain, then draw. `raw` is `(V,) float32` and is not changed; `mask` is `(W,) int32` or None.

    Of the stream `chain.draws_per_token` numbers are used: xtc's chance first, where xtc is on, then the draw's. Of the
    chain nothing changes: `chain.on_token` with the token and its probability is the caller's.

    explain: why a token is refused, or None where that is not known; asked for the model's favourite if it is.
    members: the masks of a composition's members, in order of blame; nothing where there are none. Asked at level full,
    where the filters are also asked a second time, one by one, if they ban anything.

    Raises BadLogits for NaN, +inf or nothing finite, DeadEnd where nothing is allowed.
    """
    favourite = favourite_of(raw, context.step)
    is_watched = watch.level != "off"
    is_early = context.step < chain.config.min_tokens
    # Where nobody looks at it, no whole row is made: `choose` adds the config's biases to what is left.
    has_row = is_watched or is_early or len(chain.filters) > 0
    biased = chain.bias(raw, context) if has_row else raw  # (V,) float32
    bits = _allowed_bits(raw, mask, vocab, chain)  # (W,) int32 or None
    allowed = None  # (V,) bool or None
    if is_watched or is_early:
        allowed = None if bits is None else masks.unpack(bits, raw.shape[0])
        if biased is not raw:
            finite = biased > NEG_INF  # bans of filters shrink the allowed set
            allowed = finite if allowed is None else allowed & finite
    before = allowed
    if is_early:
        allowed = _held_back(biased, allowed, chain.fitted.ends)
        bits = None if allowed is None else masks.from_bool(allowed)
    full = watch.level == "full"
    try:
        drawn = choose(
            biased, bits, chain, stream,
            is_biased=has_row, best=favourite if biased is raw else None, show=watch.top_k if full else 0,
        )  # fmt: skip
    except DeadEnd:
        raise DeadEnd(_dead_end(permitted(mask, vocab, raw.shape[0]), raw, chain, context.step)) from None
    if not is_watched:
        return Decision(drawn.token, drawn.prob, None)
    numbers = measure(raw, allowed)
    z_sampled = None
    if not chain.config.is_greedy and not chain.config.dynatemp_range:
        z_sampled = 1.0 if allowed is None else allowed_mass(heated(_unbanned(raw, biased, chain), chain), allowed)
    bans: list[tuple[str, NDArray[np.bool_]]] = []
    if full and allowed is not None:
        bans = _bans(raw, biased, chain, context)
        if before is not allowed:
            bans.append(("min_tokens", ~allowed if before is None else before & ~allowed))
    stages = Stages(raw, allowed, numbers, vocab, (drawn.token,), watch.top_k)
    record = StepRecord(
        step=context.step,
        token_id=drawn.token,
        text=vocab.text_of(drawn.token),
        bytes=vocab.bytes_of(drawn.token),
        logprob=float(raw[drawn.token]) - numbers.log_total,
        pre_masking=stages.wanted() if full else (),
        post_grammar=stages.allowed() if full else (),
        post_chain=stages.sampled(drawn) if full else (),
        resampled=stages.candidate(drawn.token, drawn.prob, drawn.logit),
        allowed_count=int(np.count_nonzero(allowed)) if allowed is not None else raw.shape[0],
        removed_mass=numbers.removed_mass,
        tax_nats=numbers.tax_nats,
        z_sampled=z_sampled,
        entropy_before=numbers.entropy_before,
        entropy_after=numbers.entropy_after,
        is_special=drawn.token in vocab.special_texts,
        blame=(explain(favourite) or banned_by(favourite, bans, chain.config.min_tokens))
        if full and allowed is not None and not allowed[favourite]
        else None,
        removed_by=_removed_by(raw, allowed, mask, vocab, members(), bans, asks=chain.can_ban)
        if full and allowed is not None
        else (),
    )
    return Decision(drawn.token, drawn.prob, record)


def _allowed_bits(raw: Logits, mask: Mask | None, vocab: Vocab, chain: Chain) -> Mask | None:
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


def _dead_end(allowed: NDArray[np.bool_] | None, raw: Logits, chain: Chain, step: int) -> str:
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


def _bans(raw: Logits, biased: Logits, chain: Chain, context: FilterContext) -> list[tuple[str, NDArray[np.bool_]]]:
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


def _removed_by(
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
