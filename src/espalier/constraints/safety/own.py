"""The parts of a filter that users gave themselves: built here where they are few and quick, else in a worker process,
because single steps of building them take seconds and much memory.

It knows no built-in patterns and no vocabulary.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from espalier.confined.builds import Builds, answered
from espalier.constraints.safety.expressions import CharDfa
from espalier.constraints.safety.parts import PatternPart, custom_parts, listed_part
from espalier.constraints.safety.phrases import Phrase
from espalier.constraints.safety.spec import Custom

NEAR_CHARACTERS = 1_000
"""In all. So few have no step without a look at the limit that takes longer than some hundredths of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What users gave, each with the number of its rule. words: phrases of lists, which match as whole words. texts,
    expressions: matched anywhere."""

    words: Sequence[Phrase]
    texts: Sequence[Phrase]
    expressions: Sequence[tuple[str, int]]

    def parts(self) -> list[PatternPart]:
        """Raises as `custom_parts`."""
        parts = [listed_part(self.words)] if self.words else []
        if self.texts or self.expressions:
            parts += custom_parts(self.texts, [(Custom(text, True), number) for text, number in self.expressions])
        return parts

    def built(self, builds: Builds | None) -> list[PatternPart]:
        """As `parts`; where the caller's limit asks for it, in a worker process. Raises ConfinedError too."""
        if builds is None or not (self.words or self.texts or self.expressions):
            return self.parts()
        phrases = {"words": self.words, "texts": self.texts, "expressions": self.expressions}
        size = sum(len(text) for kind in phrases.values() for text, _ in kind)
        return builds.build(self.parts, run=built, given=phrases, read=_unpack_parts, is_near=size <= NEAR_CHARACTERS)


# In a worker process.


def built(task: Mapping[str, Any]) -> dict[str, Any] | None:
    """Writes the parts to a file; returns what is wrong with them, None if nothing is."""
    own = Own(**{name: [(text, number) for text, number in task[name]] for name in ("words", "texts", "expressions")})
    return answered(task, lambda: _pack_parts(own.parts()))


# Parts as bytes: `marshal` makes plain values alone, whatever it reads.


def _pack_parts(parts: Sequence[PatternPart]) -> bytes:
    return marshal.dumps(
        [
            (
                part.dfa.table.shape,
                part.dfa.table.astype("<i4").tobytes(),
                part.dfa.cuts.astype("<i4").tobytes(),
                part.dfa.busy.tobytes(),
                *(segment.astype("<i8").tobytes() for segment in part.segments),
                part.rules,
            )
            for part in parts
        ]
    )


def _unpack_parts(data: bytes) -> list[PatternPart]:
    parts = []
    for shape, table, cuts, busy, first, classes, rules in marshal.loads(data):  # our own process wrote it
        dfa = CharDfa(
            table=np.frombuffer(table, dtype="<i4").reshape(shape),
            cuts=np.frombuffer(cuts, dtype="<i4"),
            busy=np.frombuffer(busy, dtype=np.bool_),
        )
        parts.append(PatternPart(dfa, (np.frombuffer(first, dtype="<i8"), np.frombuffer(classes, dtype="<i8")), rules))
    return parts
