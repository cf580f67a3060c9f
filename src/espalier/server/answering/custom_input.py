"""`CustomInput`: the text that a custom tool gets, from the JSON text of the arguments, piece by piece.

A custom tool is a function whose one argument is that text: `{"input": "…"}`.
"""

from __future__ import annotations

import json
import re

_BEGIN = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_UNIT = re.compile(r'\\u[0-9a-fA-F]{4}|\\[^u]|[^\\"]+')
_HIGH = re.compile(r"\\u[dD][89abAB]")


class CustomInput:
    """Takes pieces of the arguments and gives pieces of the text. What is not yet decided, such as half an escape, is
    held back."""

    def __init__(self) -> None:
        self._waiting = ""
        self._is_inside = False
        self._is_over = False

    def feed(self, piece: str) -> str:
        """The text that this piece adds."""
        if self._is_over:
            return ""
        self._waiting += piece
        if not self._is_inside:
            begun = _BEGIN.match(self._waiting)
            if begun is None:
                return ""
            self._is_inside, self._waiting = True, self._waiting[begun.end() :]
        place, parts = 0, []
        while (unit := self._unit(place)) is not None:
            parts.append(unit)
            place += len(unit)
        self._is_over = self._waiting[place : place + 1] == '"'
        self._waiting = self._waiting[place:]
        return str(json.loads(f'"{"".join(parts)}"', strict=False)) if parts else ""

    def _unit(self, place: int) -> str | None:
        """The next characters or escape; None if there is none that is whole. A surrogate comes with its other half."""
        match = _UNIT.match(self._waiting, place)
        if match is None:
            return None
        unit = match[0]
        if _HIGH.match(unit):
            other = self._waiting[match.end() : match.end() + 6]
            if len(other) < 6 and "\\u".startswith(other[:2]) and '"' not in other:
                return None
            if other[:2] == "\\u" and _UNIT.match(other):
                return unit + other
        return unit
