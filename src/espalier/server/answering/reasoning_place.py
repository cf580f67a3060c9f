"""Puts the reasoning of every output where the reply has it: in its own field, in the content, or nowhere.

Events and results are changed before a dialect makes its reply of them; logs and stored traces get the unchanged ones.
It knows no shape of a reply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from espalier.chat.reading.deltas import CallEnded, ContentDelta, Delta, ReasoningDelta
from espalier.chat.reasoning import Reasoning
from espalier.engines.base import Event, FinishEvent, Result
from espalier.server.answering.deltas import deltas_of
from espalier.server.answering.generation import Burst, Generation
from espalier.server.asking.draft import ReasoningPlace
from espalier.server.asking.thinking import content_markers

BETWEEN = "\n\n"
"""Stands between the end marker and the answer, and before a start marker within the content."""
EventType = TypeVar("EventType", bound=Event)


class ReasoningInContent:
    """Copies the reasoning of one output into its content, between the markers. keeps: whether the reasoning stays in
    its own field too; its copy then comes in one piece, so that the two do not alternate."""

    def __init__(self, markers: Reasoning, *, keeps: bool) -> None:
        self._markers = markers
        self._keeps = keeps
        self._is_open = self._is_closed = False  # closed: nothing has followed the end marker yet
        self._copy: list[str] = []  # what is not yet sent
        self.content = ""

    def of(self, delta: Delta) -> Iterator[Delta]:
        """The deltas that the reply has for one of the turn."""
        if isinstance(delta, ReasoningDelta):
            if self._keeps:
                yield delta
            yield from self._reason(delta.text)
            return
        if not isinstance(delta, CallEnded):
            yield from self.close()
        if not isinstance(delta, ContentDelta):
            yield delta
            return
        text = delta.text.lstrip() if self._is_closed else delta.text
        if text:
            self._is_closed = False
            yield from self._write(text)

    def _reason(self, text: str) -> Iterator[Delta]:
        if not self._is_open:
            text = text.lstrip()
            if not text:
                return
            before = BETWEEN if self.content and not self._is_closed else ""
            text = f"{before}{self._markers.start}\n{text}"
        self._is_open, self._is_closed = True, False
        if self._keeps:
            self._copy.append(text)
        else:
            yield from self._write(text)

    def close(self) -> Iterator[Delta]:
        """The end marker, if the reasoning is open."""
        if self._is_open:
            self._is_open, self._is_closed = False, True
            yield from self._write(f"{self._take_copy()}\n{self._markers.end}{BETWEEN}")

    def _take_copy(self) -> str:
        text, self._copy = "".join(self._copy), []
        return text

    def _write(self, text: str) -> Iterator[Delta]:
        self.content += text
        yield ContentDelta(text)

    def end(self, result: Result) -> Iterator[Delta]:
        """The deltas of the end: reasoning that the token limit cut stays open."""
        if result.finish_reason != "length":
            yield from self.close()
        elif text := self._take_copy():
            yield from self._write(text)

    def place(self, result: Result) -> Result:
        """The result as the reply has it, after all of its deltas."""
        reasoning = result.turn.reasoning if self._keeps else None
        return replace(result, turn=replace(result.turn, content=self.content, reasoning=reasoning))


class PlacedReasoning:
    """Changes the events of all outputs of a reply. markers: gives those of reasoning in the content."""

    def __init__(self, place: ReasoningPlace, markers: Callable[[], Reasoning]) -> None:
        self._place = place
        self._markers = markers
        self._contents: dict[int, ReasoningInContent] = {}

    def all_of(self, burst: Burst) -> Iterable[tuple[int, Event]]:
        """The events of a burst as the reply has them."""
        return burst if self._place == "separate" else ((run, self.of(run, happened)) for run, happened in burst)

    def of(self, run: int, happened: EventType) -> EventType:
        """An event of an output as the reply has it."""
        if self._place == "separate":
            return happened
        if self._place == "omitted":
            rest = tuple(delta for delta in happened.deltas if not isinstance(delta, ReasoningDelta))
            if isinstance(happened, FinishEvent):
                return replace(happened, deltas=rest, result=_omit(happened.result))
            return replace(happened, deltas=rest)
        if run not in self._contents:
            self._contents[run] = self._new()
        content = self._contents[run]
        deltas = tuple(placed for delta in happened.deltas for placed in content.of(delta))
        if not isinstance(happened, FinishEvent):
            return replace(happened, deltas=deltas)
        result = happened.result
        deltas = (*deltas, *content.end(result))
        placed = replace(content.place(result), others=tuple(map(self._place_whole, result.others)))
        return replace(happened, deltas=deltas, result=placed)

    def _new(self) -> ReasoningInContent:
        return ReasoningInContent(self._markers(), keeps=self._place == "both")

    def _place_whole(self, result: Result) -> Result:
        """An output whose events nobody saw."""
        content = self._new()
        for delta in deltas_of(result):
            for _ in content.of(delta):
                pass
        for _ in content.end(result):
            pass
        return content.place(result)


def place_reasoning(running: Generation) -> PlacedReasoning:
    """For the reply to what runs."""
    parsed = running.asked
    return PlacedReasoning(
        parsed.reasoning_place, lambda: content_markers(parsed.requests[0], running.process.engine.engine)
    )


def _omit(result: Result) -> Result:
    turn = replace(result.turn, reasoning=None)
    return replace(result, turn=turn, others=tuple(map(_omit, result.others)))
