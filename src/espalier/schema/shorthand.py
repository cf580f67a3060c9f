"""Parses a one-line shorthand for object schemas: `name, age int, email?, tags str[]`.

    schema  = field { ("," | newline) field }
    field   = name [ "?" ] [ type ] [ ":" description ]
    type    = ("str" | "int" | "float" | "bool" | "{" schema "}" | "(" choice { "|" choice } ")") { "[]" } [ "?" ]

A field without a type is a string. `?` after the name or the type makes the field optional. A choice is a word or a
JSON string; a name may be a JSON string too. A description ends with its line, or, where the text has only one line, at
the comma; in quotes it may contain commas. The result is an object schema without additional properties. The syntax
follows the concise schemas of the `llm` tool.
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
    """The JSON Schema of a shorthand. Raises SchemaError with the position of the error."""
    reader = _ShorthandReader(text)
    reader.skip(SPACE)
    schema = reader.fields(end="", depth=0)
    if reader.place < len(text):
        raise reader.error(f"{text[reader.place]!r} is not expected")
    return schema


class _ShorthandReader:
    """One pass over the text; `place` is the offset of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        # With a line for each field, a description may contain commas.
        self.lines = "\n" in text.strip()

    def error(self, message: str, position: int | None = None) -> SchemaError:
        at = self.place if position is None else position
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
        """The JSON string that begins here, None if there is none."""
        start = self.place
        if not self.text.startswith('"', start):
            return None
        text = self.matched(STRING)
        if text is None:
            raise self.error("the quoted text does not end", start)
        try:
            value = json.loads(text)
        except ValueError as error:
            raise self.error("the quoted text is not a JSON string", start) from error
        return str(value)

    def fields(self, end: str, depth: int) -> dict[str, Any]:
        """All fields up to `end`, which is not consumed."""
        if depth > MAX_DEPTH:
            raise self.error(f"more than {MAX_DEPTH} nested objects")
        properties: dict[str, Any] = {}
        required: list[str] = []
        while True:
            start = self.place
            name = self.quoted()
            name = name if name is not None else self.matched(WORD)
            if name is None:
                shown = repr(self.text[start]) if start < len(self.text) else "the end"
                raise self.error(f"a field name was expected, not {shown}")
            if name in properties:
                raise self.error(f"{name!r} occurs twice", start)
            properties[name], optional = self.field(end, depth)
            required += [] if optional else [name]
            if not self.skip(SEPARATOR):
                self.skip(SPACE)
                break
            if self.place == len(self.text) or (end and self.text.startswith(end, self.place)):
                break
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def field(self, end: str, depth: int) -> tuple[dict[str, Any], bool]:
        """The schema after a field name, and whether the field is optional."""
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
        text = self.quoted()
        self.skip(BLANK)
        if text is not None and (self.place == len(self.text) or self.text[self.place] in (*stops, ",")):
            return text
        self.place = start
        stop = min((at for s in stops if (at := self.text.find(s, self.place)) >= 0), default=len(self.text))
        text, self.place = self.text[self.place : stop], stop
        return text.strip().removesuffix(",").rstrip()

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
                raise self.error(f"{word!r} is not a type (types are {known}, {{...}} and (a|b))", start)
            schema = {"type": TYPES[word or "str"]}
        while self.take("[]"):
            schema = {"type": "array", "items": schema}
        return schema

    def choices(self) -> dict[str, Any]:
        """`a|b|"c, d")`, including the closing bracket."""
        values: list[str] = []
        while True:
            self.skip(SPACE)
            start = self.place
            value = self.quoted()
            value = value if value is not None else self.matched(CHOICE)
            if value is None:
                raise self.error("a choice was expected")
            if value in values:
                raise self.error(f"{value!r} occurs twice", start)
            values.append(value)
            self.skip(SPACE)
            if self.take(")"):
                return {"type": "string", "enum": values}
            if not self.take("|"):
                raise self.error("'|' or ')' was expected")
