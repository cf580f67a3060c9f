"""Parse calls whose arguments stand between tags: `NAME <parameter=KEY> VALUE </parameter> ...`. They are passed on as
a JSON object.

A string is raw text, any other value is JSON; the types that the tool's schema allows say which it is. Where both are
possible, a text is JSON if it is a JSON value of an allowed type other than a string. The text around a call is not
known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from espalier.chat.argument_types import ALL, STRING, ArgumentTypes, Types
from espalier.chat.reading.call_shape import NAME_CHARACTERS, CallListener, check_name, read_name
from espalier.chat.reading.incoming import SPACE, Emit, FormatMismatch, IncomingText, IncompleteText, Reading
from espalier.chat.reading.json_pieces import copy_value
from espalier.chat.reading.json_scan import JsonScan, NotJson
from espalier.chat.wire.formats import WireFormat

_BEGINS = {"{": "object", "[": "array", "t": "boolean", "f": "boolean", "n": "null", '"': "string"}


class TaggedCalls:
    """`get_weather>` newline `<parameter=city>` newline `Paris` newline `</parameter>`; an unknown tool's arguments may
    have any type."""

    def __init__(self, wire: WireFormat, names: Collection[str], types: Mapping[str, ArgumentTypes]) -> None:
        self._wire = wire
        self._names = frozenset(names)
        self._types = types

    def starts_with(self, character: str) -> bool:
        opens = self._wire.name_open
        return character == opens[0] if opens else bool(NAME_CHARACTERS.fullmatch(character))

    def read(self, text: IncomingText, listener: CallListener) -> Reading[None]:
        wire = self._wire
        if wire.name_open:
            yield from text.expect(wire.name_open)
        at = text.offset
        name = yield from read_name(text)
        if wire.middle.strip():
            yield from text.expect(wire.middle.strip())
        check_name(name, self._names, at)
        yield from text.skip()
        yield from text.need()
        listener.begin(name)
        yield from _TaggedArguments(wire, text, listener, self._types.get(name, {})).read()


class _TaggedArguments:
    def __init__(self, wire: WireFormat, text: IncomingText, listener: CallListener, types: ArgumentTypes) -> None:
        self._text = text
        self._emit = listener.arguments
        self._types = types
        self._key = wire.key
        self._after_key, *self._before_value = wire.assign.split()
        self._has_lines = wire.assign.endswith("\n")
        self._close = wire.value_close.strip()
        self._text_ends = wire.text_ends
        self._plain = re.compile(f"[^{re.escape(''.join(end[0] for end in wire.text_ends))}]*")

    def read(self) -> Reading[None]:
        text = self._text
        self._emit("{")
        separator = ""
        yield from text.skip()
        while (yield from text.meets(self._key)):
            name = yield from self._name()
            self._emit(f"{separator}{json.dumps(name, ensure_ascii=False)}: ")
            yield from self._value(self._types.get(name, ALL))
            separator = ", "
            yield from text.skip()
        self._emit("}")

    def _name(self) -> Reading[str]:
        text = self._text
        parts: list[str] = []
        if not (yield from text.until(self._after_key, parts.append)):
            raise IncompleteText
        yield from text.meets(self._after_key)
        for piece in self._before_value:
            yield from text.expect(piece)
        return "".join(parts)

    def _value(self, types: Types) -> Reading[None]:
        if types == STRING:
            yield from self._raw()
        elif "string" not in types:
            yield from self._text.skip()
            yield from copy_value(self._text, self._emit)
            yield from self._text.expect(self._close)
        else:
            yield from self._either(types)

    def _raw(self) -> Reading[None]:
        """A string as it stands, passed on as it comes."""
        self._emit('"')
        yield from self._copy_raw(lambda piece: self._emit(_escape_for_json(piece)))
        self._emit('"')

    def _copy_raw(self, emit: Emit) -> Reading[None]:
        """The text before the closing tag, without the line ends that belong to the tags. Raises FormatMismatch at
        another tag."""
        text = self._text
        if self._has_lines and (yield from text.need()) == "\n":
            yield from text.take()
        take = _HeldLineEnd(emit).take if self._has_lines else emit
        while not (yield from text.meets(self._close)):
            for tag in self._text_ends:
                if (yield from text.sees(tag)):
                    raise FormatMismatch(f"{self._close!r} is missing before {tag!r}", text.offset)
            take((yield from text.take()))
            yield from text.run(self._plain, take)

    def _either(self, types: Types) -> Reading[None]:
        """A value that may be JSON or raw text: nothing is passed on before it is known."""
        text = self._text
        text.hold()
        yield from text.skip()
        if _BEGINS.get((yield from text.need())) in types & {"array", "object"}:
            pieces: list[str] = []
            try:
                yield from copy_value(text, pieces.append)
                yield from text.expect(self._close)
            except FormatMismatch:
                pass  # raw text that begins like JSON
            else:
                text.release()
                self._emit("".join(pieces))
                return
        text.back()
        parts: list[str] = []
        yield from self._copy_raw(parts.append)
        raw = "".join(parts)
        is_json = _json_type(raw.strip(SPACE)) in types - STRING
        self._emit(raw.strip(SPACE) if is_json else f'"{_escape_for_json(raw)}"')


class _HeldLineEnd:
    """Text whose last line end is held back, and dropped if nothing follows it."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._is_held = False

    def take(self, text: str) -> None:
        if self._is_held:
            self._emit("\n")
        self._is_held = text.endswith("\n")
        if rest := text.removesuffix("\n"):
            self._emit(rest)


def _escape_for_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _json_type(text: str) -> str:
    """The type of the JSON value that a text is; "string" for any other text."""
    scan = JsonScan()
    try:
        end = scan.feed(text, 0)
    except NotJson:
        return "string"
    return _BEGINS.get(text[:1], "number") if scan.is_whole and end == len(text) else "string"
