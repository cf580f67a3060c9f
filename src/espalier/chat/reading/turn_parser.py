"""`TurnParser`: parse a model's turn, in pieces of any size, into reasoning, content and calls.

It separates the reasoning; `call_walk.py` and the shapes read the calls, `channel_walk.py` a turn in channels.
Arguments are not validated against a schema.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

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
from espalier.chat.reading.turn_builder import ReasoningTrimmer, TurnBuilder
from espalier.chat.reasoning import Reasoning
from espalier.chat.wire.formats import WireFormat
from espalier.errors import InputError
from espalier.registry import Registry

GAP = 4
"""The most whitespace characters before the start marker, as in the constraint `Thinking`."""
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
    reasoning.
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
        self.is_reasoning = False
        # Where all of the text is content nothing has to be looked for.
        self._is_plain = format is None and reasoning is None
        self._reading = self._read(format, frozenset(names), types, reasoning, inside)

    def feed(self, text: str) -> list[Delta]:
        """The new deltas after more text. Raises InputError after `finish`."""
        if self._is_over:
            raise InputError("the turn is finished", hint="begin another parser for the next turn")
        if self._is_plain:
            self._builder.content(text)
            return self._builder.take()
        self._text.push(text)
        return self._advance()

    def finish(self) -> list[Delta]:
        """End the text; returns what was held back. Later calls return nothing."""
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

    def _read(
        self,
        wire: WireFormat | None,
        names: frozenset[str],
        types: Mapping[str, ArgumentTypes],
        reasoning: Reasoning | None,
        inside: bool,
    ) -> Reading[None]:
        text, builder = self._text, self._builder
        try:
            shown = reasoning if wire is None else wire
            if shown is not None and shown.in_channels:
                yield from ChannelWalk(text, builder, None if wire is None else names, self._thinks).run()
            else:
                yield from self._read_parts(wire, names, types, reasoning, inside)
        except (IncompleteText, FormatMismatch) as error:
            place = f"the call of {builder.open_call!r}" if builder.open_call else "the beginning of a call"
            builder.stop(str(error) or f"the text was cut off in {place}")
            yield from text.all(_ignore)
        else:
            builder.settle()

    def _read_parts(
        self,
        wire: WireFormat | None,
        names: frozenset[str],
        types: Mapping[str, ArgumentTypes],
        reasoning: Reasoning | None,
        inside: bool,
    ) -> Reading[None]:
        """Read the reasoning, if there is one, and then content and calls."""
        text, builder = self._text, self._builder
        if reasoning is not None and (inside or (yield from self._starts(reasoning))):
            yield from self._reason(reasoning)
        if wire is None:
            yield from text.all(builder.content)
        else:
            shape = CALL_PARSERS.load(wire.shape)
            yield from CallWalk(wire, shape(wire, names, types), text, builder).run()

    def _thinks(self, is_reasoning: bool) -> None:
        self.is_reasoning = is_reasoning

    def _starts(self, reasoning: Reasoning) -> Reading[bool]:
        """Consume the start marker if the text begins with it."""
        text = self._text
        text.hold()
        try:
            yield from text.skip()
            begins = text.offset <= GAP and (yield from text.meets(reasoning.start.strip()))
        except IncompleteText:
            begins = False
        if not begins:
            text.back()
        text.release()
        return begins

    def _reason(self, reasoning: Reasoning) -> Reading[None]:
        text = self._text
        trimmed = ReasoningTrimmer(self._builder)
        self.is_reasoning = True
        self._builder.reasoning("")
        yield from text.skip()
        if not (yield from text.until(reasoning.end.strip(), trimmed.take)):
            trimmed.flush()
            raise IncompleteText(CUT_REASONING)
        yield from text.meets(reasoning.end.strip())
        self.is_reasoning = False
        yield from text.skip()


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
