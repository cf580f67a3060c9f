"""The automaton of what comes before an answer or a call: messages that are reasoning or for the user, and a header.

    start ──<|start|>assistant──> message
    message ──<|channel|>analysis<|message|>──> body ──<|end|><|start|>assistant──> message
    message ──<|channel|>final<|message|>──> done

It reads markers by their bytes. Vocabularies are not known here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from espalier.automata.languages.dfa import Dfa, intersect
from espalier.automata.phrases.occurrences import avoiding, until
from espalier.chat.reading.channel_header import END, MARKERS, OPENING

DONE = -2
"""Stands for the last state while the rows are made."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Headers:
    """text: the automaton; its last state is its only accept state, in which a header of `ends` is complete. message:
    its state at the beginning of a message, behind `<|start|>assistant`."""

    text: Dfa
    message: int

    def follow(self, begun: bytes) -> tuple[int, bytes]:
        """The state after the beginning of a message, -1 if no text of the automaton begins so; and the bytes behind
        a complete header."""
        state = self.message
        for count, byte in enumerate(begun):
            if state < 0 or state == len(self.text) - 1:
                return state, begun[count:]
            state = self.text.step(state, byte)
        return state, b""


def build_headers(*, free: Sequence[str], ends: Sequence[str]) -> Headers:
    """The automaton of messages whose headers are in `free`, and then one of the headers `ends`. No header is the
    beginning of another one."""
    others = [marker.encode() for marker in MARKERS if marker != END]
    # No marker stands within a message: a model that forgets the end of one has to write it.
    body = intersect(until([END.encode()]), avoiding(others))
    rows: list[dict[int, int]] = []  # by state: the next one by byte

    def state() -> int:
        rows.append({})
        return len(rows) - 1

    def spell(source: int, text: bytes, target: int) -> None:
        for byte in text[:-1]:
            if byte not in rows[source]:
                rows[source][byte] = state()
            source = rows[source][byte]
        rows[source][text[-1]] = target

    start, message = state(), state()
    first = len(rows)
    rows += (
        {byte: first + target for byte, target in enumerate(targets) if target >= 0}
        for targets in body.table[:, body.classes].tolist()  # (256,)
    )
    (ended,) = (first + number for number, accepts in enumerate(body.accepting.tolist()) if accepts)
    targets_of: Mapping[str, int] = dict.fromkeys(free, first + body.start) | dict.fromkeys(ends, DONE)
    spell(ended, OPENING.encode(), message)
    for root in (start, message):
        for header, target in targets_of.items():
            spell(root, header.encode(), target)
    spell(start, OPENING.encode(), message)
    done = state()
    table = np.full((len(rows), 256), -1, dtype=np.int32)
    for number, row in enumerate(rows):
        for byte, target in row.items():
            table[number, byte] = done if target == DONE else target
    columns, classes = np.unique(table, axis=1, return_inverse=True)
    accepting = np.zeros(len(rows), dtype=np.bool_)
    accepting[done] = True
    text = Dfa(
        classes=classes.reshape(256).astype(np.uint8),
        table=np.ascontiguousarray(columns, dtype=np.int32),
        accepting=accepting,
        start=start,
    )
    return Headers(text=text, message=message)
