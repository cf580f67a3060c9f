"""Resolve the config fields that depend on the vocabulary: texts become token ids, and bans become boolean masks.

This module knows neither constraints nor steps; the chain applies the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from espalier.errors import SamplingError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.samplers.context import NO_BREAKERS, Breakers
from espalier.sampling.samplers.dry import resolve_breakers
from espalier.tokens import mask as masks
from espalier.tokens.mask import LARGEST, Logits, Mask
from espalier.tokens.vocab import Vocab


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FittedConfig:
    """A config resolved for one vocabulary; immutable and shared by forks.

    ids, biases: `(n,) intp` and `(n,) float32`, the finite part of `logit_bias`. bans: (field, `(V,) bool` with True
    for banned tokens), in order of blame. permitted: `(W,) int32`, the tokens that no field bans; None if no field bans
    any. ends: the ids that `min_tokens` holds back. breakers: DRY's breakers as tokens. begins: `(m,) bool`, whether an
    id begins a breaker; the last entry stands for all larger ids.
    """

    ids: NDArray[np.intp]
    biases: NDArray[np.float32]
    bans: tuple[tuple[str, NDArray[np.bool_]], ...] = ()
    ends: tuple[int, ...] = ()
    breakers: Breakers = field(default_factory=dict)
    permitted: Mask | None = field(init=False)
    begins: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        banned = [banned for _, banned in self.bans]
        permitted = masks.from_bool(~np.logical_or.reduce(banned)) if banned else None
        begins = np.zeros(max(self.breakers, default=-1) + 2, dtype=np.bool_)
        begins[list(self.breakers)] = True
        object.__setattr__(self, "permitted", permitted)
        object.__setattr__(self, "begins", begins)

    def apply(self, logits: Logits) -> Logits:
        """Add the biases and remove the banned tokens, `(V,) float32`; returns the argument itself if there is nothing
        to do. A bias bans nothing: results are clipped to float32's range."""
        if not self.bans:
            return self.add(logits)
        out = self.add(logits) if self.ids.size else logits.copy()
        for _, banned in self.bans:
            out[banned] = -np.inf
        return out

    def add(self, logits: Logits) -> Logits:
        """Add the biases only: banned tokens keep their logits."""
        if not self.ids.size:
            return logits
        out = logits.copy()
        out[self.ids] = biased(logits[self.ids], self.biases)
        return out


def biased(logits: NDArray[np.float32], biases: NDArray[np.float32]) -> NDArray[np.float64]:
    """`(n,) float32` logits plus `(n,) float32` biases, as `(n,) float64` within float32's range; -inf stays -inf."""
    old = logits.astype(np.float64)  # (n,) float64
    return np.where(old > -np.inf, np.clip(old + biases, -LARGEST, LARGEST), -np.inf)


NOTHING_FITTED = FittedConfig(ids=np.empty(0, dtype=np.intp), biases=np.empty(0, dtype=np.float32))


def needs_fit(config: SamplingConfig) -> bool:
    """Whether any field of the config needs a vocabulary."""
    return bool(config.logit_bias or config.allowed_ids is not None or config.min_tokens or "dry" in config.active)


def fit(config: SamplingConfig, vocab: Vocab, encode: Callable[[str], Sequence[int]]) -> FittedConfig:
    """encode: text to ids without special tokens added. Raises SamplingError for an id outside V, and for a text of
    `logit_bias` that has no tokens."""
    if not needs_fit(config):
        return NOTHING_FITTED
    added: dict[int, float] = {}
    for key, value in config.logit_bias:
        for token in [key] if isinstance(key, int) else _tokens(key, encode):
            _check(token, vocab.width, "logit_bias")
            # Clip each one first: two finite biases must not add up to a ban.
            most = value if value == -math.inf else min(max(value, -LARGEST), LARGEST)
            added[token] = added.get(token, 0.0) + most
    bans: list[tuple[str, NDArray[np.bool_]]] = []
    if config.allowed_ids is not None:
        for token in config.allowed_ids:
            _check(token, vocab.width, "allowed_ids")
        banned = np.ones(vocab.width, dtype=np.bool_)  # (V,)
        banned[list(config.allowed_ids)] = False
        bans.append(("allowed_ids", banned))
    if -math.inf in added.values():
        banned = np.zeros(vocab.width, dtype=np.bool_)  # (V,)
        banned[[token for token, value in added.items() if value == -math.inf]] = True
        bans.append(("logit_bias", banned))
    finite = {token: value for token, value in added.items() if value != -math.inf}
    return FittedConfig(
        ids=np.array(list(finite), dtype=np.intp),
        biases=np.clip(np.array(list(finite.values()), dtype=np.float64), -LARGEST, LARGEST).astype(np.float32),
        bans=tuple(bans),
        ends=tuple(dict.fromkeys((*vocab.eos_ids, *config.stop_ids))) if config.min_tokens else (),
        breakers=resolve_breakers(config.dry_breakers, vocab) if "dry" in config.active else NO_BREAKERS,
    )


def check_ends(fitted: FittedConfig, vocab: Vocab) -> None:
    """Check that a constrained text can end. Raises SamplingError naming the field whose bans leave no EOS token."""
    left = list(vocab.eos_ids)
    for name, banned in fitted.bans:
        left = [token for token in left if not banned[token]]
        if not left:
            ids = ", ".join(str(token) for token in vocab.eos_ids)
            raise SamplingError(
                f"{name}: it bans every token that ends a text ({ids}), and a constraint needs one",
                hint="allow one of them" if name == "allowed_ids" else "take the ban off one of them",
                field=name,
            )


def _tokens(text: str, encode: Callable[[str], Sequence[int]]) -> list[int]:
    ids = list(dict.fromkeys(int(token) for token in encode(text)))
    if not ids:
        raise SamplingError(f"logit_bias: {text!r} has no tokens in this vocabulary", field="logit_bias")
    return ids


def _check(token: int, width: int, field: str) -> None:
    if not 0 <= token < width:
        raise SamplingError(f"{field}: token id {token} is outside 0..{width - 1}", field=field)
