"""Keeps the automata of built-in patterns in the cache folder, so that a process reads in some milliseconds what takes
seconds to make.

A file is found by a fingerprint of all that makes it: the patterns, the code, and the version of Python, whose tables
of Unicode it is made with. What was read is checked before it is used, because the kernels that walk it check nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.safety.expressions import CharDfa
from espalier.constraints.safety.patterns.pattern import SafetyPattern
from espalier.files.kept import KeptKind
from espalier.files.kept import kept_or_made as once
from espalier.files.limits import FILTER
from espalier.grammar.ranges import MAX_CODE_POINT

SUFFIX = ".filter"
MOST_FILES = 64
"""One version of Espalier makes some twenty; older ones are removed."""
KIND = KeptKind(
    name="safety filter",
    suffix=SUFFIX,
    layout=1,
    reader=FILTER,
    sources=("constraints/safety/*.py", "automata/languages/rounds.py", "grammar/*.py", "grammar/regex/*.py"),
)

Segments: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The first code point of each segment and its class, `(G,) int64` each: `Alphabet.segments`."""
Automaton: TypeAlias = tuple[CharDfa, Segments]


def kept_or_made(
    folder: Path | None, patterns: Sequence[SafetyPattern], make: Callable[[], list[Automaton]]
) -> list[Automaton]:
    """The automata of some patterns, read from the folder if they are there, otherwise made and written there.

    A file that is damaged, or made by other code, is replaced. If the folder cannot be written, a warning is logged.
    folder None: nothing is kept."""
    return once(
        folder,
        KIND,
        repr([*patterns]),
        make=make,
        pack=_pack,
        unpack=lambda body: _unpack(body, len(patterns)),
        most=MOST_FILES,
    )


# The body: how many automata; of each, the numbers of states, classes and segments; then of each, the table, the cuts,
# busy, and the segments' first code points and classes: all little-endian, int32.


def _pack(automata: Sequence[Automaton]) -> bytes:
    sizes = [size for dfa, (first, _) in automata for size in (*dfa.table.shape, len(first))]
    arrays = [np.array([len(automata), *sizes])]
    for dfa, (first, classes) in automata:
        arrays += [dfa.table, dfa.cuts, dfa.busy, first, classes]
    return b"".join(array.astype("<i4").tobytes() for array in arrays)


def _unpack(body: memoryview, rules: int) -> list[Automaton] | None:
    """None if it is nothing that `_pack` makes of automata with so many patterns."""
    if len(body) % 4 or not body:
        return None
    numbers = np.frombuffer(body, dtype="<i4")
    count = int(numbers[0])
    sizes = numbers[1 : 1 + 3 * count].reshape(-1, 3).tolist() if 0 < 3 * count < len(numbers) else []
    wanted = 1 + 3 * count + sum(states * (width + 2) + 2 * parts for states, width, parts in sizes)
    if not sizes or min(map(min, sizes)) < 1 or wanted != len(numbers):
        return None
    at = 1 + 3 * count

    def take(length: int) -> NDArray[np.int32]:
        nonlocal at
        at += length
        return numbers[at - length : at].astype(np.int32)

    automata = []
    for states, width, parts in sizes:
        table, cuts, busy, first, classes = map(take, (states * width, states, states, parts, parts))
        is_sound = (
            -rules <= table.min()
            and table.max() < states
            and cuts.min() >= -1
            and cuts.max() < rules
            and classes.min() >= 0
            and classes.max() < width
            and first[0] == 0
            and first[-1] <= MAX_CODE_POINT
            and bool((np.diff(first) > 0).all())
            and bool(np.isin(busy, (0, 1)).all())
        )
        if not is_sound:
            return None
        dfa = CharDfa(table=table.reshape(states, width), cuts=cuts, busy=busy.astype(np.bool_))
        automata.append((dfa, (first.astype(np.int64), classes.astype(np.int64))))
    return automata
