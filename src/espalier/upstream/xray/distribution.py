"""The distribution of one token as a server reports it: the best tokens, best first, and what is left."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.errors import UpstreamError


class Level(NamedTuple):
    """value: ln of the sum of exp(logit) over all tokens, so that a logit is its logprob and this. off: how far it may
    be from that."""

    value: float
    off: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTokens:
    """ids: `(n,) int64`, in the server's order, best first. logprobs: `(n,) float32`, ln of the model's probabilities.
    width: V. chosen: the token that was taken, if the entry names it, and its logprob, which may be beyond the n.
    is_again: whether the server was asked again, in another forward pass than the one that it drew from. level: None if
    unknown."""

    ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    width: int
    chosen: int | None = None
    chosen_logprob: float | None = None
    is_again: bool = False
    level: Level | None = None

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


@dataclass(frozen=True, slots=True, eq=False)
class ReplyEntry:
    """One entry of a reply without its texts, as it is held until the reply is followed: the numbers of V tokens as
    JSON objects take a hundred times the memory. ids, logprobs, chosen, chosen_logprob: as in ReportedTokens; empty
    with the fault of an entry that cannot be read. sent: the bytes that the token has sent, those of tokens before it
    that were held back included; None if it does not tell."""

    ids: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    chosen: int | None
    chosen_logprob: float | None
    fault: str = ""
    sent: bytes | None = None


def entry_of(data: Any) -> ReplyEntry:
    """One entry of `completion_probabilities` or `logprobs.content`, in its parsed JSON."""
    chosen = None
    try:
        chosen, own, top = data.get("id"), data.get("logprob"), data["top_logprobs"]
        chosen_logprob = float(own) if isinstance(own, int | float) else None
        ids = np.array([entry["id"] for entry in top], dtype=np.int64)
        listed = [entry["logprob"] for entry in top]
        # JSON has no infinities: the server writes null.
        with np.errstate(over="raise"):
            logprobs = np.array([-math.inf if logprob is None else logprob for logprob in listed], dtype=np.float32)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        none = np.zeros(0, dtype=np.int64)
        return ReplyEntry(none, none.astype(np.float32), chosen if isinstance(chosen, int) else None, None, repr(error))
    return ReplyEntry(
        ids, logprobs, chosen if isinstance(chosen, int) else None, chosen_logprob, sent=_read_bytes(data.get("bytes"))
    )


def _read_bytes(data: Any) -> bytes | None:
    try:
        return bytes(data) if isinstance(data, list) else None
    except (TypeError, ValueError):
        return None


def read_entry(entry: ReplyEntry, width: int) -> ReportedTokens:
    """Raises UpstreamError for an entry that could not be read, or that is of another vocabulary."""
    if entry.fault:
        raise UpstreamError(f"the probabilities of the reply cannot be read: {entry.fault}")
    ids = entry.ids
    if not ids.size or ids.min() < 0 or ids.max() >= width:
        raise UpstreamError(f"the reply names a token outside 0..{width - 1}, or none")
    return ReportedTokens(
        ids=ids, logprobs=entry.logprobs, width=width, chosen=entry.chosen, chosen_logprob=entry.chosen_logprob
    )


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
