"""Draws inputs of batches with everything that goes wrong in files: byte order marks, line ends, encodings, types."""

from __future__ import annotations

import json
from random import Random
from typing import Any

ENDPOINT = "/v1/completions"
VALUES: tuple[Any, ...] = (None, True, 0, -1.5, "", "x", [], {}, ["é"], {"a": {}}, "\u2028", "a\x00b", "x" * 513)
BROKEN = (
    b"\xff",
    b"\xc3(",
    b"\xed\xa0\x80",
    b"\x00",
    b'"\\ud800"',
    b"NaN",
    b'{"a":1,"a":2}',
    b"{",
    b"[1",
    b"1 2",
    b"nul",
)
BLANK = (b"", b"  ", b"\t", b"\r", b"\x0b", b" \x0c ")
MARK = b"\xef\xbb\xbf"


def request(random: Random, number: int) -> dict[str, Any]:
    """A line of a batch, with a fault or two in one of three."""
    line: dict[str, Any] = {
        "custom_id": f"c{number}",
        "method": "POST",
        "url": ENDPOINT,
        "body": {"prompt": random.choice(("a", "é", "\U0001f600", "a\nb"))},
    }
    for _ in range(random.choice((0, 0, 0, 0, 1, 1, 2))):
        match random.randrange(6):
            case 0:
                line[random.choice(list(line) or ["url"])] = random.choice(VALUES)
            case 1:
                line.pop(random.choice(list(line) or ["url"]), None)
            case 2:
                line[random.choice(("Method", "id", "", "é"))] = 1
            case 3:
                line["custom_id"] = f"c{random.randrange(1, number + 1)}"
            case 4:
                line["body"] = {"stream": random.choice(VALUES)}
            case _:
                line["custom_id"] = random.choice(("x" * 512, "é", " ", "c1", "\U0001f600" * 512))
    return line


def lines(random: Random, most_bytes: int) -> bytes:
    """A file of JSON Lines. most_bytes: of a line; some have just as many, some one more."""
    made = [MARK] if random.random() < 0.2 else []
    for number in range(1, random.choice((1, 2, 8, 20)) + 1):
        text = json.dumps(request(random, number), ensure_ascii=random.random() < 0.5).encode("utf-8", "surrogatepass")
        drawn = random.random()
        if drawn < 0.08:
            text = random.choice(BLANK)
        elif drawn < 0.16:
            text = random.choice(BROKEN)
        elif drawn < 0.24:
            cut = random.randrange(len(text))
            text = text[:cut] + random.choice(BROKEN) + text[cut + random.randrange(3) :]
        elif drawn < 0.3:
            text = text.ljust(most_bytes + random.choice((-1, 0, 1, 2, 3000)))
        elif drawn < 0.33:
            text = MARK + text
        made += [text, random.choice((b"\n", b"\n", b"\n", b"\r\n", b"\n\n"))]
    if random.random() < 0.4 and made[-1:] != [MARK]:
        made.pop()
    return b"".join(made)


def comma_table(random: Random) -> bytes:
    """A CSV file."""
    cells = ("a", "1", "", "é", '"x,y"', '"a""b"', '"a\nb"', " x", '"', 'a"b', '"a"b', "\u2028")
    width = random.randrange(1, 4)
    head = random.sample(["id", "text", "custom_id", "é", ""], width)
    if random.random() < 0.05:
        head = [head[0]] * width
    rows = [",".join(head)]
    for _ in range(random.randrange(6)):
        some = width if random.random() < 0.93 else random.randrange(1, 5)
        rows.append("" if random.random() < 0.05 else ",".join(random.choice(cells) for _ in range(some)))
    text = random.choice(("\n", "\r\n", "\r")).join(rows) + random.choice(("", "\n", "\n\n"))
    raw = (MARK if random.random() < 0.2 else b"") + text.encode()
    if random.random() < 0.1:
        cut = random.randrange(len(raw) + 1)
        raw = raw[:cut] + random.choice((b"\xff", b"\xc3", b"\x00")) + raw[cut:]
    return raw


def columns(random: Random) -> dict[str, list[Any]]:
    """The columns of a Parquet file, each of one type."""
    count = random.randrange(5)
    kinds: tuple[tuple[Any, ...], ...] = (
        ("a", "é", "", None),
        (1, -2, None),
        (0.5, None),
        (True, False),
        (["a"], [], None),
    )
    return {
        name: [random.choice(kind) for _ in range(count)]
        for name, kind in zip(("id", "text", "é"), random.choices(kinds, k=3), strict=True)
    }
