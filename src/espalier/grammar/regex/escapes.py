r"""Reads escapes of regular expressions: one character (`\n`, `\x41`) or a set of characters (`\d`, `\p{Lu}`).

It does not know the rest of the syntax: the parser handles anchors and back-references.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NoReturn

from espalier.errors import RegexError, UnsupportedError, excerpt
from espalier.grammar.ranges import MAX_CODE_POINT, Ranges, complement
from espalier.grammar.regex.classes import CATEGORIES, both_cases, category, scalars, shorthand

SURROGATE = re.compile("[\ud800-\udfff]")

_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX = re.compile(r"[0-9A-Fa-f]*")
_OCTAL = re.compile(r"[0-7]{1,3}")
_NAME = re.compile(r"\{([^}]*)\}")
_PROPERTY = re.compile(r"\{(\^?)([^}]*)\}|([A-Za-z])")
_GENERAL = re.compile(r"(?:gc|general_?category)\s*[=:]", re.IGNORECASE)
_HINTS = {
    "G": "it has no meaning for a whole text",
    "K": "the whole text is the match",
    "h": r"write [ \t]",
    "R": r"write (?:\r\n|\n|\r)",
    "X": "there are no grapheme clusters here",
    "c": r"write \xHH",
    "e": r"write \x1B",
    "Q": "escape each character",
}


class Escapes:
    """A pattern, an offset `i` into it, and methods that read the escape there and move on."""

    def __init__(self, pattern: str) -> None:
        self.text = pattern
        self.i = 0

    def fail(self, message: str, offset: int, *, hint: str) -> NoReturn:
        raise RegexError(message, offset=offset, pattern=self.text, hint=hint)

    def refuse(self, what: str, offset: int, *, hint: str) -> NoReturn:
        message = f"{what} cannot be enforced, at offset {offset}: {excerpt(self.text, offset)}"
        raise UnsupportedError(message, hint=hint, field="regex")

    def surrogate(self, value: int, offset: int) -> NoReturn:
        hint = "write the code point as a whole, as \\UHHHHHHHH or as itself"
        self.fail(f"U+{value:04X} is a surrogate, which no text holds", offset, hint=hint)

    def set_escape(self, flags: frozenset[str]) -> Ranges | None:
        """The set of characters that the escape here names; None if it is no set."""
        start, kind = self.i, self.text[self.i + 1 : self.i + 2]
        if kind and kind in "dswDSW":
            self.i += 2
            return shorthand(kind, ascii_only="a" in flags)
        if kind and kind in "pP":
            self.i += 2
            return self.property(start, flags, negated=kind == "P")
        return None

    def property(self, start: int, flags: frozenset[str], *, negated: bool) -> Ranges:
        match = _PROPERTY.match(self.text, self.i)
        if match is None:
            self.fail("a property has a name", start, hint=r"for example \p{Lu} or \pL")
        self.i = match.end()
        name = _GENERAL.sub("", match[2] if match[3] is None else match[3], count=1)
        ranges = category(name)
        if ranges is None:
            hint = f"general categories ({' '.join(CATEGORIES)}), Any, ASCII, Assigned; no scripts and others"
            self.refuse(f"the property {match[0]}", start, hint=hint)
        if "i" in flags:
            ranges = both_cases(ranges, ascii_only="a" in flags)
        return scalars(complement(ranges)) if negated != bool(match[1]) else ranges

    def char_escape(self, *, in_class: bool) -> int:
        """The code point of the single character that the escape here names."""
        start, kind = self.i, self.text[self.i + 1 : self.i + 2]
        if not kind:
            self.fail("a lone `\\` at the end", start, hint=r"as text write `\\`")
        if kind in _HEX_DIGITS:
            value = self.hex(start, kind)
        elif kind == "N":
            value = self.named(start)
        elif octal := _OCTAL.match(self.text, start + 1):
            self.i = octal.end()
            value = self.octal(octal[0], start)
        elif in_class and kind == "b":
            self.i += 2
            value = 8
        elif kind in _CONTROLS:
            self.i += 2
            value = ord(_CONTROLS[kind])
        elif kind in "gk":
            self.refuse("a back-reference", start, hint="only what a finite automaton can decide is taken")
        elif kind.isascii() and kind.isalnum():
            self.fail(f"unknown escape `\\{kind}`", start, hint=_HINTS.get(kind, "letters need no backslash"))
        else:
            self.i += 2
            value = ord(kind)
        if not in_class and SURROGATE.match(chr(value)):
            self.surrogate(value, start)
        return value

    def octal(self, digits: str, start: int) -> int:
        if int(digits, 8) > 0o377:
            self.fail(f"`\\{digits}` is past \\377", start, hint=r"write \uHHHH")
        return int(digits, 8)

    def hex(self, start: int, kind: str) -> int:
        width = _HEX_DIGITS[kind]
        match = _HEX.match(self.text, start + 2, start + 2 + width)
        digits = match[0] if match else ""
        if len(digits) < width:
            self.fail(f"`\\{kind}` takes {width} hexadecimal digits", start, hint="fill up with zeros on the left")
        if int(digits, 16) > MAX_CODE_POINT:
            self.fail(f"U+{int(digits, 16):X} is past the last code point", start, hint="the last one is U+10FFFF")
        self.i = start + 2 + width
        return int(digits, 16)

    def named(self, start: int) -> int:
        match = _NAME.match(self.text, start + 2)
        try:
            value = ord(unicodedata.lookup(match[1] if match else ""))
        except (KeyError, TypeError):
            self.fail("there is no such character name", start, hint=r"for example \N{EM DASH}")
        self.i = match.end() if match else self.i
        return value
