r"""Translates patterns of JSON Schema (ECMA-262 with the flag u) to expressions of Python's `re` with the same matches.

    ^\w+$      ^[A-Za-z0-9_]+\Z

JSON Schema has one reading of a pattern, that of ECMA-262. Where `re` gives a sign another meaning, the translation
writes out what ECMA-262 says: `\d \w \s`, `.`, `$`. `\p{L}` and `\b` stay as they are: `ecma.py` translates them for
`re`, `grammar/regex` and `assertions.py` read them. It compiles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from espalier.errors import UnsupportedError
from espalier.grammar.ranges import Ranges, complement, merge
from espalier.time_limit import check as check_time

SPACE: Ranges = merge(
    (
        (ord(low), ord(high))
        for low, high in (
            "\t\r",
            "  ",
            "\xa0\xa0",
            "\u1680\u1680",
            "\u2000\u200a",
            "\u2028\u2029",
            "\u202f\u202f",
            "\u205f\u205f",
            "\u3000\u3000",
            "\ufeff\ufeff",
        )
    )
)
"""ECMA-262's WhiteSpace and LineTerminator."""
WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
DIGITS: Ranges = ((0x30, 0x39),)
LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))


def members(ranges: Ranges) -> str:
    """Ranges as members of a character class."""
    return "".join(rf"\U{low:08X}-\U{high:08X}" for low, high in ranges)


SETS = {
    letter: members(ranges)
    for lower, inside in (("d", DIGITS), ("w", WORD), ("s", SPACE))
    for letter, ranges in ((lower, inside), (lower.upper(), complement(inside)))
}
"""By letter: the characters of the escape, as members of a class."""
_DOT = f"[^{members(LINE_ENDS)}]"
_ANY = r"[\x00-\U0010FFFF]"
_ESCAPE = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})|c([A-Za-z])"
    r"|([dDwWsS])|0(?![0-9])|([pP]\{[^}]*\})|(k<[A-Za-z_$][\w$]*>)|.)",
    re.DOTALL,
)
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_SIGN = re.compile(r"\\(?P<escape>[dDwWsSbB])|\\.|\[(?P<class>(?:\\.|[^\]\\])*)\]|(?P<plain>[.$])|.", re.DOTALL)


def translate(
    pattern: str, escape: Callable[[str, bool], str | None] = lambda text, in_class: None
) -> tuple[str, Callable[[int], int]]:
    """The pattern in the dialect of `re`, and a function from offsets there to offsets in the original.

    escape: called with every escape that has no translation here, and whether it stands in a class; returns its
    translation, None for the escape as it is. Raises UnsupportedError, for flags other than (?i) and for `[]`."""
    out: list[str] = []
    places: list[tuple[int, int]] = []  # (offset in the output, offset in the pattern)
    length = 0

    def put(text: str, offset: int) -> None:
        nonlocal length
        places.append((length, offset))
        out.append(text)
        length += len(text)

    def origin(offset: int) -> int:
        return max((offset_there for start, offset_there in places if start <= offset), default=0)

    def refused(what: str, start: int, hint: str) -> UnsupportedError:
        message = f"{what} cannot be enforced, at offset {start} of the pattern {pattern[:200]!r}"
        return UnsupportedError(message, hint=hint, field="pattern")

    i, closing = 0, ""
    if flags := _FLAGS.match(pattern):
        if flags[1] != "i":
            raise refused(f"the flags {flags[0]}", 0, "only (?i) is taken")
        put("(?i:", 0)
        i, closing = flags.end(), ")"
    in_class = False
    first = 0  # where the members of the class begin
    while i < len(pattern):
        check_time()
        char, start = pattern[i], i
        i += 1
        if char == "\\" and (match := _ESCAPE.match(pattern, start)):
            i = match.end()
            if match[5]:
                put(SETS[match[5]] if in_class else f"[{SETS[match[5]]}]", start)
                if in_class and pattern.startswith("-", i) and not pattern.startswith("-]", i):
                    put(r"\-", i)  # a set cannot be the end of a range
                    i += 1
            else:
                put(_character(match) or escape(match[0], in_class) or match[0], start)
        elif in_class:
            in_class = char != "]"
            if char == "-" and start > first and re.match(r"\\[dDwWsS]", pattern[i:]):
                char = r"\-"
            put(r"\[" if char == "[" else char, start)
        elif pattern.startswith("[^]", start):
            i += 2
            put(_ANY, start)
        elif char == "[":
            if pattern.startswith("]", i):
                raise refused("an empty class", start, r"to match any character write [\s\S]")
            in_class = True
            negated = pattern.startswith("^", i)
            i += negated
            first = i
            put("[^" if negated else "[", start)
        else:
            put(_DOT if char == "." else r"\Z" if char == "$" else char, start)
    put(closing, len(pattern))
    return "".join(out), origin


def _character(escape: re.Match[str]) -> str | None:
    """The escape of one character as `re` writes it; None for another escape."""
    if escape[1] and int(escape[1], 16) <= 0x10FFFF:
        return rf"\U{int(escape[1], 16):08X}"
    if escape[2]:
        high, low = int(escape[2], 16), int(escape[3], 16)
        return rf"\U{0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF):08X}"
    if escape[4]:
        return rf"\x{ord(escape[4]) & 31:02x}"
    return r"\x00" if escape[0] == r"\0" else None


def signs_read_otherwise(pattern: str, *, ends: bool) -> list[str]:
    r"""The signs of a pattern that `re` reads otherwise than ECMA-262, each once. ends: also `.` and `$`, which match
    less in ECMA-262: to be said where a pattern that does not match lets a text pass."""
    return list(dict.fromkeys(_signs(pattern, ends=ends or "(?!" in pattern or "(?<!" in pattern)))


def _signs(pattern: str, *, ends: bool) -> Iterator[str]:
    for match in _SIGN.finditer(pattern):
        if match["escape"]:
            yield match[0]
        elif match["class"]:
            yield from re.findall(r"\\[dDwWsS]", re.sub(r"\\[^dDwWsS]", "", match["class"]))
        elif match["plain"] and ends:
            yield match[0]
