"""Parse calls that are JSON objects with a name and arguments: `{"name": "NAME", "arguments": {...}}`.

Keys may come in any order, under their usual names besides the format's own, with further keys; arguments may also be a
string that contains them. The text around a call is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from espalier.chat.argument_types import ArgumentTypes
from espalier.chat.reading.call_shape import CallListener, check_name, shown
from espalier.chat.reading.incoming import SPACE, Emit, FormatMismatch, IncomingText, IncompleteText, Reading
from espalier.chat.reading.json_pieces import copy_meant, copy_value, read_string
from espalier.chat.reading.json_scan import JsonScan, NotJson
from espalier.chat.wire.formats import WireFormat

NAME_KEYS = frozenset(("name", "tool"))
ARGUMENTS_KEYS = frozenset(("args", "arguments", "parameters"))
FURTHER_KEYS = frozenset(("id", "type", "index"))
"""Other keys that a call may have. Any other key belongs to an object that is no call, whose text is not held back
further."""
_NO_OBJECT = "the arguments are no object"


class JsonCalls:
    """`{"name": "get_weather", "arguments": {"city": "Paris"}}` with the format's two keys."""

    def __init__(self, wire: WireFormat, names: Collection[str], _types: Mapping[str, ArgumentTypes]) -> None:
        self._names = frozenset(names)
        self._order = (wire.name_key, wire.args_key) if wire.exact else ()
        self._values: dict[str, Callable[[_Call, int], Reading[None]]] = {
            **dict.fromkeys(NAME_KEYS | {wire.name_key}, _Call.name),
            **dict.fromkeys(ARGUMENTS_KEYS | {wire.args_key}, _Call.arguments),
            **dict.fromkeys(FURTHER_KEYS, _Call.other),
        }

    def starts_with(self, character: str) -> bool:
        return character == "{"

    def read(self, text: IncomingText, listener: CallListener) -> Reading[None]:
        begun = text.offset
        call = _Call(text, listener, self._names)
        try:
            yield from self._object(text, call)
        except IncompleteText:
            if call.is_foreign:
                raise FormatMismatch("a call names a tool that there is", begun, is_foreign=True) from None
            raise
        if not call.is_begun:
            raise FormatMismatch("a call has a name and arguments", begun)

    def _object(self, text: IncomingText, call: _Call) -> Reading[None]:
        yield from text.expect("{")
        yield from text.skip()
        more = not (yield from text.meets("}"))
        expected = iter(self._order)
        while more:
            yield from text.skip()
            at = text.offset
            key = yield from read_string(text)
            if not call.is_begun and key != next(expected, key):
                raise FormatMismatch(f"a call has no {shown(key)} here", at, is_foreign=True)
            yield from text.expect(":")
            yield from text.skip()
            value = self._values.get(key)
            if value is None and not call.is_begun:
                raise FormatMismatch(f"a call has no {shown(key)}", at, is_foreign=True)
            yield from (value or _Call.other)(call, at)
            yield from text.skip()
            more = yield from text.meets(",")
            if not more:
                yield from text.expect("}")


class _Call:
    """One call while it is read. Its methods read the value of the key at position `at`."""

    def __init__(self, text: IncomingText, listener: CallListener, names: frozenset[str]) -> None:
        self._text = text
        self._listener = listener
        self._names = names
        self._name: str | None = None
        self._named_at = 0
        self._has_arguments = False
        self._early: list[str] = []  # arguments that came before the name
        self.is_begun = False

    @property
    def is_foreign(self) -> bool:
        """Whether the given name is no tool."""
        return bool(self._names) and self._name is not None and self._name not in self._names

    def name(self, at: int) -> Reading[None]:
        if self._name is not None:
            raise FormatMismatch("the call is named twice", at)
        self._named_at = self._text.offset
        self._name = yield from read_string(self._text)
        if self._has_arguments:
            self._check()
            self._begin()
            self._listener.arguments("".join(self._early))

    def arguments(self, at: int) -> Reading[None]:
        if self._has_arguments:
            raise FormatMismatch("the call has arguments twice", at)
        self._has_arguments = True
        self._check()
        try:
            yield from _ARGUMENTS.get((yield from self._text.need()), _Call._no_object)(self)
        except FormatMismatch as fault:
            fault.is_certain = self._name is not None  # an object with a tool's name was meant as a call
            raise

    def other(self, _at: int) -> Reading[None]:
        yield from copy_value(self._text, _ignore)

    def _object(self) -> Reading[None]:
        self._begin()
        yield from copy_value(self._text, self._emit)

    def _string(self) -> Reading[None]:
        quoted = _ObjectInString(self._begin, self._emit)
        yield from copy_meant(self._text, quoted.take)
        if not quoted.is_done:
            raise FormatMismatch("the arguments in the string are not complete", self._text.offset - 1)

    def _no_object(self) -> Reading[None]:
        yield from self._text.need()
        raise FormatMismatch(_NO_OBJECT, self._text.offset)

    def _check(self) -> None:
        if self._name is not None:
            check_name(self._name, self._names, self._named_at)

    def _begin(self) -> None:
        if self._name is not None:
            self.is_begun = True
            self._listener.begin(self._name)

    def _emit(self, text: str) -> None:
        if self.is_begun:
            self._listener.arguments(text)
        else:
            self._early.append(text)


_ARGUMENTS: dict[str, Callable[[_Call], Reading[None]]] = {"{": _Call._object, '"': _Call._string}


class _ObjectInString:
    """An object inside a string. opened: called once it has begun."""

    def __init__(self, opened: Callable[[], None], emit: Emit) -> None:
        self._opened = opened
        self._emit = emit
        self._scan = JsonScan()
        self._is_open = False

    @property
    def is_done(self) -> bool:
        return self._scan.is_done

    def take(self, text: str) -> None:
        """Read more of the string. Raises NotJson after the fitting part was passed on."""
        start = 0 if self._is_open else len(text) - len(text.lstrip(SPACE))
        if start == len(text):
            return
        if not self._is_open:
            if text[start] != "{":
                raise NotJson(_NO_OBJECT, start)
            self._is_open = True
            self._opened()
        try:
            end = self._scan.feed(text, start)
        except NotJson as error:
            self._emit(text[start : error.at])
            raise
        self._emit(text[start:end])
        after = text[end:].lstrip(SPACE)
        if after:
            raise NotJson("something follows the arguments", len(text) - len(after))


def _ignore(_text: str) -> None:
    pass
