"""What a turn of the model is made of as it streams: reasoning, content, calls. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from espalier.chat.tools import ToolCall


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More of the reasoning, without its markers."""

    text: str


@dataclass(frozen=True, slots=True)
class ContentDelta:
    """More of the content: what is neither reasoning nor a call."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call whose name is known; told once, before its arguments. id: as in the result; parsers alone give none."""

    index: int
    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """More of the arguments' JSON text of call `index`; the pieces of one call add up to it exactly."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call is complete."""

    index: int


Delta: TypeAlias = ReasoningDelta | ContentDelta | CallBegun | ArgumentsDelta | CallEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A whole turn. reasoning: None where there was none. fault: what is wrong with the text after the last complete
    call (cut off, not of the format), "" if nothing is."""

    content: str
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    fault: str = ""
