"""Texts of a model as people may be shown them: control and format characters as their numbers."""

from __future__ import annotations

import unicodedata

_HIDDEN = ("Cc", "Cf", "Cs")


def visible(text: str, *, keep: str = "") -> str:
    """The text with each hidden character as `\\uXXXX`. keep: characters to leave as they are."""
    return "".join(c if c in keep or unicodedata.category(c) not in _HIDDEN else f"\\u{ord(c):04x}" for c in text)
