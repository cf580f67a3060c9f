"""The parts of a streamed turn as values: reasoning, content, calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from espalier.chat.tools import ToolCall


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More reasoning, without its markers."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More content: text that is neither reasoning nor a call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call whose name is known; sent once, before its arguments. id: as in the result; parsers alone assign none."""

    index: int
    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the JSON text of call `index`'s arguments; the pieces of a call concatenate to it exactly."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call is complete."""

    index: int


Delta: TypeAlias = ReasoningDelta | ContentDelta | CallBegun | ArgumentsDelta | CallEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A whole turn. reasoning: None if there was none. fault: what is wrong with the text after the last complete call
    (cut off, wrong format), "" if nothing is."""

    content: str
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    fault: str = ""
