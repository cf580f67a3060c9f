"""Damages files: bytes, numbers of fixed width, lines, and the values of a JSON text."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from random import Random
from typing import Any

BYTES = (
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\xc3",
    b"\xed\xa0\x80",
    b'"',
    b"{",
    b"[" * 300,
    b"}",
    b",",
    b"\n",
    b"\r",
    b"\\u0000",
    b"\\ud800",
    b"1e999",
    b"-",
    b"9" * 5000,
    b"NaN",
    b"{{",
    b"'''",
    b"#",
    b"\x1b[2J",
)
NUMBERS = (
    0,
    1,
    2,
    4,
    255,
    1 << 15,
    (1 << 16) - 1,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53,
    2**63,
    10**400,
    0.5,
    -0.0,
    1e308,
    float("inf"),
    float("nan"),
    "",
    " ",
    "x",
    "\0",
    "\ud800",
    "é" * 300,
    "x" * 100_000,
    [],
    {},
    [[]],
    {"": {}},
    [0] * 1000,
    "1e400",
    "/dev/zero",
    "../x",
)
DEEPER = 0.85
"""How often the value that is changed stands inside of another one."""
MOST = 4 << 20
"""Bytes of a damaged file."""


def damaged(content: bytes, random: Random, most: int = MOST) -> bytes:
    """Some changes; of the values where the content is JSON, in two of three cases. most: bytes of the result. What is
    put in is smaller then, since JSON that is cut is no JSON."""
    if content[:1] in (b"{", b"[") and random.random() < 0.67:
        try:
            data = json.loads(content)
        except (ValueError, RecursionError):  # no JSON, or too deep to be read
            data = None
        if data is not None:
            for _ in range(random.choice((1, 1, 1, 2, 4))):
                data = revalued(data, random, most)
            with suppress(ValueError, RecursionError):  # it holds itself, or is too deep to be written
                content = json.dumps(data, ensure_ascii=random.random() < 0.9).encode("utf-8", "surrogatepass")
            if random.random() < 0.8:
                return content[:most]
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        content = _CHANGES[random.randrange(len(_CHANGES))](content, random, most)[:most]
    return content


def revalued(data: Any, random: Random, most: int) -> Any:
    """The data, with one value changed, taken away, renamed, repeated or nested."""
    root = [data]
    holder, key = _place_in(root, random)
    how = random.randrange(8)
    if how < 3:
        holder[key] = _fresh(random.choice(VALUES), most)
    elif how == 3 and holder is not root:
        del holder[key]
    elif how == 4 and isinstance(holder, dict):
        holder[random.choice(("", "x", "type", "id", "\ud800", "a" * min(5000, most // 4)))] = holder.pop(key)
    elif how == 5:
        times = random.choice((0, 2, 300))
        holder[key] = [holder[key]] * min(times, most // _length(holder[key]) + 1)
    elif how == 6:
        value = holder[key]
        for _ in range(random.choice((2, 70, 150, min(400, most // 8)))):
            value = [value] if random.random() < 0.5 else {"a": value}
        holder[key] = value
    else:
        other, name = _place_in(root, random)
        holder[key] = other[name]
    return root[0]


def _place_in(root: list[Any], random: Random) -> tuple[Any, Any]:
    """Where some value of the data stands: a walk down from the root. A list of all places costs more than reading most
    inputs."""
    holder: Any = root
    key: Any = 0
    while isinstance(value := holder[key], list | dict) and value and random.random() < DEEPER:
        holder, key = value, random.choice(list(value)) if isinstance(value, dict) else random.randrange(len(value))
    return holder, key


def _length(value: Any) -> int:
    try:
        return len(json.dumps(value))
    except (ValueError, RecursionError):  # it holds itself, or is too deep to be written
        return MOST


def _fresh(value: Any, most: int) -> Any:
    """The value, or its begin where it is long; a copy, so that a change of it does not change the table."""
    if isinstance(value, str | list):
        value = value[: most // 8]
    return copy.deepcopy(value)


def _flip(content: bytes, random: Random, most: int) -> bytes:
    out = bytearray(content)
    for _ in range(random.choice((1, 1, 3, 20))):
        if out:
            out[random.randrange(len(out))] = random.randrange(256)
    return bytes(out)


def _insert(content: bytes, random: Random, most: int) -> bytes:
    at = random.randrange(len(content) + 1)
    return content[:at] + random.choice(BYTES) * random.choice((1, 1, 50)) + content[at:]


def _cut(content: bytes, random: Random, most: int) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _remove(content: bytes, random: Random, most: int) -> bytes:
    at, count = random.randrange(len(content) + 1), random.choice((1, 4, 100, 5000))
    return content[:at] + content[at + count :]


def _repeat(content: bytes, random: Random, most: int) -> bytes:
    at, count = random.randrange(len(content) + 1), random.choice((1, 4, 30, 400))
    times = min(random.choice((2, 40, 2000)), most // count + 1)
    return content[:at] + content[at : at + count] * times + content[at + count :]


def _number(content: bytes, random: Random, most: int) -> bytes:
    wide = random.choice((2, 4, 8))
    at = random.randrange(max(1, min(len(content), 1 << random.choice((6, 10, 24)))))
    value = random.choice(NUMBERS) & ((1 << (8 * wide)) - 1)
    return content[:at] + value.to_bytes(wide, "little") + content[at + wide :]


def _lines(content: bytes, random: Random, most: int) -> bytes:
    lines = content.split(b"\n")
    line = random.choice(lines)
    lines[random.randrange(len(lines))] = line * min(random.choice((0, 1, 2, 500)), most // (len(line) + 1) + 1)
    return b"\n".join(lines)


_CHANGES = (_flip, _flip, _insert, _insert, _cut, _remove, _repeat, _number, _number, _lines)
