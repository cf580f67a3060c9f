"""`TurnParser`: parse a model's turn, in pieces of any size, into reasoning, content and calls.

`thoughts.py` separates the reasoning, `call_walk.py` and the shapes read the calls, `channel_walk.py` a turn in
channels. Arguments are not validated against a schema.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from espalier.chat.argument_types import ArgumentTypes
from espalier.chat.reading.bare_calls import BareCalls
from espalier.chat.reading.call_shape import CallShape
from espalier.chat.reading.call_walk import CallWalk
from espalier.chat.reading.channel_walk import CUT_REASONING, ChannelWalk
from espalier.chat.reading.deltas import Delta, Turn
from espalier.chat.reading.incoming import FormatMismatch, IncomingText, IncompleteText, Reading
from espalier.chat.reading.json_calls import JsonCalls
from espalier.chat.reading.named_calls import NamedCalls
from espalier.chat.reading.python_calls import PythonCalls
from espalier.chat.reading.tagged_calls import TaggedCalls
from espalier.chat.reading.thoughts import ThoughtSplitter, TurnPiece, thoughts_of
from espalier.chat.reading.turn_builder import ReasoningTrimmer, TurnBuilder
from espalier.chat.reasoning import Reasoning
from espalier.chat.wire.formats import WireFormat
from espalier.errors import InputError
from espalier.registry import Registry

NO_TYPES: Mapping[str, ArgumentTypes] = {}
CALL_PARSERS: Registry[type[CallShape]] = Registry(
    "tool_parsers",
    {"json": JsonCalls, "named": NamedCalls, "python": PythonCalls, "tagged": TaggedCalls, "bare": BareCalls},
)
"""The parser of each shape of calls."""


class TurnParser:
    """Call `feed` with the text as it arrives, then `finish`; each returns new deltas, and `turn` is the whole.

    format: how calls are written, None for none. names: the known tools; a call of another name is no call. types:
    what `argument_types` says of each tool's schema, for formats that write strings as raw text. reasoning: the
    markers of reasoning, which comes first if at all. inside: whether the prompt ended with the start marker.

    No text raises an error: `turn.fault` says what is wrong. `is_reasoning`: whether the text so far ends within the
    reasoning, None while it may still become one. `heard_reasoning`: whether a part of the last text was reasoning.
    """

    def __init__(
        self,
        *,
        format: WireFormat | None,  # noqa: A002  # as everywhere
        names: Collection[str] = (),
        types: Mapping[str, ArgumentTypes] = NO_TYPES,
        reasoning: Reasoning | None = None,
        inside: bool = False,
    ) -> None:
        self._text = IncomingText()
        self._builder = TurnBuilder()
        self._is_over = False
        shown = reasoning if format is None else format
        # The walk of a turn in channels reads its markers itself.
        self._in_channels = shown is not None and shown.in_channels
        self._thoughts: ThoughtSplitter | None = (
            None if reasoning is None else thoughts_of(reasoning, inside=inside, in_channels=self._in_channels)
        )
        self._trimmed = ReasoningTrimmer(self._builder)
        self.heard_reasoning = False
        if inside and reasoning is not None and not self._in_channels:
            self._builder.reasoning("")
        # Where all of the text is content nothing has to be looked for.
        self._is_plain = format is None and reasoning is None
        self._reading = self._read(format, frozenset(names), types)

    @property
    def is_reasoning(self) -> bool | None:
        """See the class."""
        return False if self._thoughts is None else self._thoughts.is_thinking

    def feed(self, text: str) -> list[Delta]:
        """The new deltas after more text. Raises InputError after `finish`."""
        if self._is_over:
            raise InputError("the turn is finished", hint="begin another parser for the next turn")
        if self._is_plain:
            self._builder.content(text)
            return self._builder.take()
        if self._thoughts is None or self._in_channels:
            self._text.push(text)
        if self._thoughts is not None:
            self._hear(self._thoughts.feed(text))
        return self._advance()

    def finish(self) -> list[Delta]:
        """End the text; returns what was held back. Later calls return nothing."""
        if self._thoughts is not None and not self._is_over:
            self._hear(self._thoughts.finish())
            if self._thoughts.is_thinking and not self._in_channels:
                self._trimmed.flush()
                self._builder.stop(CUT_REASONING)
        self._is_over = True
        self._text.close()
        return self._advance()

    @property
    def turn(self) -> Turn:
        """The turn so far; complete once finished."""
        return self._builder.turn

    def _advance(self) -> list[Delta]:
        next(self._reading, None)
        return self._builder.take()

    def _hear(self, pieces: Iterable[TurnPiece]) -> None:
        """Take the pieces of the last text. The gap behind a thought is no text of the answer."""
        self.heard_reasoning = False
        for part, text in pieces:
            self.heard_reasoning |= part in ("marker", "thought")
            if self._in_channels:
                continue
            if part == "answer":
                self._text.push(text)
                continue
            self._text.pass_over(text)
            if part == "thought":
                self._trimmed.take(text)
            elif part == "marker":
                self._builder.reasoning("")

    def _read(
        self, wire: WireFormat | None, names: frozenset[str], types: Mapping[str, ArgumentTypes]
    ) -> Reading[None]:
        text, builder = self._text, self._builder
        try:
            if self._in_channels:
                yield from ChannelWalk(text, builder, None if wire is None else names).run()
            elif wire is None:
                yield from text.all(builder.content)
            else:
                shape = CALL_PARSERS.load(wire.shape)
                yield from CallWalk(wire, shape(wire, names, types), text, builder).run()
        except (IncompleteText, FormatMismatch) as error:
            place = f"the call of {builder.open_call!r}" if builder.open_call else "the beginning of a call"
            builder.stop(str(error) or f"the text was cut off in {place}")
            yield from text.all(_ignore)
        else:
            builder.settle()


def parse_turn(
    text: str,
    *,
    format: WireFormat | None,  # noqa: A002  # as everywhere
    names: Collection[str] = (),
    types: Mapping[str, ArgumentTypes] = NO_TYPES,
    reasoning: Reasoning | None = None,
    inside: bool = False,
) -> Turn:
    """Parse a whole text at once."""
    parser = TurnParser(format=format, names=names, types=types, reasoning=reasoning, inside=inside)
    parser.feed(text)
    parser.finish()
    return parser.turn


def _ignore(_text: str) -> None:
    pass
