"""`SafetyPattern`: one built-in pattern of the safety filter, and the contexts that many of them share. It knows no
category."""

from __future__ import annotations

from dataclasses import dataclass

START = r"(?:^|[^\w-])"
"""At the start of a word, not after a hyphen."""
COMMAND = r"(?:^|[^\w.-])"
"""At the start of a command name, also as the last part of a path."""
END = r"(?:[^\w-]|\Z)"
"""Where a word has ended."""
NO_DIGIT = r"(?:[^0-9]|\Z)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyPattern:
    """One built-in pattern: three regular expressions, see `catalogue.py`. about: what it catches, for people. source:
    who publishes that shape. is_option: off unless it is included by name. detector: `regex`, or `card` for
    `cards.py`. part: patterns of one part are read by one automaton; the category unless it is given."""

    name: str
    category: str
    itself: str
    about: str
    before: str = START
    after: str = ""
    source: str = ""
    is_option: bool = False
    detector: str = "regex"
    part: str = ""

    @property
    def full_name(self) -> str:
        return f"{self.category}/{self.name}"
