"""Reads the header of a GGUF file before llama.cpp opens the file: its keys, and the types of its tensors.

It knows the format; it loads no weights, calls no library, and does not check what the keys say (`checks.py` does).
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from espalier.errors import InputError, UnknownModel
from espalier.files.reading import shortened

MAGIC = b"GGUF"
VERSIONS = (2, 3)
STRING, ARRAY = 8, 9
# struct codes of the value types; 10 to 12 are 64 bits wide.
CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
MAX_HEADER = 1 << 30
"""Bytes before the tensors' data."""
MAX_ENTRIES = 65_536
"""Keys, and tensors."""
MAX_TEXT = 16 << 20
"""The longest text, in bytes."""
MAX_TEXTS = 1 << 22
"""The most texts of one list."""
MAX_DIMENSIONS = 4
"""The most dimensions of a tensor, as in ggml."""
KEPT = 512  # longest list that is kept: one number for each layer that llama.cpp can have
NOT_ONE = "a model for llama.cpp is one .gguf file; a folder with a config.json and weights beside it opens as it is"
DAMAGED = "fetch the file again"
NOT_THERE = {
    "model": "the path of a GGUF file: none is fetched from a hub",
    "lora": "PATH or PATH:SCALE, from --lora, lora= or ESPALIER_LORA",
}
NAMES = {"model": "file", "lora": "LoRA adapter"}

Value = str | int | float | bool


@dataclass(slots=True, kw_only=True)
class Header:
    """values: keys with a single value. arrays: the other keys: type of the elements, and how many. numbers: lists of
    at most KEPT numbers. tokens: the vocabulary's spellings by id, as bytes. types: enum ggml_type of each tensor, by
    name. digest: of the header's bytes and the size of the file."""

    version: int = 0
    tensors: int = 0
    values: dict[str, Value] = field(default_factory=dict)
    arrays: dict[str, tuple[int, int]] = field(default_factory=dict)
    numbers: dict[str, tuple[int | float | bool, ...]] = field(default_factory=dict)
    tokens: list[bytes] = field(default_factory=list)
    types: dict[str, int] = field(default_factory=dict)
    digest: str = ""

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    def own(self, key: str) -> Value | None:
        """A key of the architecture: `own("block_count")` is `llama.block_count`."""
        return self.values.get(f"{self.architecture}.{key}")

    def count(self, key: str) -> int:
        """Such a key as a count, 0 if it is missing; of a list with a number for each layer, the largest."""
        number = self.own(key)
        several = self.numbers.get(f"{self.architecture}.{key}") or (0 if number is None else number,)
        return max((int(n) for n in several if isinstance(n, int)), default=0)

    def forget_lists(self) -> None:
        """Drop the long lists, which only the checks need."""
        self.tokens, self.types = [], {}


def read_header(path: Path, *, what: str = "model") -> Header:
    """The header of a file that is complete as far as its keys. what: the field that errors name. Raises UnknownModel,
    and InputError if it is no file, cannot be read, is no GGUF, or is cut or damaged."""
    if not path.exists():
        raise UnknownModel(f"there is no {NAMES[what]} {path}", hint=NOT_THERE[what], field=what)
    if not path.is_file():
        raise InputError(f"{path} is not a file", hint=NOT_ONE, field=what)
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:  # an empty file cannot be mapped
                raise _HeaderError("it is empty", NOT_ONE)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _HeaderReader(data).header(path.name)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", field=what) from error
    except _HeaderError as error:
        raise InputError(f"{path.name} is not a usable GGUF file: {error}", hint=error.hint, field=what) from error


class _HeaderError(Exception):
    """Why the header cannot be read."""

    def __init__(self, message: str, hint: str = DAMAGED) -> None:
        self.hint = hint
        super().__init__(message)


class _HeaderReader:
    """Reads forward. Every length is checked against the rest of the file before anything is read or allocated."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data, self.at, self.size = data, 0, len(data)
        self.values = 0  # of the tensors so far

    def header(self, name: str) -> Header:
        start = self.take(min(24, self.size))
        if start[:4] != MAGIC:
            raise _HeaderError(_guess(start, name), NOT_ONE)
        if len(start) < 24:
            raise _HeaderError("it ends in its first bytes")
        (version,) = struct.unpack_from("<I", start, 4)
        if version not in VERSIONS:
            raise _HeaderError(*_wrong_version(version))
        tensors, keys = struct.unpack_from("<QQ", start, 8)
        if keys * 13 + tensors * 24 > self.size - self.at:  # the smallest sizes of a key and of a tensor's entry
            raise _HeaderError(f"it ends before its {keys} keys and {tensors} tensors")
        if max(keys, tensors) > MAX_ENTRIES:
            raise _HeaderError(f"it has {max(keys, tensors):,} keys or tensors, and the limit is {MAX_ENTRIES:,}")
        header = Header(version=version, tensors=tensors)
        for _ in range(keys):
            self.pair(header)
        for _ in range(tensors):
            self.tensor(header)
        with memoryview(self.data)[: self.at] as read:
            header.digest = hashlib.blake2b(read, digest_size=16).hexdigest() + f"-{self.size}"
        return header

    def tensor(self, header: Header) -> None:
        """One entry: name, dimensions, type, offset. No type has less than a bit for a value, so tensors have no more
        values than the file has bits: sizes that lie would overflow where llama.cpp multiplies and adds them."""
        name = self.string().decode("utf-8", "replace")
        count = int(self.number("I"))
        if count > MAX_DIMENSIONS:
            raise _HeaderError(f"its tensor {_show_key(name)!r} has {count:,} dimensions")
        start = self.at
        self.skip(count * 8, "its tensors")
        shape: tuple[int, ...] = struct.unpack_from(f"<{count}Q", self.data, start)
        self.values += math.prod(max(size, 1) for size in shape)
        if self.values > 8 * self.size:
            shown = " x ".join(map(str, shape))
            raise _HeaderError(f"with its tensor {_show_key(name)!r} of {shown} values it is smaller than its tensors")
        header.types[name] = int(self.number("I"))
        self.skip(8, "its tensors")

    def pair(self, header: Header) -> None:
        key = self.string().decode("utf-8", "replace")
        if key in header.values or key in header.arrays:
            raise _HeaderError(f"the key {_show_key(key)!r} stands there twice")
        kind = int(self.number("I"))
        if kind == STRING:
            header.values[key] = self.string().decode("utf-8", "replace")
        elif kind == ARRAY:
            header.arrays[key] = self.array(key, header)
        elif kind in CODES:
            header.values[key] = self.number(CODES[kind])
        else:
            raise _HeaderError(f"the key {_show_key(key)!r} has a value of the unknown type {kind}")

    def array(self, key: str, header: Header) -> tuple[int, int]:
        kind, count = int(self.number("I")), int(self.number("Q"))
        if kind == STRING:
            texts = self.strings(count, key)
            if key == "tokenizer.ggml.tokens":
                header.tokens = texts
        elif kind in CODES:
            at, code = self.at, CODES[kind]
            self.skip(count * struct.calcsize(f"<{code}"), key)
            if count <= KEPT:
                header.numbers[key] = struct.unpack_from(f"<{count}{code}", self.data, at)
        else:
            what = "a list of lists" if kind == ARRAY else f"a list of the unknown type {kind}"
            raise _HeaderError(f"{_show_key(key)} is {what}")
        return kind, count

    def strings(self, count: int, key: str) -> list[bytes]:
        """A vocabulary has some hundred thousand strings, so the loop is kept short."""
        data, at, size, texts = self.data, self.at, self.size, []
        if count * 8 > size - at:
            raise _HeaderError(f"it ends within {_show_key(key)}")
        if count > MAX_TEXTS:
            raise _HeaderError(f"{_show_key(key)} is a list of {count:,} texts, and the limit is {MAX_TEXTS:,}")
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            start = at + 8
            if start > size:
                raise _HeaderError(f"it ends within {_show_key(key)}")
            at = start + unpack(data, at)[0]
            if at > size:
                raise _HeaderError(f"it ends within {_show_key(key)}")
            if at - start > MAX_TEXT or at > MAX_HEADER:
                raise _HeaderError(f"{_show_key(key)} has a text of {at - start:,} bytes, or ends too late")
            texts.append(data[start:at])
        self.at = at
        return texts

    def string(self) -> bytes:
        count = int(self.number("Q"))
        if MAX_TEXT < count <= self.size - self.at:
            raise _HeaderError(f"it has a text of {count:,} bytes, and the limit is {MAX_TEXT:,}")
        return self.take(count)

    def number(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]
        return value

    def take(self, count: int) -> bytes:
        start = self.at
        self.skip(count, "its keys")
        return self.data[start : self.at]

    def skip(self, count: int, what: str) -> None:
        if count > self.size - self.at:
            raise _HeaderError(f"it ends within {_show_key(what)}")
        self.at += count
        if self.at > MAX_HEADER:
            raise _HeaderError(f"its header is longer than {MAX_HEADER:,} bytes")


def _show_key(key: str) -> str:
    """A key of the file, which may be megabytes."""
    return shortened(key, 80)


def _guess(start: bytes, name: str) -> str:
    """What a file without the magic bytes probably is."""
    if name.endswith(".safetensors") or start[8:9] == b"{":
        return "it looks like safetensors"
    if start[:2] == b"PK":
        return "it looks like a checkpoint of PyTorch"
    if start[:4] in (b"ggml", b"lmgg", b"ggjt", b"tjgg", b"ggmf", b"fmgg"):
        return "it is of the format before GGUF"
    return "it does not begin with GGUF"


def _wrong_version(version: int) -> tuple[str, str]:
    if version & 0xFFFF == 0 and version:
        return "its numbers are big-endian", "fetch the file for this machine's byte order"
    if version > max(VERSIONS):
        return f"it is of version {version} of the format", "a newer llama-cpp-python may read it"
    return f"it is of version {version} of the format, which llama.cpp reads no more", "convert the model again"
