"""`close_json`: the object that a cut JSON text holds so far. It knows no calls.

{"city": "Par             ->  {"city": "Par"}
{"city": "Paris", "da     ->  {"city": "Paris"}
{"at": {"x": 1, "y": -    ->  {"at": {"x": 1}}
"""

from __future__ import annotations

import re
from typing import Final

from espalier.chat.reading.json_scan import CLOSERS, JsonScan, NotJson

TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
CUT_ESCAPE: Final = re.compile(r"(?<!\\)((?:\\\\)*)(\\u[dD][89abAB][0-9a-fA-F]{2})?(\\(?:u[0-9a-fA-F]{0,3})?)?\Z")
"""An escape at the end of a text that is not complete, with a high surrogate before it, which says nothing alone."""


def close_json(text: str) -> str:
    """The text up to its last complete value, or to the end of a cut string that is a value, with the closing brackets.

    A number at the very end is left out, since digits may be missing. Raises NotJson for a text that begins no JSON
    value."""
    if (end := JsonScan().feed(text)) < len(text):
        raise NotJson("the value has ended", end)
    open_closers: list[str] = []
    is_key = False
    closed = text
    for token in TOKEN.finditer(text):
        symbol, end = token[0], token.end()
        closing = ""
        if symbol in CLOSERS:
            open_closers.append(CLOSERS[symbol])
            is_key = symbol == "{"
        elif symbol in CLOSERS.values():
            open_closers.pop()
        elif symbol in (",", ":"):
            is_key = symbol == "," and open_closers[-1:] == ["}"]
            continue
        elif is_key:
            continue
        elif symbol[0] == '"':
            if not _ends(symbol):
                closing, end = '"', token.start() + len(CUT_ESCAPE.sub(r"\1", symbol))
        elif end == len(text) and symbol not in ("true", "false", "null"):
            continue
        closed = text[:end] + closing + "".join(reversed(open_closers))
    return closed


def _ends(string: str) -> bool:
    """Whether a string that begins with a quotation mark ends with one that is not escaped."""
    return len(string) > 1 and string.endswith('"') and (len(string) - len(string[:-1].rstrip("\\")) - 1) % 2 == 0
