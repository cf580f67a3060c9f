"""What a parser has found in a turn: as deltas since they were last asked for, and as the Turn of all of them.

It knows no text and no format. A stretch of content that is whitespace only, beside a call, is dropped here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, CallEnded, ContentDelta, Delta, ReasoningDelta, Turn
from espalier.chat.reading.incoming import SPACE
from espalier.chat.tools import ToolCall


class Telling:
    """Takes what is found, piece by piece. Neighbouring pieces of a kind become one delta."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._make: Callable[[str], Delta] | None = None
        self._parts: list[str] = []  # of the delta that is next
        self._blank: list[str] | None = []  # whitespace of a stretch that has been nothing else, None where it has
        self._reasoning: list[str] | None = None
        self._content: list[str] = []
        self._names: list[str] = []
        self._arguments: list[list[str]] = []
        self._ended = 0
        self._fault = ""
        self._more_arguments: Callable[[str], Delta] | None = None  # of the call that has begun

    @property
    def open_call(self) -> str:
        """The name of the call that has begun and not ended; "" if none has."""
        return self._names[-1] if self._ended < len(self._names) else ""

    @property
    def complete_calls(self) -> int:
        return self._ended

    # What is found

    def reasoning(self, text: str) -> None:
        """More of the reasoning; "" says that there is one."""
        if self._reasoning is None:
            self._reasoning = []
        self._add(ReasoningDelta, self._reasoning, text)

    def content(self, text: str) -> None:
        if self._blank is not None:
            self._blank.append(text)
            if not text.strip(SPACE):
                return
            text, self._blank = "".join(self._blank), None
        self._add(ContentDelta, self._content, text)

    def begin(self, name: str) -> None:
        index = len(self._names)
        self._blank = []
        self._names.append(name)
        self._arguments.append([])
        self._more_arguments = partial(ArgumentsDelta, index)
        self._event(CallBegun(index, name))

    def arguments(self, text: str) -> None:
        self._add(self._more_arguments, self._arguments[-1], text)

    def end(self) -> None:
        """The call is complete, and what was wrong before it no longer matters."""
        self._fault = ""
        self._event(CallEnded(self._ended))
        self._ended += 1

    def fault(self, message: str) -> None:
        """What is wrong; the first since the last complete call is kept."""
        self._fault = self._fault or message

    def stop(self, message: str) -> None:
        """What is wrong so that nothing after it is told; said besides what was wrong before."""
        self._fault = f"{self._fault}; {message}" if self._fault else message

    def settle(self) -> None:
        """The text is over. Whitespace alone is content only in a turn without calls."""
        if self._blank and not self._names:
            text, self._blank = "".join(self._blank), None
            self._add(ContentDelta, self._content, text)

    # What was found

    def take(self) -> list[Delta]:
        """The deltas since the last time."""
        self._flush()
        found, self._deltas = self._deltas, []
        return found

    @property
    def turn(self) -> Turn:
        return Turn(
            content="".join(self._content),
            reasoning=None if self._reasoning is None else "".join(self._reasoning),
            calls=tuple(
                ToolCall(index=i, name=name, arguments="".join(self._arguments[i]), is_complete=i < self._ended)
                for i, name in enumerate(self._names)
            ),
            fault=self._fault,
        )

    def _add(self, make: Callable[[str], Delta] | None, parts: list[str], text: str) -> None:
        if not text:
            return
        parts.append(text)
        if make is not self._make:
            self._flush()
            self._make = make
        self._parts.append(text)

    def _event(self, delta: Delta) -> None:
        self._flush()
        self._deltas.append(delta)

    def _flush(self) -> None:
        if self._make is not None:
            self._deltas.append(self._make("".join(self._parts)))
        self._make, self._parts = None, []
