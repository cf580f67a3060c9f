"""Values written in every spelling that JSON has, and the pieces that are inserted into JSON texts."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

from espalier.grammar.json_mode import JsonWhitespace

LIKED = b'"\\/u{}[],:0n'
"""Bytes that JSON treats specially."""
SPACES = ("", "", "", " ", "\n", "\t ")
INSERTED = (
    '\\"',
    "\\\\",
    "\\/",
    "/",
    "\\u0000",
    "\\u001f",
    "\\u007f",
    "\x7f",
    "é",
    "\\u00e9",
    "😀",
    "\\ud83d\\ude00",
    "\u2028",
    "\\n",
    "\\u0061",
    "\\u0022",
    "\\u005C",
    '"',
    "\\",
    "x",
)


TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s{}\[\],:"]+|[{}\[\],:]')
FIXED = {
    "natural": {"separators": (", ", ": ")},
    "compact": {"separators": (",", ":")},
    "indented": {"indent": 2},
    "flexible": {"indent": 1},
}


def styled(value: Any, whitespace: JsonWhitespace) -> str:
    """The value as `json.dumps` writes it in that style."""
    return json.dumps(value, ensure_ascii=False, **FIXED[whitespace])  # type: ignore[arg-type]


def is_styled(text: str, whitespace: JsonWhitespace) -> bool:
    """Whether the whitespace of a JSON text is that of the style, whatever the values are."""
    if whitespace == "flexible":
        return True
    tokens = TOKENS.findall(text)
    compact = "".join(tokens)
    if whitespace == "compact":
        return text == compact
    if whitespace == "natural":
        gaps = re.split(TOKENS, text)[1:]
        return all(gap == "" or (gap == " " and token in ",:") for token, gap in zip(tokens, gaps, strict=True)) and (
            text.startswith(tokens[0])
        )
    return text == _indented(tokens)


def _indented(tokens: list[str]) -> str:
    """The tokens of a JSON text with two spaces a level, and empty containers closed."""
    found, depth = [], 0
    for place, token in enumerate(tokens):
        is_empty = place > 0 and tokens[place - 1] + token in ("{}", "[]")
        if token in "}]":
            depth -= 1
            if not is_empty:
                found.append("\n" + "  " * depth)
        elif place and tokens[place - 1] in "{[,":
            found.append("\n" + "  " * depth)
        found.append(token + (" " if token == ":" else ""))
        depth += token in ("{", "[")
    return "".join(found)


def spelled(value: Any, random: Random) -> str:
    """The value as JSON, with whitespace, escapes, orders of keys and forms of numbers drawn at random."""
    space = random.choice(SPACES)
    if isinstance(value, dict):
        names = list(value)
        if random.random() < 0.5:
            random.shuffle(names)
        if names and random.random() < 0.1:
            names.append(random.choice(names))  # a name that stands twice
        inner = f",{space}".join(f"{_text(name, random)}:{space}{spelled(value[name], random)}" for name in names)
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{f',{space}'.join(spelled(one, random) for one in value)}]"
    if isinstance(value, str):
        return _text(value, random)
    if isinstance(value, bool) or value is None:
        return json.dumps(value)
    return _number(value, random)


def _text(value: str, random: Random) -> str:
    how = random.random()
    if how < 0.5:
        return json.dumps(value, ensure_ascii=False)
    if how < 0.7:
        return json.dumps(value)
    return '"' + "".join(_char(char, random) for char in value) + '"'


def _char(char: str, random: Random) -> str:
    if char == "/" and random.random() < 0.5:
        return "\\/"
    if random.random() < 0.4:
        units = char.encode("utf-16-be", "surrogatepass")
        codes = [units[i : i + 2].hex() for i in range(0, len(units), 2)]
        return "".join(f"\\u{code.upper() if random.random() < 0.5 else code}" for code in codes)
    return json.dumps(char, ensure_ascii=False)[1:-1]


def _number(value: float, random: Random) -> str:
    plain = json.dumps(value)
    forms = [plain]
    if isinstance(value, int):
        forms += [f"{value}.0", f"{value}e0", f"{value}E+0"]
        if value and value % 100 == 0:
            forms.append(f"{value // 100}e2")
        if value == 0:
            forms += ["-0", "0.00", "-0.0"]
    return random.choice(forms) if random.random() < 0.3 else plain
