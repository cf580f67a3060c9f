"""The distribution of one token as a server reports it: the best tokens, best first, and what is left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.errors import UpstreamError


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """ids: `(n,) int64`, in the server's order, best first. logprobs: `(n,) float32`, ln of the model's probabilities.
    width: V. chosen: the token that was taken, if the entry names it, and its logprob, which may be beyond the n.
    is_again: whether the server was
    asked again, in another forward pass than the one that it drew from."""

    ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    width: int
    chosen: int | None = None
    chosen_logprob: float | None = None
    is_again: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether every token is listed."""
        return int(self.ids.shape[0]) >= self.width

    @property
    def mass(self) -> float:
        """What the listed tokens have together."""
        return min(1.0, math.fsum(np.exp(self.logprobs.astype(np.float64)).tolist()))

    def row(self) -> NDArray[np.float32]:
        """`(V,) float32` logits, -inf for what is not listed."""
        row = np.full(self.width, -np.inf, dtype=np.float32)
        row[self.ids] = self.logprobs
        return row


def read_entry(data: Any, width: int) -> Reported:
    """One entry of `completion_probabilities` or `logprobs.content`. Raises UpstreamError."""
    try:
        top = data["top_logprobs"]
        ids = np.fromiter((one["id"] for one in top), dtype=np.int64, count=len(top))
        logprobs = np.fromiter((_number(one["logprob"]) for one in top), dtype=np.float32, count=len(top))
        chosen, own = data.get("id"), data.get("logprob")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UpstreamError(f"the probabilities of the reply cannot be read: {error!r}") from error
    if not ids.size or ids.min() < 0 or ids.max() >= width:
        raise UpstreamError(f"the reply names a token outside 0..{width - 1}, or none")
    return Reported(
        ids=ids, logprobs=logprobs, width=width, chosen=chosen if isinstance(chosen, int) else None,
        chosen_logprob=float(own) if isinstance(own, int | float) else None,
    )  # fmt: skip


def _number(value: Any) -> float:
    return -math.inf if value is None else float(value)


def entries_of(data: Mapping[str, Any]) -> list[Any]:
    """The entries in a reply or a chunk of any of the server's shapes, in order."""
    for where in (data.get("completion_probabilities"), _content(data)):
        if isinstance(where, list):
            return where
    return []


def _content(data: Mapping[str, Any]) -> Any:
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        return None
    logprobs = choices[0].get("logprobs")
    return logprobs.get("content") if isinstance(logprobs, Mapping) else None
