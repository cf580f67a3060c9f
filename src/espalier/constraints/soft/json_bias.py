"""The `SoftJson` logit filter: adds a logit bias to the tokens that JSON needs next.

The table `_RULES` says which first bytes are boosted in which position. All biases are finite, so nothing is forbidden.
It knows no model and no mask; `grammar/json_position.py` follows the position in the JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.cache import ByteCache
from espalier.constraints.compiler import Compiler
from espalier.constraints.soft.spec import SoftJson
from espalier.grammar.json_position import (
    CLOSERS,
    COLON,
    COMMA,
    LITERALS,
    NUMBER_STARTS,
    QUOTE,
    SPACE,
    JsonPosition,
    JsonState,
)
from espalier.sampling.filters import FilterContext, Priority
from espalier.tokens.mask import Logits
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

CACHE_BYTES = 16 * 2**20
"""The memory for the cached biases of one vocabulary."""
_OPENERS = bytes(CLOSERS)
_VALUES = bytes((QUOTE, *_OPENERS, *LITERALS)) + NUMBER_STARTS
_EMPTY_DEPTH = 1
"""The depth up to which closing an empty container is boosted: only the document itself."""


class Weights(NamedTuple):
    """structural: added to the tokens that are needed. empty: added to the closer of an empty document. done:
    subtracted from all tokens but EOS after the document."""

    structural: float
    empty: float
    done: float


class Bias(NamedTuple):
    """A logit bias: `amounts`, `(n,) float32`, for the token ids `where`, `(n,) intp`, or for all ids if it is a
    slice."""

    where: NDArray[np.intp] | slice
    amounts: NDArray[np.float32]


def json_filter(spec: SoftJson, compiler: Compiler) -> JsonFilter:
    """The filter of one sequence. The biases of a vocabulary are shared between sequences."""
    weights = Weights(spec.structural_bias, spec.empty_bias, spec.done_penalty)
    return JsonFilter(compiler.part(JsonBiases), weights)


class JsonFilter:
    """A `LogitFilter` that boosts the tokens that may come next in a JSON text, and EOS after it."""

    priority = Priority.HIGH

    def __init__(self, biases: JsonBiases, weights: Weights, name: str = "json_mode") -> None:
        self.name = name
        self._biases = biases
        self._weights = weights
        self._places: list[JsonPosition] = [JsonPosition()]  # before each token, and now

    @property
    def tracker(self) -> JsonPosition:
        """The current position in the JSON text."""
        return self._places[-1]

    def apply(self, logits: Logits, context: FilterContext) -> Logits:
        """Logits `(V,) float32` in and out; returns the argument itself if nothing changes."""
        bias = self._biases.at(self.tracker, self._weights)
        if bias is None:
            return logits
        out = logits.copy()  # (V,)
        out[bias.where] += bias.amounts
        return out

    def on_token(self, token: int) -> None:
        self._places.append(self.tracker.feed(self._biases.vocab.bytes_of(token)))

    def rollback(self, count: int) -> None:
        """Raises ValueError for more tokens than there were."""
        if not 0 <= count < len(self._places):
            raise ValueError(f"cannot undo {count} of {len(self._places) - 1} tokens")
        del self._places[len(self._places) - count :]

    def reset(self) -> None:
        """Back to the start of a text."""
        del self._places[1:]

    def fork(self) -> Self:
        other = copy(self)
        other._places = self._places.copy()
        return other


class JsonBiases:
    """The biases of all positions for one vocabulary. The cache is bounded and thread-safe.

    A token is boosted by its first byte after leading whitespace, and only if all its bytes are valid JSON in the
    position.
    """

    def __init__(self, vocab: Vocab, trie: TokenTrie) -> None:
        self.vocab = vocab
        self._tokens = _candidates(vocab.tokens)
        closing = bytes(CLOSERS.values())
        most = max((sum(map(data.count, closing)) for group in self._tokens.values() for _, data in group), default=0)
        # No token closes more than `most` containers, so deeper containers make no difference.
        self._reach = most + 1
        self._found: ByteCache[tuple[JsonState, bytes, Weights], Bias] = ByteCache(CACHE_BYTES)

    def at(self, place: JsonPosition, weights: Weights) -> Bias | None:
        """The bias at a position; None for none."""
        rule = _RULES.get(place.state)
        if rule is None and not place.is_complete:
            return None
        key = (place.state, place.containers(self._reach), weights)
        bias = self._found.get(key)
        if bias is None:
            bias = self._end(place, weights) if rule is None else self._boosts(place, rule(place, weights))
            self._found.put(key, bias, bias.amounts.nbytes * (1 if isinstance(bias.where, slice) else 3))
        return bias

    def _boosts(self, place: JsonPosition, wanted: Mapping[int, float]) -> Bias:
        ids: list[int] = []
        amounts: list[float] = []
        for byte, amount in wanted.items():
            fitting = [i for i, data in self._tokens.get(byte, ()) if place.fits(data) is not None]
            ids += fitting
            amounts += [amount] * len(fitting)
        return Bias(np.asarray(ids, dtype=np.intp), np.asarray(amounts, dtype=np.float32))

    def _end(self, place: JsonPosition, weights: Weights) -> Bias:
        """The bias after a complete document: EOS ids up, and all others down unless the text may continue (a
        number)."""
        ends = np.asarray(self.vocab.eos_ids, dtype=np.intp)
        if place.state is not JsonState.DONE:
            return Bias(ends, np.full(ends.shape, weights.structural, dtype=np.float32))
        amounts = np.where(self.vocab.real_ids, np.float32(-weights.done), np.float32(0.0))  # (V,) float32
        amounts[ends] = weights.structural
        return Bias(slice(None), amounts)


def _candidates(tokens: tuple[bytes, ...]) -> dict[int, list[tuple[int, bytes]]]:
    """The tokens that could be boosted, as (id, bytes), by their first byte that is not whitespace."""
    wanted = frozenset(_VALUES + bytes((COLON, COMMA, *CLOSERS.values())))
    candidates: dict[int, list[tuple[int, bytes]]] = {byte: [] for byte in sorted(wanted)}
    for token, data in enumerate(tokens):
        bare = data.lstrip(SPACE)
        if not bare or bare[0] not in wanted:
            continue
        word = LITERALS.get(bare[0])
        if word is None or word.startswith(bare) or bare.startswith(word):  # others only share a literal's first letter
            candidates[bare[0]].append((token, data))
    return candidates


def _at_start(place: JsonPosition, weights: Weights) -> dict[int, float]:
    return dict.fromkeys(_OPENERS, weights.structural)


def _at_object_start(place: JsonPosition, weights: Weights) -> dict[int, float]:
    return {QUOTE: weights.structural} | _empty(place, weights)


def _at_array_start(place: JsonPosition, weights: Weights) -> dict[int, float]:
    """The first bytes of all values, and the closer of an empty document."""
    return dict.fromkeys(_VALUES, weights.structural) | _empty(place, weights)


def _empty(place: JsonPosition, weights: Weights) -> dict[int, float]:
    return {place.closer: weights.empty} if place.closer is not None and place.depth <= _EMPTY_DEPTH else {}


def _after_key(place: JsonPosition, weights: Weights) -> dict[int, float]:
    return {COLON: weights.structural}


def _after_value(place: JsonPosition, weights: Weights) -> dict[int, float]:
    return dict.fromkeys((COMMA, *([] if place.closer is None else [place.closer])), weights.structural)


def _after_comma(place: JsonPosition, weights: Weights) -> dict[int, float]:
    return dict.fromkeys((QUOTE,) if place.is_in_object else _VALUES, weights.structural)


_RULES: Mapping[JsonState, Callable[[JsonPosition, Weights], dict[int, float]]] = {
    JsonState.START: _at_start,
    JsonState.OBJECT_START: _at_object_start,
    JsonState.ARRAY_START: _at_array_start,
    JsonState.AFTER_KEY: _after_key,
    JsonState.AFTER_VALUE: _after_value,
    JsonState.AFTER_COMMA: _after_comma,
}
"""By position: the bias of each first byte. After a colon any value may come, so nothing is boosted; neither is
anything inside strings, numbers and literals."""
