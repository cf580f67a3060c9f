r"""Back-references to groups with few texts, replaced by these texts.

    (["'])x\1      ("|')x\1 is "x" or 'x': two patterns without references

A group in a repetition, or with too many texts, is refused. It does not know what a pattern matches otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from espalier.automata.languages.algebra import language
from espalier.automata.languages.dfa import Dfa
from espalier.errors import UnsupportedError
from espalier.grammar.regex.parse import parse_regex
from espalier.time_limit import check as check_time

REFERENCE = re.compile(r"\\(?:([1-9][0-9]*)|k<([A-Za-z_$][\w$]*)>)")
MAX_TEXTS = 300
"""Patterns that one pattern with references becomes."""
MAX_BYTES = 400
"""Bytes of a text of a group that is referred to."""


@dataclass(slots=True)
class _CaptureGroup:
    """start, end: of the whole group. inner: where what it captures begins. path: the open groups around it, each with
    the option of it that is open."""

    start: int
    inner: int
    path: tuple[tuple[int, int], ...]
    name: str = ""
    end: int = -1


@dataclass(frozen=True, slots=True)
class _Use:
    start: int
    end: int
    group: str
    path: tuple[tuple[int, int], ...]


def without_references(pattern: str, translated: Callable[[str], str]) -> list[str]:
    """Patterns that match together what the pattern matches; itself alone without references. translated: as
    in `assertions.asserted`. Raises UnsupportedError."""
    waiting, done = [pattern], []
    while waiting:
        check_time()
        current = waiting.pop()
        groups, uses = _scan(current)
        if not uses:
            done.append(current)
            continue
        group = next((g for i, g in enumerate(groups, 1) if uses[0].group in (str(i), g.name)), None)
        if group is None or not 0 <= group.end <= uses[0].start or current.startswith("(?i"):
            raise _refuse_pattern(pattern, "its group is not closed before it, or letters count in both cases")
        if current[group.end : group.end + 1] in tuple("*+?{") or uses[0].path[: len(group.path)] != group.path:
            raise _refuse_pattern(pattern, "its group may be left out or repeated")
        texts = _texts(current[group.inner : group.end - 1], translated)
        if texts is None or len(texts) + len(waiting) + len(done) > MAX_TEXTS:
            raise _refuse_pattern(pattern, f"its group has more than {MAX_TEXTS} texts, or too long ones")
        head = current[group.start : group.inner]
        same = [use for use in uses if use.group == uses[0].group and use.path[: len(group.path)] == group.path]
        for text in texts:
            spelled = "".join(f"\\u{{{ord(char):x}}}" for char in text)
            parts, at = [current[: group.start], head, spelled, ")"], group.end
            for use in same:
                parts += [current[at : use.start], f"(?:{spelled})"]
                at = use.end
            waiting.append("".join(parts) + current[at:])
    return done


def _refuse_pattern(pattern: str, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"a back-reference cannot be enforced where {why}: the pattern {pattern[:200]!r}",
        hint="write the texts of the group out",
        field="pattern",
    )


def _scan(pattern: str) -> tuple[list[_CaptureGroup], list[_Use]]:
    """The capturing groups in order, and the references."""
    groups: list[_CaptureGroup] = []
    uses: list[_Use] = []
    open_ones: list[
        tuple[int, int, _CaptureGroup | None]
    ] = []  # (number, option that it is in, the group if it captures)
    count, option, at, in_class = 0, 0, 0, False

    def path() -> tuple[tuple[int, int], ...]:
        numbers = [0, *(number for number, _, _ in open_ones)]
        return tuple(zip(numbers, [*(which for _, which, _ in open_ones), option], strict=True))

    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            match = None if in_class else REFERENCE.match(pattern, at)
            if match:
                uses.append(_Use(at, match.end(), match[1] or match[2], path()))
            at = match.end() if match else at + 2
            continue
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char == "(":
            named = re.compile(r"\(\?P?<([A-Za-z_$][\w$]*)>").match(pattern, at)
            captures = named is not None or not pattern.startswith("(?", at)
            group = (
                _CaptureGroup(at, named.end() if named else at + 1, path(), named[1] if named else "")
                if captures
                else None
            )
            if group is not None:
                groups.append(group)
            count += 1
            open_ones.append((count, option, group))
            option = 0
        elif char == "|":
            option += 1
        elif char == ")" and open_ones:
            _, option, group = open_ones.pop()
            if group is not None:
                group.end = at + 1
        at += 1
    return groups, uses


def _texts(inner: str, translated: Callable[[str], str]) -> list[str] | None:
    """All texts of an expression, None if there are too many."""
    if REFERENCE.search(inner):
        return None
    texts = language(parse_regex(translated(inner)))
    return [] if texts is None else _words(texts)


def _words(dfa: Dfa) -> list[str] | None:
    words: list[str] = []
    todo: list[tuple[int, bytes]] = [(dfa.start, b"")]
    steps = 0
    while todo:
        check_time()
        state, text = todo.pop()
        steps += 1
        if len(words) > MAX_TEXTS or len(text) > MAX_BYTES or steps > MAX_TEXTS * MAX_BYTES:
            return None
        if dfa.accepting[state]:
            words.append(text.decode())
        row = dfa.table[state][dfa.classes]
        todo += [(int(row[byte]), text + bytes((byte,))) for byte in np.flatnonzero(row >= 0).tolist()]
        if len(todo) > MAX_TEXTS * 4:
            return None
    return words
