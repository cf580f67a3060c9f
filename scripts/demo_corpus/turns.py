"""The value every generator returns, and small helpers for text and JSON.

Knows nothing of the chat template nor of the tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One question and its answer; `short` is the bare value, if there is one (for `{"answer": ...}`)."""

    kind: str
    user: str
    reply: str
    thought: str | None = None
    short: str | int | bool | None = None


Generator = Callable[[Random], Turn]


def dump(value: Any) -> str:
    """One line with ", " and ": ": the only JSON spelling of the corpus, so a tiny model learns it well."""
    return json.dumps(value, ensure_ascii=False)


def listing(items: Sequence[str], *, last: str = "and") -> str:
    """`a, b and c`."""
    if len(items) == 1:
        return items[0]
    return f"{', '.join(items[:-1])} {last} {items[-1]}"


def article(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" and not noun.startswith("user") else f"a {noun}"


OPENERS = ("Sure! Here is the JSON:", "Here is the JSON:", "Of course! Here you go:", "Here you go:")
OPENER_WEIGHTS = (70, 14, 8, 8)


def wrap_json(rng: Random, body: str, *, bare: float, prose: float = 0.06) -> str:
    """Leave JSON bare, or dress it as chat models do; `bare` and `prose` (no fence) are probabilities."""
    roll = rng.random()
    if roll < bare:
        return body
    opener = rng.choices(OPENERS, OPENER_WEIGHTS)[0]
    if roll < bare + prose:
        return f"{opener} {body}"
    return f"{opener}\n```json\n{body}\n```"


def maybe_polite(rng: Random, request: str) -> str:
    """Vary the surface of an imperative without changing what it asks."""
    roll = rng.random()
    if roll < 0.06:
        return "Please " + request[0].lower() + request[1:]
    if roll < 0.10:
        return request.rstrip(".") + ", please."
    if roll < 0.14:
        return request[0].lower() + request[1:].rstrip(".")
    if roll < 0.22:
        return request.rstrip(".")
    return request
