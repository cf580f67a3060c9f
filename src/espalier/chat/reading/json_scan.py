"""`JsonScan`: an incremental parser of one strict JSON value; it refuses the first character that does not fit.

It keeps the open containers and the state, never the text. `NaN` and `Infinity` are refused; duplicate names are
accepted. Calls and coroutines are not known here. Unlike `grammar/json_position.py` it works on characters, skips
strings in runs, and says what is wrong and where.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

SPACE: Final = " \t\n\r"
CLOSERS: Final = {"{": "}", "[": "]"}
LITERALS: Final = {word[0]: word for word in ("true", "false", "null")}
PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]*')
HEX: Final = frozenset("0123456789abcdefABCDEF")
ESCAPED: Final = frozenset('"\\/bfnrt')


class NotJson(ValueError):
    """at: the position in the text that was fed; everything before it fits."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


def _number_table() -> dict[str, dict[str, str]]:
    """(part of a number, character) -> next part."""
    digits = "0123456789"
    exponent = dict.fromkeys("eE", "e")
    first = {"0": "0", **dict.fromkeys(digits[1:], "int")}
    return {
        "": {"-": "-", **first},
        "-": first,
        "0": {".": ".", **exponent},
        "int": {".": ".", **exponent, **dict.fromkeys(digits, "int")},
        ".": dict.fromkeys(digits, "frac"),
        "frac": {**exponent, **dict.fromkeys(digits, "frac")},
        "e": {**dict.fromkeys("+-", "e+"), **dict.fromkeys(digits, "exp")},
        "e+": dict.fromkeys(digits, "exp"),
        "exp": dict.fromkeys(digits, "exp"),
    }


NUMBER: Final = _number_table()
NUMBER_ENDS: Final = frozenset(("0", "int", "frac", "exp"))


class JsonScan:
    """The state within one value. Whitespace before the value is read, whitespace after it is not."""

    __slots__ = ("_closers", "_digits", "_is_key", "_part", "_state", "_word_left", "is_done")

    def __init__(self) -> None:
        self._closers: list[str] = []  # of the open containers, innermost last
        self._state: Callable[[str, int], int] = self._value
        self._is_key = False
        self._part = ""  # the part of a number
        self._word_left = ""  # remaining characters of a literal
        self._digits = 0  # remaining digits of an escape
        self.is_done = False

    @property
    def is_whole(self) -> bool:
        """Whether the text may end here. A top-level number is done only when something follows it."""
        return self.is_done or (not self._closers and self._state == self._number and self._part in NUMBER_ENDS)

    def feed(self, text: str, at: int = 0) -> int:
        """Read from position `at` to the end of the text or of the value; returns the position after what was read.

        Raises NotJson; nothing may be fed afterwards.
        """
        while at < len(text) and not self.is_done:
            at = self._state(text, at)
        return at

    # Each state function reads at least one character or changes the state.

    def _value(self, text: str, at: int) -> int:
        character = text[at]
        if character in SPACE:
            return at + 1
        if character == '"':
            self._state, self._is_key = self._string, False
        elif character in CLOSERS:
            self._closers.append(CLOSERS[character])
            self._state = self._first_key if character == "{" else self._first_item
        elif character in LITERALS:
            self._state, self._word_left = self._word, LITERALS[character][1:]
        elif character in NUMBER[""]:
            self._state, self._part = self._number, NUMBER[""][character]
        else:
            raise NotJson("a value is missing", at)
        return at + 1

    def _first_item(self, text: str, at: int) -> int:
        return self._after(text, at) if text[at] == "]" else self._value(text, at)

    def _first_key(self, text: str, at: int) -> int:
        return self._after(text, at) if text[at] == "}" else self._key(text, at)

    def _key(self, text: str, at: int) -> int:
        if text[at] == '"':
            self._state, self._is_key = self._string, True
        elif text[at] not in SPACE:
            raise NotJson("a name in quotes is missing", at)
        return at + 1

    def _colon(self, text: str, at: int) -> int:
        if text[at] == ":":
            self._state = self._value
        elif text[at] not in SPACE:
            raise NotJson("':' is missing", at)
        return at + 1

    def _after(self, text: str, at: int) -> int:
        """After a value in a container."""
        closer = self._closers[-1]
        if text[at] == closer:
            self._closers.pop()
            self._end()
        elif text[at] == ",":
            self._state = self._key if closer == "}" else self._value
        elif text[at] not in SPACE:
            raise NotJson(f"',' or {closer!r} is missing", at)
        return at + 1

    def _end(self) -> None:
        self._state = self._after
        self.is_done = not self._closers

    def _string(self, text: str, at: int) -> int:
        match = PLAIN.match(text, at)
        at = match.end() if match else at
        if at == len(text):
            return at
        if text[at] == "\\":
            self._state = self._escape
        elif text[at] != '"':
            raise NotJson("a control character in a string has to be escaped", at)
        elif self._is_key:
            self._state = self._colon
        else:
            self._end()
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        if text[at] == "u":
            self._state, self._digits = self._hex, 4
        elif text[at] in ESCAPED:
            self._state = self._string
        else:
            raise NotJson("there is no such escape", at)
        return at + 1

    def _hex(self, text: str, at: int) -> int:
        if text[at] not in HEX:
            raise NotJson("a digit of an escape is missing", at)
        self._digits -= 1
        if not self._digits:
            self._state = self._string
        return at + 1

    def _word(self, text: str, at: int) -> int:
        if text[at] != self._word_left[0]:
            raise NotJson("there is no such word", at)
        self._word_left = self._word_left[1:]
        if not self._word_left:
            self._end()
        return at + 1

    def _number(self, text: str, at: int) -> int:
        while at < len(text):
            part = NUMBER[self._part].get(text[at])
            if part is None:
                if self._part not in NUMBER_ENDS:
                    raise NotJson("a digit is missing", at)
                self._end()
                return at
            self._part = part
            at += 1
        return at
