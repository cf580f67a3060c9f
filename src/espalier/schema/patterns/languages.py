r"""Patterns of JSON Schema as regular languages, safe for both dialects that read them: ECMA-262 and Python's `re`.

A pattern has a narrow and a wide reading: both dialects match whatever the narrow one matches, and the wide one matches
whatever either dialect matches. The readings differ in `\d \w \s \D \W \S`, `.` and `$`; the narrow reading is used
where a pattern must match, the wide one where it must not. Look-ahead right after a leading `^` becomes a pattern of
its own. It does not know JSON strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from espalier.automata.languages.algebra import both, either, every_text, language, without
from espalier.automata.languages.dfa import Dfa
from espalier.errors import RegexError, UnsupportedError
from espalier.grammar.ast import Node
from espalier.grammar.ranges import Ranges, complement, merge
from espalier.grammar.regex.parse import parse_regex
from espalier.owners import owned_cache
from espalier.schema.patterns.assertions import ASSERTION, asserted
from espalier.schema.patterns.references import REFERENCE, without_references
from espalier.time_limit import check as check_time

_COMMON_SPACE: Ranges = merge(
    ((ord(low), ord(high)) for low, high in ("\t\r", "  ", "\xa0\xa0", "\u1680\u1680", "\u2000\u200a", "\u2028\u2029",
                                             "\u202f\u202f", "\u205f\u205f", "\u3000\u3000"))
)  # fmt: skip
_ANY_SPACE: Ranges = merge([*_COMMON_SPACE, (0x1C, 0x1F), (0x85, 0x85), (0xFEFF, 0xFEFF)])
_ASCII_WORD: Ranges = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_ASCII_DIGITS: Ranges = ((0x30, 0x39),)
_LINE_ENDS: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))


def _members(ranges: Ranges) -> str:
    """Ranges as members of a character class."""
    return "".join(rf"\U{low:08X}-\U{high:08X}" for low, high in ranges)


_SETS: dict[str, tuple[str, str]] = {
    # By letter: the narrow and the wide reading, as members of a class. Python's own are \d and \w for all of Unicode.
    "d": (_members(_ASCII_DIGITS), r"\d"),
    "D": (r"\D", _members(complement(_ASCII_DIGITS))),
    "w": (_members(_ASCII_WORD), r"\w"),
    "W": (r"\W", _members(complement(_ASCII_WORD))),
    "s": (_members(_COMMON_SPACE), _members(_ANY_SPACE)),
    "S": (_members(complement(_ANY_SPACE)), _members(complement(_COMMON_SPACE))),
}
_DOT = (f"[^{_members(_LINE_ENDS)}]", r"[^\n]")
_DOLLAR = (r"\Z", "$")
_ESCAPE = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]{1,6})\}|u([dD][89abAB][0-9A-Fa-f]{2})\\u([dD][c-fC-F][0-9A-Fa-f]{2})|c([A-Za-z])"
    r"|([dDwWsS])|0(?![0-9])|([pP]\{[^}]*\})|.)",
    re.DOTALL,
)
_FLAGS = re.compile(r"\(\?([a-zA-Z]+)\)")
_LOOK_AHEAD = re.compile(r"\(\?([=!])")


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern whose leading look-ahead was split off. parts: (pattern without look-ahead, whether it must match); all
    must hold. is_plain: there is one part, and it must match. differs: the dialects differ on it, beyond line ends."""

    text: str
    parts: tuple[tuple[str, bool], ...]

    @property
    def is_plain(self) -> bool:
        return len(self.parts) == 1 and self.parts[0][1] and not _is_hard(self.parts[0][0])

    @property
    def differs(self) -> bool:
        return bool(re.search(r"\\[sSDWbB]|\[\^[^\]]*\\[dw]", self.text))

    def node(self) -> Node:
        """The texts that contain a match of a plain pattern, in the narrow reading. Raises UnsupportedError."""
        return searched(self.parts[0][0], wide=False)

    def dfa(self, *, wide: bool) -> Dfa | None:
        """The texts that contain a match; None for no text. Raises UnsupportedError, LimitExceeded."""
        found: Dfa | None = every_text()
        for text, wanted in self.parts:
            part = _search_dfa(text, wide if wanted else not wide)
            found = both(found, part) if wanted else without(found, part)
        return found


def read(pattern: str) -> Pattern:
    """Split off the leading look-ahead of a pattern. Whether the pattern is supported shows in `node` and `dfa`."""
    if REFERENCE.search(pattern):
        return Pattern(pattern, ((pattern, True),))  # it may refer to a group within the look-ahead
    if not pattern.startswith("^") or not _LOOK_AHEAD.match(pattern, 1):
        return Pattern(pattern, ((pattern, True),))
    parts: list[tuple[str, bool]] = []
    at = 1
    while found := _LOOK_AHEAD.match(pattern, at):
        check_time()
        end = _group_end(pattern, at)
        if end is None:
            return Pattern(pattern, ((pattern, True),))
        parts.append((f"^(?:{pattern[found.end() : end]})", found[1] == "="))
        at = end + 1
    rest = pattern[at:]
    if _has_bar(rest):  # the look-ahead belongs to the first option only
        return Pattern(pattern, ((pattern, True),))
    return Pattern(pattern, (*parts, *([(f"^{rest}", True)] if rest else [])))


def _is_hard(text: str) -> bool:
    """Whether a pattern without leading look-ahead is no single expression: it has assertions, or back-references."""
    return bool(ASSERTION.search(text) or REFERENCE.search(text))


@owned_cache(256)
def _search_dfa(text: str, wide: bool) -> Dfa | None:
    if not _is_hard(text):
        return language(searched(text, wide=wide))
    try:
        found: Dfa | None = None
        for one in without_references(text, _rewritten, wide=wide):
            found = either(found, asserted(one, _rewritten, wide=wide))
    except RegexError as error:
        raise UnsupportedError(f"the pattern {text[:200]!r}: {error.message}", field="pattern") from error
    return found


def _rewritten(text: str, wide: bool) -> str:
    return _rewrite(text, wide)[0]


@owned_cache(1024)
def searched(pattern: str, *, wide: bool) -> Node:
    """The texts that contain a match. Raises UnsupportedError with the pattern and an offset into it."""
    rewritten, origin = _rewrite(pattern, wide)
    lead = "(?s:.*)(?:"
    try:
        return parse_regex(f"{lead}{rewritten})(?s:.*)")
    except (RegexError, UnsupportedError) as error:
        raise _ours(error, pattern, len(lead), origin) from error


def _ours(
    error: RegexError | UnsupportedError, pattern: str, lead: int, origin: Callable[[int], int]
) -> UnsupportedError:
    """The same error, with its offset in the pattern that the user wrote."""
    found = re.search(r"^(.*?),? at offset (\d+):", error.message, re.DOTALL)
    what, place = (found[1], origin(int(found[2]) - lead)) if found else (error.message, 0)
    message = f"{what}, at offset {place} of the pattern {pattern[:200]!r}"
    return UnsupportedError(message, hint=error.hint, field="pattern")


def _rewrite(pattern: str, wide: bool) -> tuple[str, Callable[[int], int]]:
    """The pattern in the dialect of `parse_regex`, and a function from offsets there to offsets in the original."""
    out: list[str] = []
    places: list[tuple[int, int]] = []  # (offset in the output, offset in the pattern)
    length = 0

    def put(text: str, place: int) -> None:
        nonlocal length
        places.append((length, place))
        out.append(text)
        length += len(text)

    def origin(offset: int) -> int:
        return max((place for start, place in places if start <= offset), default=0)

    i, closing = 0, ""
    if flags := _FLAGS.match(pattern):
        if flags[1] != "i":
            raise UnsupportedError(
                f"the flags {flags[0]} cannot be enforced, at offset 0 of the pattern {pattern[:200]!r}",
                hint="only (?i) is taken",
                field="pattern",
            )
        put("(?i:", 0)
        i, closing = flags.end(), ")"
    negated: bool | None = None  # in a class: is it a negated one?
    first = 0  # where the members of the class begin
    while i < len(pattern):
        check_time()
        char, start = pattern[i], i
        i += 1
        if char == "\\" and (found := _ESCAPE.match(pattern, start)):
            i = found.end()
            if found[5]:
                narrow, broad = _SETS[found[5]]
                text = broad if wide != bool(negated) else narrow
                put(text if negated is not None else f"[{text}]", start)
                if negated is not None and pattern.startswith("-", i) and not pattern.startswith("-]", i):
                    put(r"\-", i)  # a set cannot be the end of a range
                    i += 1
            else:
                put(_escape(found), start)
        elif negated is not None:
            if char == "]":
                negated = None
            if char == "-" and start > first and re.match(r"\\[dDwWsS]", pattern[i:]):
                char = r"\-"
            put(r"\[" if char == "[" else char, start)
        elif char == "[":
            if pattern.startswith(("]", "^]"), i):
                raise UnsupportedError(
                    f"an empty class cannot be enforced, at offset {start} of the pattern {pattern[:200]!r}",
                    hint=r"to match any character write [\s\S]",
                    field="pattern",
                )
            negated = pattern.startswith("^", i)
            i += negated
            first = i
            put("[^" if negated else "[", start)
        elif char == ".":
            put(_DOT[wide], start)
        elif char == "$":
            put(_DOLLAR[wide], start)
        else:
            put(char, start)
    put(closing, len(pattern))
    return "".join(out), origin


def _escape(found: re.Match[str]) -> str:
    if found[1]:
        return rf"\U{int(found[1], 16):08X}" if int(found[1], 16) <= 0x10FFFF else found[0]
    if found[2]:
        high, low = int(found[2], 16), int(found[3], 16)
        return rf"\U{0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF):08X}"
    if found[4]:
        return rf"\x{ord(found[4]) & 31:02x}"
    if found[0] == r"\0":
        return r"\x00"
    return found[0]


def _group_end(pattern: str, start: int) -> int | None:
    """The offset at which the group that opens at `start` closes."""
    depth = 0
    for at, char in _symbols(pattern, start):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return at
    return None


def _has_bar(pattern: str) -> bool:
    depth = 0
    for _, char in _symbols(pattern, 0):
        depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0:
            return True
    return False


def _symbols(pattern: str, start: int) -> list[tuple[int, str]]:
    """The characters, with offsets, that are neither escaped nor in a class."""
    found: list[tuple[int, str]] = []
    i, in_class = start, False
    while i < len(pattern):
        check_time()
        char = pattern[i]
        if char == "\\":
            i += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        else:
            found.append((i, char))
        i += 1
    return found
