"""Reads the input of a batch, item by item in flat memory, and finds faults with their lines: JSON Lines, or a list.

What is wrong with the form of a line is an `InputFault`, which refuses the batch. What is wrong with a body is for a
route to say. It knows neither routes nor databases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from espalier.errors import InputError, TooLarge
from espalier.files.json_shape import check_shape
from espalier.files.limits import BATCH
from espalier.jobs.values import InputFault

MOST_LINES = 50_000
LINE_BYTES = 8_000_000
"""A line holds one body; routes take less."""
CUSTOM_ID = 512
"""Characters of a custom_id."""
PIECE = 1 << 20
_DECODER = json.JSONDecoder()
_SPACE = " \t\r\n"


class Refused(InputError):
    """This is not the input of a batch."""

    def __init__(self, fault: InputFault) -> None:
        self.fault = fault
        super().__init__(fault.message, field=fault.param)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """number: from 1. size: bytes."""

    number: int
    custom_id: str
    body: Mapping[str, Any]
    size: int


@dataclass(slots=True)
class LineReader:
    """Reads OpenAI's input lines. endpoint: what every line must name."""

    endpoint: str
    most: int = MOST_LINES
    _ids: dict[bytes, int] = field(default_factory=dict)  # digests, so that long ids take no more room than short ones

    def read(self, file: BinaryIO) -> Iterator[Line | InputFault]:
        """Every line, or what is wrong with it; empty lines are left out. Ends after a fault of the whole file."""
        count = 0
        for number, raw in enumerate(_raw_lines(file), 1):
            if raw is None:
                count += 1
                yield InputFault(code="line_too_long", message=f"the line has over {LINE_BYTES:,} bytes", line=number)
                continue
            if not raw.strip():
                continue
            count += 1
            if count > self.most:
                yield InputFault(code="too_many_lines", message=f"a batch has at most {self.most:,} lines", line=number)
                return
            try:
                yield self._line(number, raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw)
            except Refused as error:
                yield error.fault
        if not count:
            yield InputFault(code="empty_file", message="the file has no lines")

    def _line(self, number: int, raw: bytes) -> Line:
        fields = parse(raw, line=number)

        def wrong(code: str, message: str, param: str) -> Refused:
            return Refused(InputFault(code=code, message=message, line=number, param=param))

        if not isinstance(fields, dict):
            raise wrong("invalid_json_line", "the line is no JSON object", "body")
        unknown = sorted(set(fields) - {"custom_id", "method", "url", "body"})
        if unknown:
            raise wrong("unknown_field", f"a line has no field {unknown[0][:60]!r}", unknown[0][:60])
        custom_id = fields.get("custom_id")
        if not isinstance(custom_id, str) or not custom_id:
            raise wrong("missing_custom_id", "the line needs a custom_id, a text", "custom_id")
        if len(custom_id) > CUSTOM_ID or "\0" in custom_id:
            raise wrong("invalid_custom_id", f"a custom_id has up to {CUSTOM_ID} characters, no NUL", "custom_id")
        if fields.get("method") != "POST":
            raise wrong("invalid_method", "the method must be POST", "method")
        if fields.get("url") != self.endpoint:
            raise wrong("mismatched_endpoint", f"the url must be {self.endpoint}, as the batch's endpoint", "url")
        body = fields.get("body")
        if not isinstance(body, dict):
            raise wrong("missing_body", "the body must be a JSON object", "body")
        if body.get("stream"):
            raise wrong("stream_not_supported", "an item of a batch cannot be a stream", "body.stream")
        digest = hashlib.blake2b(custom_id.encode("utf-8"), digest_size=16).digest()
        before = self._ids.setdefault(digest, number)
        if before != number:
            raise wrong("duplicate_custom_id", f"line {before} has the same custom_id", "custom_id")
        return Line(number=number, custom_id=custom_id, body=body, size=len(raw))


def _raw_lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Each line; None for one that is too long, whose rest is passed over."""
    while raw := file.readline(LINE_BYTES + 1):
        if len(raw) <= LINE_BYTES or raw.endswith(b"\n"):
            yield raw
            continue
        while (rest := file.readline(PIECE)) and not rest.endswith(b"\n"):
            pass
        yield None


def parse(raw: bytes, *, line: int | None = None) -> Any:
    """Strict JSON: no NaN, no key twice, no lone surrogate, of the depth and size of BATCH. Raises Refused."""
    try:
        check_shape(raw, BATCH, "" if line is None else f"at line {line}")
        value = json.loads(raw.decode(), parse_constant=_refuse, object_pairs_hook=_distinct)
        if b"\\u" in raw:
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError, TooLarge) as error:
        why = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Refused(InputFault(code="invalid_json_line", message=f"this is not JSON: {why}", line=line)) from error
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    distinct = dict(pairs)
    if len(distinct) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {twice[:60]!r} appears twice")
    return distinct


class ListReader:
    """The items of a JSON list, one after the other, as JSON texts. Raises Refused for what is no list."""

    def __init__(self, file: BinaryIO, *, most: int = MOST_LINES) -> None:
        self._pieces, self._most = _decode_file(file), most
        self._text, self._at = "", 0

    def __iter__(self) -> Iterator[bytes]:
        if self._next() == "\ufeff":
            self._at += 1
        if self._next() != "[":
            parse((self._text[self._at :] + "".join(self._pieces)).strip().encode())  # says so if it is no JSON at all
            raise Refused(InputFault(code="no_list", message="Input file must contain a JSON list."))
        self._at += 1
        count, goes_on = 0, self._next() != "]"
        while goes_on:
            self._next()
            count += 1
            if count > self._most:
                raise Refused(InputFault(code="too_many_lines", message=f"a batch has at most {self._most:,} items"))
            yield self._value()
            following = self._next()
            if following not in (",", "]"):
                raise Refused(InputFault(code="invalid_json", message=f"after item {count} comes neither , nor ]"))
            goes_on = following == ","
            self._at += goes_on
        self._at += 1
        if self._next():
            raise Refused(InputFault(code="invalid_json", message="something follows the list"))

    def _more(self) -> bool:
        piece = next(self._pieces, None)
        self._text, self._at = self._text[self._at :] + (piece or ""), 0
        return piece is not None

    def _next(self) -> str:
        """The next character that is no space, which stays; "" at the end."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]

    def _value(self) -> bytes:
        """The value that begins here; a value that the buffer cuts is read again with more."""
        is_whole = False
        while True:
            try:
                _, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at <= LINE_BYTES and self._more():
                    continue
                raise Refused(InputFault(code="invalid_json", message=f"this is not JSON: {error}")) from error
            if not is_whole and len(self._text) - end <= 2:  # a number may go on, also after `1.` or `1e+`
                is_whole = not self._more()
                continue
            start, self._at = self._at, end
            return self._text[start:end].encode("utf-8", "surrogatepass")


def _decode_file(file: BinaryIO) -> Iterator[str]:
    """The file as text, in pieces. Raises Refused for what is not UTF-8."""
    rest = b""
    while piece := file.read(PIECE):
        piece = rest + piece
        try:
            yield piece.decode()
            rest = b""
        except UnicodeDecodeError as error:
            if error.end < len(piece) - 3 or error.reason == "invalid start byte":
                raise Refused(InputFault(code="invalid_json", message="the file is not UTF-8")) from error
            rest = piece[error.start :]
            yield piece[: error.start].decode()
    if rest:
        raise Refused(InputFault(code="invalid_json", message="the file is not UTF-8"))
