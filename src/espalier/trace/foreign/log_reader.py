"""Stream the events of a rejection log (llama.cpp's or ours, also damaged ones), with memory for one event.

No JSON library reads these logs. Streaming readers such as ijson and json-stream refuse a bare `-inf`, as printf writes
it; Python's `json` refuses it too and needs the whole text; all of them stop at a truncated file. So the brackets are
matched here, and each complete event is passed to `json` after its numbers have been repaired. This module knows
neither what wrote the file nor what is done with the events.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import IO, Any

from espalier.errors import InputError, TooLarge
from espalier.files.json_shape import check_shape
from espalier.files.limits import LOG
from espalier.files.reading import shortened
from espalier.json_record.declaration import LARGEST

CHUNK = 1 << 16
MAX_EVENT = 64 << 20
"""The most bytes of one event, or of one field beside the events; this bounds the memory."""
MAX_FIELDS = 1000
MAX_DEPTH = LOG.depth or 0
MAX_BRACKETS = 3_000_000
"""The most brackets of one event: three stages with every token of a large vocabulary have 800,000."""
STAGES = ("pre_masking", "post_grammar", "post_chain")

_SPACE = re.compile(rb"[ \t\r\n]*+")
_COMMAS = re.compile(rb"[, \t\r\n]*+")
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_TO_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_TEXT = rb'[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"'
_LEAF = rb"(?:%s)*+" % _TEXT
_INNER = rb"(?:%s|\{%s\}|\[%s\])*+" % (_TEXT, _LEAF, _LEAF)
_SHALLOW = re.compile(rb"\{(?:%s|\{%s\}|\[%s\])*+\}" % (_TEXT, _INNER, _INNER), re.DOTALL)
"""An object with at most two nested levels: most events are matched by this one pattern."""
_SCALAR = re.compile(rb"[^\s,\[\]{}\":]*")
_STRINGS = re.compile(r'("(?:[^"\\]++|\\.)*+")', re.DOTALL)
_NUMBER = re.compile(r"([+-]?)\b([iI](?:nf|NF)(?:inity|INITY)?|[nN](?:an|aN|AN))(?:\([0-9A-Za-z_]*\))?(?![\w.(])")
_COMMA = re.compile(r",(\s*[}\]])")
_JSON = json.JSONDecoder(strict=False)
_GAP = "\0"
"""A placeholder for strings while the rest is repaired; a NUL cannot stand outside a string."""


class LogError(InputError):
    """This is not a rejection log."""


class LogHeader:
    """What the header of a log says, for whoever has one."""

    __slots__ = ()
    header: Mapping[str, Any]

    @property
    def log_version(self) -> str:
        return str(self.header.get("log_version") or "unknown")

    @property
    def timestamp(self) -> str:
        return str(self.header.get("timestamp") or "unknown")


class LogReader(LogHeader):
    """The events of one file, in order, each as a dict.

    file: binary or text; it is read forwards only. offset: a byte offset at which an earlier reader of the same file
    stopped (`self.offset`); the file must then be binary and seekable.

    Bare `inf`, `-inf`, `+inf`, `nan`, `-nan`, `nan(ind)`, `Infinity` and `NaN` are numbers; strings are unchanged. A
    byte order mark, trailing commas and missing closing brackets are ignored. From a truncated file, even within an
    event, a string or an escape, every event before the cut is returned. Invalid UTF-8 becomes U+FFFD. A binary file on
    disk is read up to its size at the start: what a writer appends meanwhile, over the closing brackets, is left for
    the next reader.

    header: the fields beside the events, such as `log_version` and `timestamp`, as far as read. is_closed: whether the
    end of the events was reached; is_cut: whether the file ends within an event. offset: after the last returned event;
    before the first event, after the opening bracket; 0 before that.
    """

    def __init__(self, file: IO[bytes] | IO[str], *, offset: int = 0) -> None:
        self._bytes = _Window(file, offset)
        self.header: dict[str, Any] = {}
        self.is_closed = False
        self.is_cut = False
        self.offset = offset
        self._goes_on = offset > 0
        self._count = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate once. Each event has `step`, and lists for the three stages. Raises LogError if the file is no such
        log, or naming an invalid event; TooLarge for an event larger than MAX_EVENT; OSError of the file."""
        if self._goes_on:
            yield from self._events()
            if not self.is_closed:  # cut within an event
                return
        elif not self._begin():
            return
        while (name := self._key()) is not None:
            if name == "events" and self._bytes.peek() == b"[":
                self._bytes.skip(1)
                self.offset = self._bytes.place
                yield from self._events()
                if not self.is_closed:
                    return
                continue
            value = self._bytes.value()
            if value is None:
                return
            if len(self.header) >= MAX_FIELDS:
                raise TooLarge(f"there are more than {MAX_FIELDS} fields beside the events", field="log")
            self.header[name] = _parse_json(value, f"the field {name[:60]!r}")

    def _begin(self) -> bool:
        """Skip the byte order mark and the first brace; whether there is anything."""
        self._bytes.drop(b"\xef\xbb\xbf")
        first = self._bytes.next()
        if first not in (b"", b"{"):
            raise LogError(f"this is not a rejection log: it begins with {first!r}", hint="it is a JSON object")
        return bool(first)

    def _key(self) -> str | None:
        """The next name of the outermost object, with its colon skipped; None at the end of the object or of the
        file."""
        here = self._bytes
        here.skip_commas()
        if (byte := here.peek()) in (b"", b"}"):
            here.skip(len(byte))
            if here.peek():
                raise LogError(f"something follows the log at byte {here.place}")
            return None
        if byte != b'"':
            raise LogError(f"there is no name at byte {here.place}", hint="the log is damaged there")
        name = here.value()
        if name is None or not here.peek():
            return None
        if here.next() != b":":
            raise LogError(f"there is no colon at byte {here.place - 1}", hint="the log is damaged there")
        return str(_parse_json(name, "a name"))

    def _events(self) -> Iterator[dict[str, Any]]:
        here = self._bytes
        while True:
            byte = here.peek()
            if byte == b",":
                here.skip_commas()
            elif byte == b"]":
                here.skip(1)
                self.is_closed = True
                return
            elif not byte:
                return
            else:
                event = self._event(byte)
                if event is None:
                    return
                yield event

    def _event(self, first: bytes) -> dict[str, Any] | None:
        """The next event, None if the file ends within it."""
        position = self._bytes.place
        named = f"event {self._count} at byte {position}"
        text = self._bytes.value()
        if text is None:
            self.is_cut = True
            return None
        if first != b"{":
            raise LogError(f"{named} is no object")
        event: dict[str, Any] = _parse_json(text, named)
        if "step" not in event:
            raise LogError(f"{named} (task {shortened(str(event.get('task_id')), 40)}) has no step")
        step = event["step"]
        if isinstance(step, bool) or not isinstance(step, int) or abs(step) > LARGEST:
            raise LogError(f"{named} (task {shortened(str(event.get('task_id')), 40)}): its step is no whole number")
        for name in STAGES:
            if event.get(name) is None:
                event[name] = []
        self._count += 1
        self.offset = self._bytes.place
        return event


class _Window:
    """A buffer over the file: bytes that were read and not yet consumed."""

    def __init__(self, file: IO[bytes] | IO[str], offset: int) -> None:
        if offset:
            file.seek(offset)
        self._file = file
        self._held = b""
        self._at = 0  # index into the buffer
        self._before = offset  # bytes of the file before the buffer
        self._is_read = False
        self._left = _size(file) - offset  # bytes left to read

    @property
    def place(self) -> int:
        """The offset of the next byte in the file."""
        return self._before + self._at

    def peek(self) -> bytes:
        """The next byte that is not white space; empty at the end of the file."""
        while True:
            self._at = _end(_SPACE, self._held, self._at)
            if self._at < len(self._held) or not self._more():
                return self._held[self._at : self._at + 1]

    def next(self) -> bytes:
        byte = self.peek()
        self._at += len(byte)
        return byte

    def skip_commas(self) -> None:
        """Skip commas and white space; a file may have hundreds of millions."""
        while True:
            self._at = _end(_COMMAS, self._held, self._at)
            if self._at < len(self._held) or not self._more():
                return

    def skip(self, count: int) -> None:
        self._at += count

    def drop(self, prefix: bytes) -> None:
        """Skip the prefix if it comes next."""
        while len(self._held) - self._at < len(prefix) and self._more():
            pass
        if self._held.startswith(prefix, self._at):
            self._at += len(prefix)

    def value(self) -> bytes | None:
        """The JSON value that begins at the next byte, as written; None if the file ends within it."""
        first = self.peek()
        end = self._string() if first == b'"' else self._nested_event() if first in (b"{", b"[") else self._scalar()
        if end is None:
            return None
        content = self._held[self._at : self._at + end]
        self._at += end
        return content

    def _string(self) -> int | None:
        """The length of the string in bytes."""
        while True:
            match = _STRING.match(self._held, self._at)
            if match is not None:
                return match.end() - self._at
            if not self._more():
                return None

    def _scalar(self) -> int | None:
        """The length of a number or literal. One at the end of the file may be truncated."""
        while True:
            end = _end(_SCALAR, self._held, self._at)
            if end < len(self._held):
                if end == self._at:
                    raise LogError(f"there is no value at byte {self.place}", hint="the log is damaged there")
                return end - self._at
            if not self._more():
                return None

    def _nested_event(self) -> int | None:
        whole = _SHALLOW.match(self._held, self._at)
        if whole is not None:
            return whole.end() - self._at
        depth, scanned, seen = 0, 0, 0  # scanned: bytes from the next one on; seen: brackets
        while True:
            bracket = _end(_TO_BRACKET, self._held, self._at + scanned)
            if bracket == len(self._held) or self._held[bracket : bracket + 1] == b'"':  # an incomplete string
                scanned = bracket - self._at
                if not self._more():
                    return None
                continue
            depth += 1 if self._held[bracket : bracket + 1] in (b"{", b"[") else -1
            scanned = bracket + 1 - self._at
            seen += 1
            if depth > MAX_DEPTH or seen > MAX_BRACKETS:
                what = f"nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else "too large"
                raise TooLarge(f"what begins at byte {self.place} is {what}", hint="it is no event", field="log")
            if depth == 0:
                return scanned

    def _more(self) -> bool:
        """Read more; False at the end of the file. The amount doubles, so that a long event is not scanned over and
        over. Raises TooLarge."""
        if self._is_read:
            return False
        rest = self._held[self._at :]
        if len(rest) > MAX_EVENT:
            raise TooLarge(f"what begins at byte {self.place} is longer than {MAX_EVENT >> 20} MiB", field="log")
        read = self._file.read(min(max(CHUNK, len(rest)), self._left))
        self._left -= len(read)
        self._is_read = not read
        self._before += self._at
        self._at = 0
        self._held = rest + (read.encode("utf-8", "surrogatepass") if isinstance(read, str) else read)
        return not self._is_read


def _size(file: IO[bytes] | IO[str]) -> int:
    """The size of a file on disk in bytes; for other streams a number that is never reached."""
    if not isinstance(getattr(file, "raw", file), io.FileIO) or not file.seekable():
        return sys.maxsize
    return os.fstat(file.fileno()).st_size


def _end(pattern: re.Pattern[bytes], text: bytes, start: int) -> int:
    """The end of a match that may be empty."""
    match = pattern.match(text, start)
    return start if match is None else match.end()


def _parse_json(value: bytes, what: str) -> Any:
    """Parse JSON. `what` names the value in a LogError."""
    check_shape(value, LOG, what)
    text = value.decode("utf-8", "replace")
    try:
        try:
            return _JSON.decode(text)
        except ValueError:
            return _JSON.decode(_put_right(text))
    except (ValueError, RecursionError) as error:
        raise LogError(f"{what} cannot be read: {error}") from error


def _put_right(text: str) -> str:
    """Make numbers readable for `json` and remove trailing commas; strings are not touched."""
    parts = _STRINGS.split(text)  # every second part is a string
    outside = _GAP.join(parts[::2])
    outside = _COMMA.sub(r"\1", _NUMBER.sub(_number, outside))
    between = outside.split(_GAP)
    if len(between) != len(parts[::2]):  # a NUL outside a string
        return text
    parts[::2] = between
    return "".join(parts)


def _number(match: re.Match[str]) -> str:
    sign, name = match.groups()
    if name.lower() == "nan":
        return "NaN"
    return "-Infinity" if sign == "-" else "Infinity"
