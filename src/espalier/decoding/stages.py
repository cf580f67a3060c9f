"""The stages of one step as values: candidate lists, and who removed what. Shared by all who write a StepRecord.

It knows neither how a token is drawn nor what a matcher is: it is given logits, an allowed set and what was drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.automata.blame import Blame
from espalier.errors import BadLogits
from espalier.sampling.candidates import leaders
from espalier.sampling.fast import Choice
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import Measures, removed_by
from espalier.trace.records import Candidate

NEG_INF = np.float32(-np.inf)
CONSTRAINT, PADDING = "constraint", "padding"
"""Who removed what a constraint without members, or the end of the vocabulary, forbids."""
NEAR = 4  # how many times k of the best of all are looked at for the k best allowed


def favourite_of(raw: Logits, step: int) -> int:
    """The most probable token of `(V,) float32`, of equals the lowest id. Raises BadLogits for NaN, +inf, or nothing
    finite."""
    favourite = int(np.argmax(raw))  # NaN, if there is one
    top = float(raw[favourite])
    if not math.isfinite(top):
        what = "NaN" if math.isnan(top) else "an infinite logit" if top > 0 else "no finite logit"
        raise BadLogits(f"the model gave {what} at step {step}")
    return favourite


def permitted(mask: Mask | None, vocab: Vocab, width: int) -> NDArray[np.bool_] | None:
    """`(V,) bool`. The padding rule for a row without a constraint: ids past the tokenizer's last are forbidden all the
    same."""
    if mask is not None:
        return masks.unpack(mask, width)
    return vocab.real_ids if vocab.has_padding else None


def shares(
    raw: Logits,
    allowed: NDArray[np.bool_],
    constrained: NDArray[np.bool_] | None,
    members: Sequence[tuple[str, Mask]],
    bans: Sequence[tuple[str, NDArray[np.bool_]]],
    *,
    name: str,
) -> tuple[tuple[str, float], ...]:
    """The mass that each is the first to refuse: `removed_by` of a StepRecord. constrained: what the constraint, or the
    end of the vocabulary, allows, and `name` is what it is called where it has no members."""
    width = raw.shape[0]
    asked = [(member, masks.unpack(bits, width)) for member, bits in members]
    if not members and constrained is not None:
        asked.append((name, constrained))
    return removed_by(raw, allowed, [*asked, *((who, ~banned) for who, banned in bans)], sure=len(asked))


def banned_by(token: int, bans: Sequence[tuple[str, NDArray[np.bool_]]], min_tokens: int = 0) -> Blame | None:
    """The first who bans a token; None where none does."""
    for name, banned in bans:
        if banned[token]:
            is_early = name == "min_tokens"
            reason = f"{min_tokens} tokens are to come before the end" if is_early else f"{name} bans this token"
            return Blame(member=name, reason=reason)
    return None


class Stages:
    """Builds the candidate lists of one step; each holds the top k and always the `kept` tokens: what was chosen, and
    what was rejected."""

    def __init__(
        self,
        raw: Logits,
        allowed: NDArray[np.bool_] | None,
        numbers: Measures,
        vocab: Vocab,
        kept: tuple[int, ...],
        top_k: int,
    ) -> None:
        self._raw, self._allowed, self._numbers = raw, allowed, numbers
        self._vocab, self._kept, self._k = vocab, kept, top_k

    def candidate(self, token: int, prob: float, logit: float) -> Candidate:
        return Candidate(
            id=token,
            text=self._vocab.text_of(token),
            bytes=self._vocab.bytes_of(token),
            prob=prob,
            logit=logit if math.isfinite(logit) else None,
            allowed=self._allowed is None or bool(self._allowed[token]),
        )

    def wanted(self) -> tuple[Candidate, ...]:
        return self._list(self._raw, self._numbers.log_total, self._kept)

    def allowed(self) -> tuple[Candidate, ...]:
        if self._allowed is None:
            return self.wanted()
        kept = tuple(token for token in self._kept if self._allowed[token])
        # Mostly the best allowed tokens are among the best of all; only else is the masked row looked through.
        near = [int(i) for i in _top(self._raw, NEAR * self._k) if self._allowed[i]][: self._k]
        if len(near) < self._k:
            return self._list(np.where(self._allowed, self._raw, NEG_INF), self._numbers.log_allowed, kept)
        return self._candidates(near, self._raw, self._numbers.log_allowed, kept)

    def sampled(self, drawn: Choice) -> tuple[Candidate, ...]:
        """What was drawn from; a kept token that it does not hold any more is left out."""
        order = _top(drawn.probs, self._k)
        more = [int(i) for kept in self._kept for i in np.flatnonzero(drawn.ids == kept) if i not in order]
        places = [*map(int, order), *more]
        return tuple(self.candidate(int(drawn.ids[i]), float(drawn.probs[i]), float(drawn.logits[i])) for i in places)

    def _list(self, logits: Logits, log_sum: float, kept: tuple[int, ...]) -> tuple[Candidate, ...]:
        ids = [int(i) for i in _top(logits, self._k) if logits[i] > NEG_INF]
        return self._candidates(ids, logits, log_sum, kept)

    def _candidates(
        self, ids: list[int], logits: Logits, log_sum: float, kept: tuple[int, ...]
    ) -> tuple[Candidate, ...]:
        ids += [token for token in dict.fromkeys(kept) if token not in ids]
        return tuple(self.candidate(i, math.exp(float(logits[i]) - log_sum), float(self._raw[i])) for i in ids)


def _top(values: NDArray[np.floating], k: int) -> NDArray[np.intp]:
    """The places of the k largest, largest first, ties by place. Never a full sort of V."""
    if k <= 0:
        return np.empty(0, dtype=np.intp)
    places = leaders(values, k)  # may hold more than k, where the edge is tied
    return places[np.argsort(-values[places], kind="stable")][:k]
