"""`TurnBuilder`: collects what a parser finds in a turn, as deltas since the last request and as the whole Turn.

It knows no format. Whitespace-only content beside a call is dropped here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, CallEnded, ContentDelta, Delta, ReasoningDelta, Turn
from espalier.chat.reading.incoming import SPACE
from espalier.chat.tools import ToolCall


class TurnBuilder:
    """Takes findings piece by piece. Adjacent pieces of one kind become one delta."""

    def __init__(self) -> None:
        self._deltas: list[Delta] = []
        self._make: Callable[[str], Delta] | None = None
        self._parts: list[str] = []  # of the next delta
        self._blank: list[str] | None = []  # whitespace so far in a stretch of content; None once it has other text
        self._reasoning: list[str] | None = None
        self._content: list[str] = []
        self._names: list[str] = []
        self._arguments: list[list[str]] = []
        self._ended = 0
        self._fault = ""
        self._more_arguments: Callable[[str], Delta] | None = None  # of the current call

    @property
    def open_call(self) -> str:
        """The name of the current call; "" if there is none."""
        return self._names[-1] if self._ended < len(self._names) else ""

    @property
    def complete_calls(self) -> int:
        return self._ended

    # Called by the parsers

    def reasoning(self, text: str) -> None:
        """More reasoning; "" records that there is some."""
        if self._reasoning is None:
            self._reasoning = []
        self._add(ReasoningDelta, self._reasoning, text)

    def content(self, text: str) -> None:
        if not text:
            return
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
        """Complete the call; an earlier fault no longer matters."""
        self._fault = ""
        self._event(CallEnded(self._ended))
        self._ended += 1

    def fault(self, message: str) -> None:
        """Record a fault; the first one since the last complete call is kept."""
        self._fault = self._fault or message

    def stop(self, message: str) -> None:
        """Record a fault that ends the reading, added to an earlier one."""
        self._fault = f"{self._fault}; {message}" if self._fault else message

    def settle(self) -> None:
        """End the text. Whitespace alone is content only in a turn without calls."""
        if self._blank and not self._names:
            text, self._blank = "".join(self._blank), None
            self._add(ContentDelta, self._content, text)

    # Results

    def take(self) -> list[Delta]:
        """The deltas since the last call of `take`."""
        if self._make is not None:
            self._flush()
        deltas = self._deltas
        if deltas:
            self._deltas = []
            return deltas
        return []

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


class ReasoningTrimmer:
    """Reasoning without leading whitespace; trailing whitespace is held back until something follows."""

    def __init__(self, builder: TurnBuilder) -> None:
        self._builder = builder
        self._space: list[str] = []
        self._is_begun = False

    def take(self, text: str) -> None:
        if not self._is_begun:
            text = text.lstrip(SPACE)
            self._is_begun = bool(text)
        stripped = text.rstrip(SPACE)
        if stripped:
            self.flush()
            self._builder.reasoning(stripped)
        if len(stripped) < len(text):
            self._space.append(text[len(stripped) :])

    def flush(self) -> None:
        self._builder.reasoning("".join(self._space))
        self._space = []
