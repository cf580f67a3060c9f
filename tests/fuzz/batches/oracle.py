"""Judges an input of a batch by plain code of its own: which lines are items, and which are faults of which kind.

It shares no code with `espalier.jobs`: lines are split by hand, JSON is read by Python's reader with checks of its own.
"""

from __future__ import annotations

import csv
import io
import json
from typing import Any

NAMES = {"custom_id", "method", "url", "body"}
Judged = tuple[int, str]
"""A line, and its custom_id after `ok:`, or the code of its fault."""


def strict(raw: bytes) -> Any:
    """A JSON text. Raises ValueError for what no JSON standard allows, for names that stand twice, for lone
    surrogates."""

    def whole(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({name for name, _ in pairs}) < len(pairs):
            raise ValueError("a name stands twice")
        return dict(pairs)

    def no(name: str) -> Any:
        raise ValueError(name)

    value = json.loads(raw.decode("utf-8"), object_pairs_hook=whole, parse_constant=no)
    _encodable(value)
    return value


def _encodable(value: Any) -> None:
    if isinstance(value, str):
        value.encode("utf-8")  # a lone surrogate raises UnicodeEncodeError, a ValueError
    for one in value.items() if isinstance(value, dict) else value if isinstance(value, list) else ():
        for part in one if isinstance(value, dict) else (one,):
            _encodable(part)


def lines_of(content: bytes) -> list[tuple[int, bytes]]:
    """The lines that hold something, by number from 1. A line ends with a line feed."""
    found = []
    for number, raw in enumerate(content.split(b"\n"), 1):
        bare = raw.strip(b" \t\r\n\x0b\x0c")
        if bare:
            found.append((number, raw))
    return found


def judge(content: bytes, endpoint: str, most_bytes: int) -> list[Judged]:
    """What each line of an input in OpenAI's form is."""
    seen: set[str] = set()
    found: list[Judged] = []
    for number, raw in lines_of(content):
        is_last = content.count(b"\n") == number - 1
        if len(raw) + (not is_last) > most_bytes + (not is_last):
            found.append((number, "line_too_long"))
            continue
        text = raw[3:] if number == 1 and raw.startswith(b"\xef\xbb\xbf") else raw
        found.append((number, _judge_line(text, endpoint, seen)))
    return found or [(0, "empty_file")]


def _judge_line(text: bytes, endpoint: str, seen: set[str]) -> str:
    try:
        value = strict(text)
    except (ValueError, RecursionError):
        return "invalid_json_line"
    if not isinstance(value, dict):
        return "invalid_json_line"
    if set(value) - NAMES:
        return "unknown_field"
    name, body = value.get("custom_id"), value.get("body")
    if not isinstance(name, str) or name == "":
        return "missing_custom_id"
    if len(name) > 512 or "\x00" in name:
        return "invalid_custom_id"
    if value.get("method") != "POST":
        return "invalid_method"
    if value.get("url") != endpoint:
        return "mismatched_endpoint"
    if not isinstance(body, dict):
        return "missing_body"
    if body.get("stream"):
        return "stream_not_supported"
    if name in seen:
        return "duplicate_custom_id"
    seen.add(name)
    return f"ok:{name}"


def table(content: bytes) -> list[dict[str, str]] | str:
    """The rows of a CSV file; for one that must be refused the line of the first fault, `other` for no line,
    `any` for one that is not UTF-8 at some place, before which it may have another fault."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return "any"
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row and rows and len(row) != len(rows[0]):
                return str(reader.line_num)
            if row and not rows and len(set(row)) < len(row):
                return "other"
            rows += [row] if row else []
    except csv.Error:
        return str(reader.line_num)
    return [dict(zip(rows[0], one, strict=True)) for one in rows[1:]]


def json_rows(content: bytes) -> list[dict[str, Any]] | int:
    """The rows of a JSON Lines table, or the line of the first fault."""
    found = []
    for number, raw in lines_of(content):
        try:
            value = strict(raw[3:] if number == 1 and raw.startswith(b"\xef\xbb\xbf") else raw)
        except (ValueError, RecursionError):
            return number
        if not isinstance(value, dict):
            return number
        found.append(value)
    return found
