"""Keeps the automata of long lists of a language in the cache folder: of the processes of a machine one compiles such a
list, and the others read it.

Lists with words of a request are not kept: they are its owner's. A file is found by a fingerprint of the list, its
rules and the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from espalier.automata.languages.dfa import Dfa
from espalier.constraints.words.spec import Wordlist
from espalier.files.kept import KeptKind
from espalier.files.kept import kept_or_made as once
from espalier.files.limits import WORD_DFA

SUFFIX = ".words"
MOST_FILES = 32
LEAST = 1_000
"""Words of a list that is worth a file."""
KIND = KeptKind(
    name="word list",
    suffix=SUFFIX,
    layout=1,
    reader=WORD_DFA,
    sources=("constraints/words/*.py", "lexicon/*.py", "automata/languages/*.py", "automata/phrases/*.py"),
)


def kept_or_made(spec: Wordlist, listed: Sequence[str], folder: Path | None, make: Callable[[], Dfa]) -> Dfa:
    """The automaton of a list, read from the folder if it is there. listed: its words. folder None: nothing is kept.
    Raises what `make` raises."""
    is_ours = spec.words is None and not spec.extra and not spec.names
    if not is_ours or len(listed) < LEAST:
        return make()
    key = "\n".join((repr(spec), *listed))
    return once(folder, KIND, key, make=make, pack=_pack, unpack=_unpack, most=MOST_FILES)


# The body, little-endian int32: how many states and classes, the start, the class of each byte, the table, and whether
# each state accepts.


def _pack(dfa: Dfa) -> bytes:
    head = np.array([*dfa.table.shape, dfa.start])
    return b"".join(array.astype("<i4").tobytes() for array in (head, dfa.classes, dfa.table, dfa.accepting))


def _unpack(body: memoryview) -> Dfa | None:
    """None if it is nothing that `_pack` makes."""
    if len(body) % 4 or len(body) < 4 * 259:
        return None
    numbers = np.frombuffer(body, dtype="<i4")
    states, width, start = numbers[:3].tolist()
    if states < 1 or not 1 <= width <= 256 or len(numbers) != 259 + states * width + states:
        return None
    classes, table, accepting = numbers[3:259], numbers[259:-states], numbers[-states:]
    is_sound = (
        0 <= start < states
        and classes.min() >= 0
        and classes.max() < width
        and table.min() >= -1
        and table.max() < states
        and bool(np.isin(accepting, (0, 1)).all())
    )
    if not is_sound:
        return None
    return Dfa(
        classes=classes.astype(np.uint8),
        table=table.astype(np.int32).reshape(states, width),
        accepting=accepting.astype(np.bool_),
        start=start,
    )
