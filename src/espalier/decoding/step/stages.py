"""Makes the candidate lists of a step (before the mask, after it, after the chain), and shares out removed mass.

It knows neither how a token is drawn nor what a matcher is: it gets logits, an allowed set and a drawn distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from espalier.automata.reasons.blame import Blame
from espalier.decoding.step.allowed import NEG_INF
from espalier.errors import BadLogits
from espalier.sampling.draw import DrawnToken
from espalier.sampling.fast.candidates import kernels, leaders
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.candidates import CandidateList, CandidateRows, spelling_of
from espalier.trace.measure import Measures, plain, removed_by
from espalier.trace.records import Candidate

CONSTRAINT, PADDING = "constraint", "padding"
"""Names in `removed_by`: of a constraint without members, and of ids past the tokenizer's last."""
SHORT = 8192
"""A row of at most so many logits is scanned once from end to end; in a longer one, likely candidates are found first.
"""
FEW = 64
"""At most so many best tokens are kept in order while a row is scanned."""
NEAR = 4  # the k best allowed tokens are first sought among the NEAR * k best of all
NO_FLAGS = np.empty(0, dtype=np.bool_)  # (0,)


def favourite_of(raw: Logits, step: int) -> int:
    """The most probable token of `(V,) float32`; of equal ones, the lowest id. Raises BadLogits for NaN, +inf, or no
    finite logit."""
    favourite = int(raw.argmax())  # NaN, if there is one
    top = float(raw[favourite])
    if not math.isfinite(top):
        what = "NaN" if math.isnan(top) else "an infinite logit" if top > 0 else "no finite logit"
        raise BadLogits(f"the model gave {what} at step {step}")
    return favourite


def shares(
    raw: Logits,
    allowed: NDArray[np.bool_],
    constrained: NDArray[np.bool_] | None,
    members: Sequence[tuple[str, Mask]],
    bans: Sequence[tuple[str, NDArray[np.bool_]]],
    *,
    name: str,
) -> tuple[tuple[str, float], ...]:
    """The probability mass that each member or ban is the first to refuse: `removed_by` of a StepRecord. constrained:
    the tokens that a constraint without members, or the end of the vocabulary, allows; `name` is its name."""
    width = raw.shape[0]
    refusers = [(member, masks.unpack(bits, width)) for member, bits in members]
    if not members and constrained is not None:
        refusers.append((name, constrained))
    return removed_by(raw, allowed, [*refusers, *((who, ~banned) for who, banned in bans)], sure=len(refusers))


def banned_by(token: int, bans: Sequence[tuple[str, NDArray[np.bool_]]], min_tokens: int = 0) -> Blame | None:
    """The first ban of a token as a Blame; None where none bans it."""
    for name, banned in bans:
        if banned[token]:
            is_early = name == "min_tokens"
            reason = f"{min_tokens} tokens are to come before the end" if is_early else f"{name} bans this token"
            return Blame(member=name, reason=reason)
    return None


class Stages:
    """Builds the candidate lists of one step. Each holds the top k tokens and the `kept` ones: the taken token, and the
    rejected one. The lists are made on first access: for a short row from a copy of it; for a longer row, whose copy
    would take more memory than the lists, from the positions of the best tokens."""

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
        self._is_mine = False  # whether the rows are copies

    def candidate(self, token: int, prob: float, logit: float) -> Candidate:
        allowed = self._allowed is None or bool(self._allowed[token])
        return candidate_of(self._vocab, token, prob, logit, allowed=allowed)

    def wanted(self) -> Sequence[Candidate]:
        return self._listed(None)

    def allowed(self) -> Sequence[Candidate]:
        return self._listed(self._allowed)

    def sampled(self, drawn: DrawnToken) -> Sequence[Candidate]:
        """The distribution that was drawn from. A kept token that it does not hold is left out."""
        if drawn.ids.size <= FEW and self._is_short():
            ids, probs, logits = drawn.ids.copy(), drawn.probs.copy(), drawn.logits.copy()  # (n,) each
            return CandidateList(
                spelling_of(self._vocab), partial(_at_once, partial(self._list_drawn, ids, probs, logits))
            )
        return CandidateList(spelling_of(self._vocab), self._list_drawn(drawn.ids, drawn.probs, drawn.logits))

    def _listed(self, allowed: NDArray[np.bool_] | None) -> Sequence[Candidate]:
        """allowed: None for the list before the mask."""
        if self._is_short():
            own = None if allowed is None else self._allowed  # the copy
            return CandidateList(spelling_of(self._vocab), partial(_at_once, partial(self._list_top, own)))
        return CandidateList(spelling_of(self._vocab), self._list_top(allowed))

    def _is_short(self) -> bool:
        """Whether the row is short enough to be copied; if so, copies the rows."""
        if not self._is_mine and self._raw.shape[0] <= SHORT:
            self._raw, self._is_mine = self._raw.copy(), True
            self._allowed = None if self._allowed is None else self._allowed.copy()
        return self._is_mine

    def _list_top(self, allowed: NDArray[np.bool_] | None) -> Callable[[], CandidateRows]:
        """allowed: None for the list before the mask. The returned function does not refer to the rows."""
        log_sum = self._numbers.log_total if allowed is None else self._numbers.log_allowed
        ids = top(self._raw, self._k, allowed)
        listed = set(ids.tolist())
        more = [t for t in dict.fromkeys(self._kept) if t not in listed and (allowed is None or allowed[t])]
        if more:
            ids = np.append(ids, more)
        flags = None if self._allowed is None else self._allowed[ids]
        return partial(_weigh_logits, ids, self._raw[ids], log_sum, flags)

    def _list_drawn(
        self, ids: NDArray[np.intp], probs: NDArray[np.float64], logits: NDArray[np.float32]
    ) -> Callable[[], CandidateRows]:
        """ids: ascending."""
        order = top(probs, self._k).tolist()
        positions = ((int(np.searchsorted(ids, token)), token) for token in dict.fromkeys(self._kept))
        order += [at for at, token in positions if at not in order and at < ids.size and ids[at] == token]
        flags = None if self._allowed is None else self._allowed[ids[order]]
        return partial(_rows, ids[order], probs[order], logits[order], flags)


def candidate_of(vocab: Vocab, token: int, prob: float, logit: float, *, allowed: bool) -> Candidate:
    """A token with its text."""
    return Candidate(
        id=token,
        text=vocab.text_of(token),
        bytes=vocab.bytes_of(token),
        prob=prob,
        logit=logit if math.isfinite(logit) else None,
        allowed=allowed,
    )


def _at_once(find: Callable[[], Callable[[], CandidateRows]]) -> CandidateRows:
    """The rows of what `find` returns."""
    return find()()


def _weigh_logits(
    ids: NDArray[np.intp], logits: NDArray[np.float32], log_sum: float, allowed: NDArray[np.bool_] | None
) -> CandidateRows:
    """Candidates with the probabilities of their logits."""
    values = logits.tolist()
    return _in_lists(ids, [math.exp(logit - log_sum) for logit in values], values, allowed)


def _rows(
    ids: NDArray[np.intp], probs: NDArray[np.float64], logits: NDArray[np.float32], allowed: NDArray[np.bool_] | None
) -> CandidateRows:
    """`(n,)` each; allowed: None for all of them."""
    return _in_lists(ids, probs.tolist(), logits.tolist(), allowed)


def _in_lists(
    ids: NDArray[np.intp], probs: list[float], logits: list[float], allowed: NDArray[np.bool_] | None
) -> CandidateRows:
    shown = [logit if math.isfinite(logit) else None for logit in logits]
    return CandidateRows(ids.tolist(), probs, shown, None if allowed is None else allowed.tolist())


def top(values: NDArray[np.floating], k: int, allowed: NDArray[np.bool_] | None = None) -> NDArray[np.intp]:
    """The positions of the k largest values of `(n,)`, largest first, ties by position; fewer where the rest is -inf or
    not allowed. allowed: `(n,) bool`. Never sorts the whole row."""
    if k <= 0:
        return np.empty(0, dtype=np.intp)
    if values.shape[0] <= SHORT and k <= FEW:
        places = np.empty(min(k, values.shape[0]), dtype=np.intp)
        flags = NO_FLAGS if allowed is None else plain(allowed)
        return places[: kernels("places").best(plain(values), flags, allowed is not None, places)]
    if allowed is None:
        near = leaders(values, k)  # may hold more than k, where the edge is tied
    else:
        # The best allowed tokens are mostly among the best of all; only where they are not, all allowed ones are
        # scanned.
        near = leaders(values, NEAR * k)
        near = near[allowed[near]]
        if near.size < k:
            near = np.flatnonzero(allowed)
            near = near[leaders(values[near], k)]
    near = near[np.argsort(-values[near], kind="stable")][:k]
    return near[values[near] > NEG_INF]
