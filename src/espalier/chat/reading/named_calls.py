"""Parse calls that are a name and then JSON: `NAME middle {...}`. The text around a call is not known here."""

from __future__ import annotations

from collections.abc import Collection

from espalier.chat.reading.call_shape import NAME_CHARACTERS, CallListener, check_name, read_name
from espalier.chat.reading.incoming import Fault, Incoming, Reading
from espalier.chat.reading.json_pieces import copy_value
from espalier.chat.wire.formats import WireFormat


class NamedCalls:
    """`get_weather[ARGS]{"city": "Paris"}`, where `[ARGS]` is the format's middle."""

    def __init__(self, wire: WireFormat, names: Collection[str]) -> None:
        self._middle = wire.middle.strip()
        self._names = frozenset(names)

    def starts_with(self, character: str) -> bool:
        return bool(NAME_CHARACTERS.fullmatch(character))

    def read(self, text: Incoming, listener: CallListener) -> Reading[None]:
        at = text.offset
        name = yield from read_name(text)
        if self._middle:
            yield from text.expect(self._middle)
        yield from text.skip()
        check_name(name, self._names, at)
        if (yield from text.need()) != "{":
            raise Fault("the arguments are no object", text.offset)
        listener.begin(name)
        yield from copy_value(text, listener.arguments)
