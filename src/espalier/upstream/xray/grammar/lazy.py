"""Lazy grammars, such as those of tools that a model may call: nothing is refused until a trigger, as in llama.cpp.

It knows no stacks: it says which bytes the grammar begins with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from espalier.errors import UpstreamError

_TAG = rb"(?:think|thought|reason|analysis|inner_prefix)"
_BEGINS = re.compile(rb"(?i)(?:<|\[|\|>)(?!/)(?!\|?end)[^\s<\[]{0,24}" + _TAG)
_ENDS = re.compile(rb"(?i)(?:</|\[/|<\|end)[^\s<\[]{0,24}" + _TAG)


def thinks(text: bytes) -> bool:
    """Whether a model may be thinking after this text, in which the server suspends a lazy grammar. Which tags are
    those of the template it does not tell, so that all that look like one count."""
    begins = [match.start() for match in _BEGINS.finditer(text)]
    ends = [match.start() for match in _ENDS.finditer(text)]
    return bool(begins) and max(begins) > max(ends, default=-1)


class TriggerKind(IntEnum):
    """llama-server's numbers for triggers."""

    TOKEN = 0
    WORD = 1
    PATTERN = 2
    PATTERN_FULL = 3


@dataclass(frozen=True, slots=True)
class Triggers:
    """tokens: ids that trigger by themselves. patterns: over the bytes of the text so far."""

    tokens: frozenset[int]
    patterns: tuple[re.Pattern[bytes], ...]

    @staticmethod
    def of(data: Sequence[Mapping[str, Any]]) -> Triggers:
        """Of `grammar_triggers`. Raises UpstreamError for those that cannot be followed."""
        tokens, patterns = set(), []
        try:
            for trigger in data:
                kind, value = TriggerKind(trigger["type"]), str(trigger["value"])
                if kind is TriggerKind.TOKEN:
                    tokens.add(int(trigger["token"]))
                    continue
                if kind is TriggerKind.WORD:
                    value = re.escape(value)
                if kind is TriggerKind.PATTERN_FULL:
                    value = ("" if value.startswith("^") else "^") + value + ("" if value.endswith("$") else "$")
                patterns.append(re.compile(value.encode("utf-8")))
        except (KeyError, TypeError, ValueError, re.error) as error:
            raise UpstreamError(f"a trigger of the lazy grammar cannot be followed: {error!r}") from error
        if not tokens and not patterns:
            raise UpstreamError("the grammar is lazy, and the reply does not tell its triggers")
        return Triggers(frozenset(tokens), tuple(patterns))


class TriggerWatch:
    """The triggers of one request, until one is met."""

    def __init__(self, triggers: Triggers) -> None:
        self._triggers = triggers
        self._text = b""
        self._places: list[tuple[int, int]] = []  # of each token: id, and where it begins

    def after(self, token: int, piece: bytes) -> list[tuple[int, bytes]] | None:
        """Take one more token. Returns what the grammar then begins with, None while no trigger is met: each token with
        the part of it that counts."""
        if token in self._triggers.tokens:
            return [(token, piece)]
        self._places.append((token, len(self._text)))
        self._text += piece
        for pattern in self._triggers.patterns:
            if (match := pattern.search(self._text)) is None:
                continue
            groups = range(1, pattern.groups + 1)
            start = next((match.start(group) for group in groups if match.group(group)), match.start())
            ends = [begin for _, begin in self._places[1:]] + [len(self._text)]
            return [
                (begin_place, self._text[max(begin, start) : end])
                for (begin_place, begin), end in zip(self._places, ends, strict=True)
                if end > start
            ]
        return None
