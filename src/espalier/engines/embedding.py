"""From the hidden states of a text to one vector: what an engine gives for it, pooling and normalising.

It knows no model and no route. The numbers are llama-server's (`common_embd_normalize`), so both engines share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from espalier.errors import NotHere

Pooling: TypeAlias = Literal["mean", "last", "cls"]
Vectors: TypeAlias = NDArray[np.float32]
L2 = 2
"""The norm of OpenAI's embeddings, and llama-server's default."""
INT16 = 32760.0
"""What the largest value becomes with norm 0, as in llama.cpp."""


class HiddenReader(Protocol):
    """Reads the hidden states of texts, beside whatever the model generates. From any thread; one text at a time."""

    @property
    def size(self) -> int:
        """Values of one vector."""
        ...

    @property
    def pooling(self) -> Pooling | None:
        """How the model says that its states become one vector; None if it says nothing."""
        ...

    @property
    def prefixes(self) -> Sequence[int]:
        """Lengths to which the model says that its vectors may be cut (matryoshka); empty if it says nothing."""
        ...

    def read(self, tokens: Sequence[int]) -> Vectors:
        """The states of the last layer after its norm, `(T, size) float32`. Raises PromptTooLong, LimitExceeded."""
        ...


@runtime_checkable
class GivesHidden(Protocol):
    """An engine that can read hidden states."""

    @property
    def hidden(self) -> HiddenReader | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HowToPool:
    """pooling: None leaves the states as they are, a vector a token. norm: of the vector, as `normalised` takes it.
    length: the first so many values alone; None is all."""

    pooling: Pooling | None
    norm: int = L2
    length: int | None = None


def reader_of(engine: object, name: str) -> HiddenReader:
    """What reads an engine's hidden states. Raises NotHere for an engine that gives none."""
    reader = engine.hidden if isinstance(engine, GivesHidden) else None
    if reader is None:
        raise NotHere(f"{name} gives no embeddings", hint="models of transformers and GGUF files do", field="model")
    return reader


def embedding(states: Vectors, how: HowToPool) -> Vectors:
    """`(size,)` of a text's `(T, size)` states, cut and normalised; without a pooling `(T, size)`, neither, as in
    llama-server."""
    if how.pooling is None:
        return states
    vector = pooled(states, how.pooling)
    return normalised(vector if how.length is None else vector[: how.length], how.norm)


def pooled(states: Vectors, pooling: Pooling) -> Vectors:
    """`(T, size) -> (size,)`: the mean of all tokens, the last token, or the first (cls)."""
    if pooling == "mean":
        return np.asarray(states.mean(axis=0, dtype=np.float64), dtype=np.float32)
    return np.array(states[0 if pooling == "cls" else -1], dtype=np.float32)


def normalised(vector: Vectors, norm: int) -> Vectors:
    """norm: -1 none, 0 the largest value becomes 32760, 2 Euclidean, any other p the p-norm. A zero vector stays."""
    values = vector.astype(np.float64)
    if norm < 0:
        return vector
    if norm == 0:
        size = float(np.abs(values).max(initial=0.0)) / INT16
    elif norm == L2:
        size = float(np.sqrt((values * values).sum()))
    else:
        size = float((np.abs(values) ** norm).sum() ** (1.0 / norm))
    return (values / size).astype(np.float32) if size > 0 and np.isfinite(size) else np.zeros_like(vector)
