"""Splits the text of a Lark grammar into tokens; the JSON behind `%json` and `%regex` is one. It knows no syntax."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from espalier.errors import GrammarError, UnsupportedError
from espalier.time_limit import check as check_time

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\f\r]|\\\n|//[^\n]*|\#[^\n]*)+)|(?P<line>\n(?:[ \t\f\r\n]|//[^\n]*|\#[^\n]*)*)
    |(?P<json>%(?:json|regex)\b[ \t\f\r\n]*)
    |(?P<directive>%[a-z]+)|(?P<string>"(?:\\.|[^"\\\n])*"i?)|(?P<regex>/(?!/)(?:\\.|[^/\\\n])+/[imslux]*)
    |(?P<rule>[?!]{0,2}_?[a-z][_a-z0-9]*)|(?P<terminal>!?_?[A-Z][_A-Z0-9]*)|(?P<number>[0-9]+(?:\.[0-9]+)?)
    |(?P<mark>->|\.\.|[:|()\[\]?*+~.,{}<>=])""",
    re.VERBOSE,
)
_JSON = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class LarkToken:
    """One token. `line` counts from 1; `value`: the JSON behind `%json` or `%regex`."""

    kind: str
    text: str
    line: int
    value: Any = None

    @property
    def where(self) -> str:
        return f"line {self.line}, at {self.text[:30]!r}"

    def wrong(self, message: str) -> GrammarError:
        return GrammarError(f"{self.where}: {message}")

    def refuse(self, construct: str, hint: str | None = None) -> UnsupportedError:
        return UnsupportedError(f"{self.where}: {construct} of a Lark grammar cannot be translated exactly", hint=hint)


def split_tokens(source: str) -> list[LarkToken]:
    """The tokens without spaces and comments; kind `line` for line breaks. Raises GrammarError with the line."""
    tokens: list[LarkToken] = []
    offset, line = 0, 1
    while offset < len(source):
        check_time()
        match = _TOKEN.match(source, offset)
        if match is None:
            raise GrammarError(f"line {line}: this is not Lark: {source[offset : offset + 20]!r}")
        kind, end = match.lastgroup or "", match.end()
        if kind == "json":
            token, end = _read_json(source, match[0].strip(), line, end)
            tokens.append(token)
        elif kind != "space":
            tokens.append(LarkToken(kind, match[0], line))
        line += source.count("\n", offset, end)
        offset = end
    return tokens


def _read_json(source: str, directive: str, line: int, offset: int) -> tuple[LarkToken, int]:
    try:
        value, end = _JSON.raw_decode(source, offset)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"line {line}, at {directive!r}: JSON is expected: {str(error)[:200]}") from error
    return LarkToken("json", directive, line, value), end
