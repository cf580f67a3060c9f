"""Describes a set of bytes in words, for messages about what could have come instead. It knows no automata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from espalier.automata.languages.nfa import ByteSet, byte_range, bytes_in

NAMED = {0x0A: "a line end", 0x09: "a tab", 0x0D: "a carriage return", 0x20: "a space"}
_PRINTABLE = byte_range(0x21, 0x7E)
_CONTINUATION = byte_range(0x80, 0xBF)
_LEADING = byte_range(0xC2, 0xF4)
_KINDS = ((byte_range(0x30, 0x39), "a digit"), (byte_range(0x61, 0x7A), "a to z"), (byte_range(0x41, 0x5A), "A to Z"))
MAX_PARTS = 12


def expected(members: ByteSet, tokens: Sequence[str] = (), *, can_end: bool = False) -> str:
    """What can come next (bytes, named tokens, the end of the text) in words, such as `a digit, "-" or a space`."""
    return _describe_expected(members, tuple(tokens), can_end)


@lru_cache(maxsize=4096)  # asked at every step of a trace, for few distinct arguments
def _describe_expected(members: ByteSet, tokens: tuple[str, ...], can_end: bool) -> str:
    parts = [*_characters(members), *(f"the token {name}" for name in tokens)]
    if len(parts) > MAX_PARTS:
        parts = [*parts[:MAX_PARTS], f"{len(parts) - MAX_PARTS} more"]
    if can_end:
        parts.append("the end of the text")
    return _join_options(parts) or "nothing"


def quoted(text: str) -> str:
    """The text in quotes, single ones if it holds a double quote."""
    return f"'{text}'" if '"' in text else f'"{text}"'


def _characters(members: ByteSet) -> Iterable[str]:
    if not members:
        return
    if not members & ~_CONTINUATION:
        yield "the rest of a character"
        return
    missing = _PRINTABLE & ~members
    if missing.bit_count() <= 8:
        but = [quoted(chr(b)) for b in bytes_in(missing)]
        yield f"any visible ASCII character{f' but {_join_options(but)}' if but else ''}"
    else:
        rest = members & _PRINTABLE
        for kind, name in _KINDS:
            if rest & kind == kind:
                yield name
                rest &= ~kind
        yield from _runs(bytes_in(rest))
    for byte, name in NAMED.items():
        if members >> byte & 1:
            yield name
    control = members & (byte_range(0, 0x1F) | 1 << 0x7F) & ~sum(1 << byte for byte in NAMED)
    if control:
        yield "a control character"
    if members & _LEADING:
        every = members & _LEADING == _LEADING
        yield "any character past ASCII" if every else "some characters past ASCII"
    if members & _CONTINUATION:
        yield "the rest of a character"


def _runs(values: list[int]) -> Iterable[str]:
    """Three or more consecutive letters or digits as a range; other characters one by one."""
    start = 0
    for i in range(1, len(values) + 1):
        follows = i < len(values) and values[i] == values[i - 1] + 1
        if follows and chr(values[i]).isalnum() and chr(values[start]).isalnum():
            continue
        if i - start > 2:
            yield f"{chr(values[start])} to {chr(values[i - 1])}"
        else:
            yield from (quoted(chr(v)) for v in values[start:i])
        start = i


def _join_options(parts: Sequence[str]) -> str:
    return " or ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
