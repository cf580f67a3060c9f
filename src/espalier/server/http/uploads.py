"""Reads an upload (multipart/form-data): its one file goes to the disk piece by piece, its few fields into memory.

It knows no route. Time is limited for each piece, since a large file may take long as a whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect

from espalier.errors import Cancelled
from espalier.server.http.errors import BadRequest, BodyTimeout, BodyTooLarge, WrongMediaType
from espalier.server.http.patience import Patience
from espalier.server.settings import ServerSettings

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FIELD_BYTES = 10_000
"""Of all fields beside the file."""
PARTS = 20
PIECE = 1 << 20
NAME = 255


@dataclass(slots=True)
class _Form:
    """The parts as the parser finds them. waiting: bytes of the file that are not written yet."""

    file_field: str
    fields: dict[str, str] = field(default_factory=dict)
    filename: str | None = None
    size: int = 0
    waiting: bytearray = field(default_factory=bytearray)
    is_whole: bool = False
    _header: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    _disposition: bytes = b""
    _name: str = ""
    _value: bytearray = field(default_factory=bytearray)
    _is_file: bool = False
    _parts: int = 0

    def begin(self) -> None:
        self._parts += 1
        if self._parts > PARTS:
            raise BadRequest(f"the form has more than {PARTS} parts")
        self._disposition, self._value = b"", bytearray()

    def header_name(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def header_end(self) -> None:
        name, value = self._header
        if bytes(name).lower() == b"content-disposition":
            self._disposition = bytes(value)
        self._header = (bytearray(), bytearray())

    def headers_end(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode("utf-8", "replace")
        filename = options.get(b"filename")
        self._is_file = filename is not None
        if filename is not None:
            if self._name != self.file_field or self.filename is not None:
                only = f"the form has one file, in the field `{self.file_field}`"
                raise BadRequest(only, field=self._name or self.file_field)
            self.filename = filename.decode("utf-8", "replace").replace("\\", "/").rpartition("/")[2][:NAME]

    def data(self, data: bytes, start: int, end: int) -> None:
        if self._is_file:
            self.waiting += data[start:end]
            return
        self._value += data[start:end]
        if sum(map(len, self.fields.values())) + len(self._value) > FIELD_BYTES:
            raise BodyTooLarge(f"the fields of the form have more than {FIELD_BYTES} bytes", field=self._name)

    def end(self) -> None:
        if not self._is_file:
            self.fields[self._name] = self._value.decode("utf-8", "replace")

    def finished(self) -> None:
        self.is_whole = True

    def callbacks(self) -> MultipartCallbacks:
        """What the parser calls."""
        return {
            "on_part_begin": self.begin,
            "on_header_field": self.header_name,
            "on_header_value": self.header_value,
            "on_header_end": self.header_end,
            "on_headers_finished": self.headers_end,
            "on_part_data": self.data,
            "on_part_end": self.end,
            "on_end": self.finished,
        }


async def read_upload(
    request: Request, settings: ServerSettings, file: BinaryIO, take: Callable[[int], None], *, name: str = "file"
) -> tuple[str, Mapping[str, str]]:
    """Write the file of the form, which is in the field `name`, and return its name and the other fields. take: gets
    the number of bytes before they are written, and raises where they are too many. Raises what it raises,
    WrongMediaType, BodyTooLarge, BodyTimeout, BadRequest, Cancelled, and OSError of the disk."""
    kind, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise WrongMediaType("an upload must be sent as multipart/form-data", hint="curl -F file=@in.jsonl")
    form = _Form(name)
    pieces = request.stream()
    try:
        parser = MultipartParser(boundary, form.callbacks())  # it has a limit on the boundary
        while True:
            async with Patience(settings.body_seconds):
                piece = await anext(pieces, None)
            if piece is None:
                break
            parser.write(piece)
            if len(form.waiting) >= PIECE:
                await _write(form, file, settings, take)
    except TimeoutError:
        raise BodyTimeout(f"nothing of the upload came for {settings.body_seconds:g} s") from None
    except ClientDisconnect:
        raise Cancelled("the client disconnected before the end of its upload") from None
    except FormParserError as error:
        raise BadRequest(f"the form cannot be read: {error}") from error
    await _write(form, file, settings, take)
    if not form.is_whole:
        raise BadRequest("the form ends before its last part does")
    if form.filename is None:
        raise BadRequest("the form has no file", hint="curl -F file=@in.jsonl", field="file")
    return form.filename, form.fields


async def _write(form: _Form, file: BinaryIO, settings: ServerSettings, take: Callable[[int], None]) -> None:
    form.size += len(form.waiting)
    take(len(form.waiting))
    if form.size > settings.batch_max_bytes:
        raise BodyTooLarge(f"the file has more than {settings.batch_max_bytes:,} bytes", field="file")
    data = bytes(form.waiting)
    form.waiting.clear()
    await asyncio.to_thread(file.write, data)
