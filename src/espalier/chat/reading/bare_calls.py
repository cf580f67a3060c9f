"""Parse calls in Gemma's notation: `NAME{city:<escape>Paris<escape>,days:3}`. They are passed on as a JSON object.

Names have no quotes, strings are raw text between two markers, everything else is JSON. The text around a call is not
known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping

from espalier.chat.argument_types import ArgumentTypes
from espalier.chat.reading.call_shape import NAME_CHARACTERS, CallListener, check_name, read_name
from espalier.chat.reading.incoming import Emit, FormatMismatch, IncomingText, IncompleteText, Reading
from espalier.chat.reading.json_pieces import copy_value, read_string
from espalier.chat.reading.json_scan import CLOSERS
from espalier.chat.wire.formats import WireFormat

_KEY = re.compile(r"""[^\s:,{}\[\]<>"'\x00-\x1f]*""")


class BareCalls:
    """`get_weather{city:<escape>Paris<escape>}`, where `<escape>` is the format's quote."""

    def __init__(self, wire: WireFormat, names: Collection[str], _types: Mapping[str, ArgumentTypes]) -> None:
        self._quote = wire.quote
        self._names = frozenset(names)

    def starts_with(self, character: str) -> bool:
        return bool(NAME_CHARACTERS.fullmatch(character))

    def read(self, text: IncomingText, listener: CallListener) -> Reading[None]:
        at = text.offset
        name = yield from read_name(text)
        yield from text.skip()
        check_name(name, self._names, at)
        if (yield from text.need()) != "{":
            raise FormatMismatch("the arguments are no object", text.offset)
        listener.begin(name)
        yield from _Values(text, listener.arguments, self._quote).read()


class _Values:
    """Reads one value; the open containers are a list, so depth needs no recursion."""

    def __init__(self, text: IncomingText, emit: Emit, quote: str) -> None:
        self._text = text
        self._emit = emit
        self._quote = quote
        self._closers: list[str] = []

    def read(self) -> Reading[None]:
        more = True
        while more:
            yield from self._value()
            more = yield from self._goes_on()

    def _value(self) -> Reading[None]:
        """A scalar, an empty container, or the beginning of one up to its first value."""
        text = self._text
        while True:
            yield from text.skip()
            opener = yield from text.need()
            if opener not in CLOSERS:
                yield from self._scalar()
                return
            yield from text.take()
            self._emit(opener)
            yield from text.skip()
            if (yield from text.meets(CLOSERS[opener])):
                self._emit(CLOSERS[opener])
                return
            self._closers.append(CLOSERS[opener])
            if opener == "{":
                yield from self._key()

    def _goes_on(self) -> Reading[bool]:
        """Whether another value follows after this one; what ends before it is closed."""
        text = self._text
        while self._closers:
            yield from text.skip()
            if (yield from text.meets(",")):
                self._emit(", ")
                if self._closers[-1] == "}":
                    yield from self._key()
                return True
            yield from text.expect(self._closers[-1])
            self._emit(self._closers.pop())
        return False

    def _scalar(self) -> Reading[None]:
        text = self._text
        if not (yield from text.meets(self._quote)):
            yield from copy_value(text, self._emit)
            return
        self._emit('"')
        if not (yield from text.until(self._quote, self._emit_escaped, must_come=True)):
            raise IncompleteText
        yield from text.meets(self._quote)
        self._emit('"')

    def _emit_escaped(self, piece: str) -> None:
        self._emit(json.dumps(piece, ensure_ascii=False)[1:-1])

    def _key(self) -> Reading[None]:
        text = self._text
        yield from text.skip()
        at = text.offset
        parts: list[str] = []
        if (yield from text.meets(self._quote)):
            if not (yield from text.until(self._quote, parts.append)):
                raise IncompleteText
            yield from text.meets(self._quote)
        elif (yield from text.need()) == '"':
            parts.append((yield from read_string(text)))
        else:
            yield from text.run(_KEY, parts.append)
            yield from text.need()
            if not parts:
                raise FormatMismatch("the name of an argument is missing", at)
        yield from text.expect(":")
        self._emit(f"{json.dumps(''.join(parts), ensure_ascii=False)}: ")
