"""Parse calls that are a name, in some formats an id, and then JSON: `NAME middle {...}`. The text around a call is not
known here."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from espalier.chat.argument_types import ArgumentTypes
from espalier.chat.reading.call_shape import NAME_CHARACTERS, CallListener, check_name, read_name
from espalier.chat.reading.incoming import FormatMismatch, IncomingText, Reading
from espalier.chat.reading.json_pieces import copy_value
from espalier.chat.wire.formats import WireFormat

_LETTERS = re.compile(r"[A-Za-z0-9]*")


class NamedCalls:
    """`get_weather[ARGS]{"city": "Paris"}`, where `[ARGS]` is the format's middle. The id that the model wrote is not
    kept: a request numbers its calls itself."""

    def __init__(self, wire: WireFormat, names: Collection[str], _types: Mapping[str, ArgumentTypes]) -> None:
        self._middle = wire.middle.strip()
        self._id_mark = wire.id_mark
        self._id = re.compile(wire.id_form)
        self._names = frozenset(names)

    def starts_with(self, character: str) -> bool:
        return bool(NAME_CHARACTERS.fullmatch(character))

    def read(self, text: IncomingText, listener: CallListener) -> Reading[None]:
        at = text.offset
        name = yield from read_name(text)
        if self._id_mark:
            yield from text.expect(self._id_mark)
            yield from self._read_id(text)
        if self._middle:
            yield from text.expect(self._middle)
        yield from text.skip()
        check_name(name, self._names, at)
        if (yield from text.need()) != "{":
            raise FormatMismatch("the arguments are no object", text.offset)
        listener.begin(name)
        yield from copy_value(text, listener.arguments)

    def _read_id(self, text: IncomingText) -> Reading[None]:
        yield from text.skip()
        at = text.offset
        parts: list[str] = []
        yield from text.run(_LETTERS, parts.append)
        yield from text.need()
        if not self._id.fullmatch("".join(parts)):
            raise FormatMismatch("the id of the call is missing", at)
