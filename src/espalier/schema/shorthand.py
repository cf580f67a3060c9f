"""JSON Schema in one line: `name, age int, email?, tags str[]`.

    schema  = field { ("," | newline) field }
    field   = name [ "?" ] [ type ] [ ":" description ]
    type    = ("str" | "int" | "float" | "bool" | "{" schema "}" | "(" choice { "|" choice } ")") { "[]" } [ "?" ]

A field without a type is a string. `?`, behind the name or the type, makes it optional. A choice is a word or a text in
double quotes, as JSON writes it; a name may be in quotes too. A description runs to the end of the line, or, where
there is but one line, to the comma; in quotes it may hold commas. The result is an object and nothing else is allowed
in it. The style is that of the `llm` tool's concise schemas.
"""

from __future__ import annotations

import json
import re
from typing import Any

from espalier.errors import SchemaError, excerpt

TYPES = {
    "str": "string",
    "string": "string",
    "int": "integer",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "bool": "boolean",
    "boolean": "boolean",
}

MAX_DEPTH = 32

WORD = re.compile(r"[^\W\d][\w$-]*")
CHOICE = re.compile(r"[^\s,|(){}\[\]\"?:]+(?: +[^\s,|(){}\[\]\"?:]+)*")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
BLANK = re.compile(r"[ \t\r]*")
SPACE = re.compile(r"\s*")
SEPARATOR = re.compile(r"[ \t\r]*[,\n][\s,]*")


def parse_shorthand(text: str) -> dict[str, Any]:
    """The schema that a shorthand stands for. Raises SchemaError with the position of what is wrong in it."""
    reader = _Reader(text)
    reader.skip(SPACE)
    schema = reader.fields(end="", depth=0)
    if reader.place < len(text):
        raise reader.error(f"{text[reader.place]!r} is not expected")
    return schema


class _Reader:
    """One pass over the text; `place` is the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        # A description may hold commas where each field has a line of its own.
        self.lines = "\n" in text.strip()

    def error(self, message: str, place: int | None = None) -> SchemaError:
        at = self.place if place is None else place
        shown = excerpt(self.text, at)
        return SchemaError(f"{message}, at character {at}: {shown}", hint='for example "name, age int, tags str[]"')

    def skip(self, pattern: re.Pattern[str]) -> bool:
        match = pattern.match(self.text, self.place)
        assert match is not None or pattern is SEPARATOR
        if match is None:
            return False
        self.place = match.end()
        return True

    def take(self, text: str) -> bool:
        if not self.text.startswith(text, self.place):
            return False
        self.place += len(text)
        return True

    def matched(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.place)
        if match is None:
            return None
        self.place = match.end()
        return match.group()

    def quoted(self) -> str | None:
        """A JSON string, if one begins here."""
        start = self.place
        if not self.text.startswith('"', start):
            return None
        found = self.matched(STRING)
        if found is None:
            raise self.error("the quoted text does not end", start)
        try:
            value = json.loads(found)
        except ValueError as error:
            raise self.error("the quoted text is no JSON string", start) from error
        return str(value)

    def fields(self, end: str, depth: int) -> dict[str, Any]:
        """Up to `end`, which is not taken; the place is at the first field."""
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} objects in one another")
        properties: dict[str, Any] = {}
        required: list[str] = []
        while True:
            start = self.place
            name = self.quoted()
            name = name if name is not None else self.matched(WORD)
            if name is None:
                found = repr(self.text[start]) if start < len(self.text) else "the end"
                raise self.error(f"a field name was expected, not {found}")
            if name in properties:
                raise self.error(f"{name!r} is there twice", start)
            properties[name], optional = self.field(end, depth)
            required += [] if optional else [name]
            if not self.skip(SEPARATOR):
                self.skip(SPACE)
                break
            if self.place == len(self.text) or (end and self.text.startswith(end, self.place)):
                break
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def field(self, end: str, depth: int) -> tuple[dict[str, Any], bool]:
        """The schema behind a name, and whether it is optional."""
        optional = self.take("?")
        self.skip(BLANK)
        schema = self.type(depth)
        optional = self.take("?") or optional
        self.skip(BLANK)
        if self.take(":"):
            text = self.description(end)
            schema |= {"description": text} if text else {}
        return schema, optional

    def description(self, end: str) -> str:
        self.skip(BLANK)
        stops = ["\n", *([] if self.lines else [","]), *([end] if end else [])]
        start = self.place
        found = self.quoted()
        self.skip(BLANK)
        if found is not None and (self.place == len(self.text) or self.text[self.place] in (*stops, ",")):
            return found
        self.place = start
        stop = min((at for s in stops if (at := self.text.find(s, self.place)) >= 0), default=len(self.text))
        found, self.place = self.text[self.place : stop], stop
        return found.strip().removesuffix(",").rstrip()

    def type(self, depth: int) -> dict[str, Any]:
        start = self.place
        schema: dict[str, Any]
        if self.take("{"):
            self.skip(SPACE)
            schema = self.fields("}", depth + 1)
            if not self.take("}"):
                raise self.error("'}' was expected")
        elif self.take("("):
            schema = self.choices()
        else:
            word = self.matched(WORD)
            if word is not None and word not in TYPES:
                known = ", ".join(["str", "int", "float", "bool"])
                raise self.error(f"{word!r} is no type (there are {known}, {{...}} and (a|b))", start)
            schema = {"type": TYPES[word or "str"]}
        while self.take("[]"):
            schema = {"type": "array", "items": schema}
        return schema

    def choices(self) -> dict[str, Any]:
        """`a|b|"c, d")`; the bracket is taken."""
        found: list[str] = []
        while True:
            self.skip(SPACE)
            start = self.place
            value = self.quoted()
            value = value if value is not None else self.matched(CHOICE)
            if value is None:
                raise self.error("a choice was expected")
            if value in found:
                raise self.error(f"{value!r} is there twice", start)
            found.append(value)
            self.skip(SPACE)
            if self.take(")"):
                return {"type": "string", "enum": found}
            if not self.take("|"):
                raise self.error("'|' or ')' was expected")
