"""Parse calls in Python syntax: `NAME(a=1, b="x")`, with literals as arguments; the arguments are passed on as a JSON
object.

The text around a call is not known here; `python_literals.py` reads the literals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from unicodedata import normalize

from espalier.chat.argument_types import ArgumentTypes
from espalier.chat.reading.call_shape import NAME_CHARACTERS, CallListener, check_name, read_name
from espalier.chat.reading.incoming import FormatMismatch, IncomingText, Reading
from espalier.chat.reading.python_literals import copy_literal, copy_string
from espalier.chat.wire.formats import WireFormat

_IDENTIFIER = re.compile(r"\w*")


class PythonCalls:
    """`get_weather(city="Paris")`; positional arguments are refused, `**{"any name": 1}` is accepted."""

    def __init__(self, _wire: WireFormat, names: Collection[str], _types: Mapping[str, ArgumentTypes]) -> None:
        self._names = frozenset(names)

    def starts_with(self, character: str) -> bool:
        return bool(NAME_CHARACTERS.fullmatch(character))

    def read(self, text: IncomingText, listener: CallListener) -> Reading[None]:
        at = text.offset
        name = yield from read_name(text)
        yield from text.expect("(")
        check_name(name, self._names, at)
        listener.begin(name)
        yield from _PythonArguments(text, listener).read()


class _PythonArguments:
    def __init__(self, text: IncomingText, listener: CallListener) -> None:
        self._text = text
        self._emit = listener.arguments
        self._seen: set[str] = set()

    def read(self) -> Reading[None]:
        text = self._text
        self._emit("{")
        yield from text.skip()
        more = not (yield from text.meets(")"))
        while more:
            yield from self._spread() if (yield from text.meets("**")) else self._argument()
            more = yield from self._goes_on(")")
        self._emit("}")

    def _argument(self) -> Reading[None]:
        text, at = self._text, self._text.offset
        parts: list[str] = []
        yield from text.run(_IDENTIFIER, parts.append)
        name = "".join(parts)
        yield from text.skip()
        if not name.isidentifier() or (yield from text.need()) != "=":
            raise FormatMismatch("an argument has to be written as name=value", at)
        yield from text.expect("=")
        self._key(json.dumps(normalize("NFKC", name), ensure_ascii=False), at)
        yield from copy_literal(text, self._emit)

    def _spread(self) -> Reading[None]:
        text = self._text
        yield from text.expect("{")
        yield from text.skip()
        more = not (yield from text.meets("}"))
        while more:
            at = text.offset
            key: list[str] = []
            yield from copy_string(text, key.append)
            yield from text.expect(":")
            self._key("".join(key), at)
            yield from copy_literal(text, self._emit)
            more = yield from self._goes_on("}")

    def _key(self, key: str, at: int) -> None:
        """key: as JSON."""
        name = json.loads(key)
        if name in self._seen:
            raise FormatMismatch(f"the argument {name!r:.80} comes twice", at)
        self._emit(f", {key}: " if self._seen else f"{key}: ")
        self._seen.add(name)

    def _goes_on(self, closer: str) -> Reading[bool]:
        """Whether another one follows after a comma; if not, the closer is consumed."""
        text = self._text
        yield from text.skip()
        if (yield from text.meets(",")):
            yield from text.skip()
            return not (yield from text.meets(closer))
        yield from text.expect(closer)
        return False
