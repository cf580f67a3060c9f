"""Convert Python literals to JSON while they are read: `{'a': (1, None)}` becomes `{"a": [1, null]}`.

Strings are streamed; numbers and words are passed on when complete. Calls are not known here.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Callable

from espalier.chat.reading.incoming import Emit, FormatMismatch, IncomingText, Reading
from espalier.chat.reading.json_scan import HEX

WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
"""Models also write JSON's words."""
CLOSERS = {"{": "}", "[": "]", "(": ")"}
QUOTES = "'\""
DECIDED = -1
MAX_HEX = 1000
"""The most characters of a number that is not decimal; decimal ones are copied without arithmetic."""
MAX_NAME = 100
r"""The most characters of a name in `\N{...}`; all Unicode names are shorter."""

_WORD = re.compile(r"\w*")
_NUMERIC = re.compile(r"[\w.]*")
_DIGITS = r"[0-9](?:_?[0-9])*"
_DECIMAL = re.compile(rf"(?P<whole>{_DIGITS})?(?:\.(?P<part>{_DIGITS})?)?(?:[eE](?P<exponent>[+-]?{_DIGITS}))?")
_BASED = re.compile(r"0(?:[xX](?:_?[0-9a-fA-F])+|[oO](?:_?[0-7])+|[bB](?:_?[01])+)")
_PLAIN = re.compile("[^'\"\\\\\\x00-\\x1f\ud800-\udfff]*")
_ESCAPES = {
    "\n": "",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def copy_literal(text: IncomingText, emit: Emit) -> Reading[None]:
    """Read one literal after any whitespace, and pass it on as JSON.

    Raises FormatMismatch after the fitting part was passed on, IncompleteText if the text ends within.
    """
    yield from _Literal(text, emit).read()


def copy_string(text: IncomingText, emit: Emit) -> Reading[None]:
    """Read one string, or several adjacent ones, and pass it on as one JSON string. Raises as `copy_literal`."""
    if (yield from text.need()) not in QUOTES:
        raise FormatMismatch("a string in quotes is missing", text.offset)
    emit('"')
    while (yield from text.need()) in QUOTES:
        yield from _body(text, emit)
        yield from text.skip()
    emit('"')


class _Literal:
    """Reads one literal with a stack instead of recursion.

    `(1)` is a number and `(1,)` a tuple: the content of such parentheses is held back until that is decided.
    """

    def __init__(self, text: IncomingText, emit: Emit) -> None:
        self._text = text
        self._told = emit
        self._closers: list[str] = []
        self._places: list[int] = []  # per open container: index in `_waiting` where its "[" may go, or DECIDED
        self._waiting: list[str] = []
        self._undecided = 0

    def read(self) -> Reading[None]:
        more = True
        while more:
            yield from self._text.skip()
            character = yield from self._text.need()
            if character in CLOSERS:
                more = (yield from self._open(character)) or (yield from self._goes_on())
            else:
                yield from _scalar(self._text, self._emit)
                more = yield from self._goes_on()

    def _emit(self, text: str) -> None:
        if self._undecided:
            self._waiting.append(text)
        else:
            self._told(text)

    def _open(self, opener: str) -> Reading[bool]:
        """Open a container; whether it has content."""
        text, closer = self._text, CLOSERS[opener]
        yield from text.take()
        yield from text.skip()
        if (yield from text.meets(closer)):
            self._emit("{}" if opener == "{" else "[]")
            return False
        self._closers.append(closer)
        if opener == "(":
            self._places.append(len(self._waiting))
            self._undecided += 1
            self._emit("")
        else:
            self._places.append(DECIDED)
            self._emit(opener)
            yield from self._key()
        return True

    def _key(self) -> Reading[None]:
        """Read what precedes a value: in a dict, its key."""
        if self._closers[-1] == "}":
            if (yield from self._text.need()) not in QUOTES:
                raise FormatMismatch("the keys of a dict are strings", self._text.offset)
            yield from copy_string(self._text, self._emit)
            yield from self._text.expect(":")
            self._emit(": ")

    def _goes_on(self) -> Reading[bool]:
        """Whether another value follows; closes the containers that end here."""
        text = self._text
        while self._closers:
            closer = self._closers[-1]
            yield from text.skip()
            if (yield from text.meets(",")):
                self._decide("[")
                yield from text.skip()
                if not (yield from text.meets(closer)):
                    self._emit(", ")
                    yield from self._key()
                    return True
            elif not (yield from text.meets(closer)):
                raise FormatMismatch(f"',' or {closer!r} is missing", text.offset)
            self._close()
        return False

    def _close(self) -> None:
        closer = self._closers.pop()
        is_group = self._places[-1] != DECIDED
        self._decide("")
        self._places.pop()
        if not is_group:
            self._emit("}" if closer == "}" else "]")

    def _decide(self, opener: str) -> None:
        """Decide how the innermost container begins, if that is open."""
        place = self._places[-1]
        if place == DECIDED:
            return
        self._waiting[place] = opener
        self._places[-1] = DECIDED
        self._undecided -= 1
        if not self._undecided:
            self._told("".join(self._waiting))
            self._waiting = []


def _scalar(text: IncomingText, emit: Emit) -> Reading[None]:
    character = yield from text.need()
    if character in QUOTES:
        yield from copy_string(text, emit)
    elif character in "+-." or character in "0123456789":
        yield from _number(text, emit)
    else:
        yield from _word(text, emit)


def _word(text: IncomingText, emit: Emit) -> Reading[None]:
    at = text.offset
    word = yield from _run(text, _WORD)
    if (yield from text.need()) in QUOTES and word:
        raise FormatMismatch(f"strings with a prefix, such as {word:.10}{'…' * (len(word) > 10)}'', are not taken", at)
    if word not in WORDS:
        raise FormatMismatch(f"{word:.40} is no literal" if word else "a value is missing", at)
    emit(WORDS[word])


def _number(text: IncomingText, emit: Emit) -> Reading[None]:
    at = text.offset
    sign = ""
    if (yield from text.need()) in "+-":
        sign = (yield from text.take()).strip("+")
        yield from text.skip()
    token = yield from _run(text, _NUMERIC)
    if token[-1:] in ("e", "E") and _DECIMAL.fullmatch(token[:-1]) and (yield from text.need()) in "+-":
        token += yield from text.take()
        token += yield from _run(text, _NUMERIC)
    emit(sign + _json_number(token, at))


def _json_number(token: str, at: int) -> str:
    if _BASED.fullmatch(token):
        if len(token) > MAX_HEX:
            raise FormatMismatch("the number is too long", at)
        return str(int(token.replace("_", ""), 0))
    match = _DECIMAL.fullmatch(token)
    if not match or not (match["whole"] or match["part"]):
        raise FormatMismatch(f"{token:.40} is no number" if token else "a number is missing", at)
    whole, part, exponent = ((match[name] or "").replace("_", "") for name in ("whole", "part", "exponent"))
    stripped = whole.lstrip("0")
    if not exponent and "." not in token:
        if stripped and stripped != whole:
            raise FormatMismatch("a number begins with 0", at)
        return stripped or "0"
    return f"{stripped or '0'}{'.' + (part or '0') if '.' in token else ''}{'e' + exponent if exponent else ''}"


def _run(text: IncomingText, wanted: re.Pattern[str]) -> Reading[str]:
    parts: list[str] = []
    yield from text.run(wanted, parts.append)
    yield from text.need()
    return "".join(parts)


# Strings


def _body(text: IncomingText, emit: Emit) -> Reading[None]:
    """Read one string with its quotes, and pass on its content without quotes."""
    quote = end = yield from text.take()
    if (yield from text.meets(quote)):
        if not (yield from text.meets(quote)):
            return
        end = quote * 3
    while True:
        yield from text.run(_PLAIN, emit)
        character = yield from text.need()
        if character == quote and (yield from text.meets(end)):
            return
        if character in "\r\n" and end == quote:
            raise FormatMismatch("a string ends on the line where it begins", text.offset)
        yield from text.take()
        if character == "\\":
            yield from _escape(text, emit)
        else:
            emit(_quote_for_json(character))


def _escape(text: IncomingText, emit: Emit) -> Reading[None]:
    at = text.offset
    character = yield from text.take()
    if character == "\r":
        yield from text.meets("\n")
    elif character in _ESCAPES:
        emit(_quote_for_json(_ESCAPES[character]))
    elif character in _CODES:
        emit(_quote_for_json((yield from _CODES[character](text, at))))
    elif character in "01234567":
        emit(_quote_for_json((yield from _octal(text, character))))
    else:
        emit("\\\\" + _quote_for_json(character))  # Python keeps unknown escapes as they are


def _hex(count: int) -> Callable[[IncomingText, int], Reading[str]]:
    def read(text: IncomingText, at: int) -> Reading[str]:
        digits = ""
        for _ in range(count):
            digits += yield from text.take()
            if digits[-1] not in HEX:
                raise FormatMismatch("a digit of an escape is missing", text.offset - 1)
        if int(digits, 16) > sys.maxunicode:
            raise FormatMismatch("there is no such character", at)
        return chr(int(digits, 16))

    return read


def _octal(text: IncomingText, digits: str) -> Reading[str]:
    while len(digits) < 3 and (yield from text.need()) in "01234567":
        digits += yield from text.take()
    return chr(int(digits, 8))


def _read_named_character(text: IncomingText, at: int) -> Reading[str]:
    name = yield from text.take()
    while name[0] == "{" and name[-1] != "}" and len(name) < MAX_NAME:
        name += yield from text.take()
    try:
        return unicodedata.lookup(name[1:-1] if name[0] == "{" and name[-1] == "}" else "")
    except KeyError:
        raise FormatMismatch("there is no such character", at) from None


_CODES = {"x": _hex(2), "u": _hex(4), "U": _hex(8), "N": _read_named_character}


def _quote_for_json(text: str) -> str:
    """Characters escaped for a JSON string."""
    return "".join(_SHORT.get(c) or (f"\\u{ord(c):04x}" if c < " " or "\ud800" <= c <= "\udfff" else c) for c in text)
