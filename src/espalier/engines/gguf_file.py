"""The header of a GGUF file, read and checked before llama.cpp sees the file: its keys, and what kind of model it is.

It knows the format and what makes llama.cpp end the process instead of refusing; it loads no weights and calls no
library. What llama.cpp refuses by itself with a reason is left to it.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path

from espalier.errors import CapabilityError, InputError, UnknownModel

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MAX_LAYERS = 512  # LLAMA_MAX_LAYERS
STRING, ARRAY = 8, 9
# struct codes of the value types; 10 to 12 are 64 bits wide.
CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
INT32, FLOAT32 = 5, 6
NOT_ONE = "a model for llama.cpp is one .gguf file; a folder with a config.json and weights beside it opens as it is"
DAMAGED = "fetch the file again"

Value = str | int | float | bool


@dataclass(slots=True, kw_only=True)
class Header:
    """values: the keys that hold one value. arrays: of the others, the type of the elements and how many there are.
    tokens: spellings of the vocabulary by id, as bytes."""

    version: int = 0
    tensors: int = 0
    values: dict[str, Value] = field(default_factory=dict)
    arrays: dict[str, tuple[int, int]] = field(default_factory=dict)
    tokens: list[bytes] = field(default_factory=list)

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    def own(self, key: str) -> Value | None:
        """A key of the architecture: `own("block_count")` is `llama.block_count`."""
        return self.values.get(f"{self.architecture}.{key}")


def read_header(path: Path, *, what: str = "model") -> Header:
    """The header of a file that is complete as far as its keys. what: the field that errors name. Raises UnknownModel,
    and InputError for what is no file, cannot be read, is no GGUF, or is cut or damaged."""
    if not path.exists():
        raise UnknownModel(f"there is no file {path}", field=what)
    if not path.is_file():
        raise InputError(f"{path} is not a file", hint=NOT_ONE, field=what)
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:  # which cannot be mapped
                raise _Damaged("it is empty", NOT_ONE)
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _Reader(data).header(path.name)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", field=what) from error
    except _Damaged as error:
        raise InputError(f"{path.name} is not a usable GGUF file: {error}", hint=error.hint, field=what) from error


def check_generates(header: Header, name: str) -> None:
    """Raises CapabilityError for what is no model that writes text, InputError for what is no model, or damaged so
    that llama.cpp would end the process."""
    kind = header.values.get("general.type", "model")
    if kind == "adapter":
        raise InputError(
            f"{name} is a LoRA adapter, not a model", hint="load the model that it was made for, with it as lora",
            field="model",
        )  # fmt: skip
    pooling = header.own("pooling_type")
    if header.own("attention.causal") is False or (isinstance(pooling, int) and pooling > 0):
        raise CapabilityError(
            f"{name} ({header.architecture}) is a model for embeddings: it cannot generate",
            hint="load a model that was trained to write text",
            field="model",
        )
    if not header.tensors:
        raise InputError(f"{name} holds a vocabulary and no weights", field="model")
    layers = header.own("block_count")
    if isinstance(layers, int) and not 0 < layers <= MAX_LAYERS:  # GGML_ASSERT in llama_model::load_hparams
        raise InputError(f"{name} is damaged: it says that it has {layers} layers", hint=DAMAGED, field="model")


def check_vocabulary(header: Header, name: str) -> None:
    """Raises InputError for a vocabulary on which llama.cpp would end the process, or read beyond an array."""
    # GGML_ASSERT in llama_vocab::load: every spelling once, as it reads them: up to a NUL, an empty one by its number.
    seen: set[bytes] = set()
    for number, token in enumerate(header.tokens):
        token = token.split(b"\0", 1)[0] or b"[EMPTY_%d]" % number
        if token in seen:
            shown = token.decode("utf-8", "replace")
            raise InputError(f"{name} has the token {shown!r} twice in its vocabulary", hint=DAMAGED, field="model")
        seen.add(token)
    # These are read as C arrays of one type, whatever their type is.
    wanted = {"tokens": (STRING,), "merges": (STRING,), "scores": (FLOAT32, INT32), "token_type": (INT32,)}
    for key, types in wanted.items():
        full = f"tokenizer.ggml.{key}"
        found = header.arrays.get(full)
        if (found is not None and found[0] not in types) or full in header.values:
            raise InputError(f"{name} is damaged: {full} has the wrong type", hint=DAMAGED, field="model")


class _Damaged(Exception):
    """Why the header cannot be read."""

    def __init__(self, message: str, hint: str = DAMAGED) -> None:
        self.hint = hint
        super().__init__(message)


class _Reader:
    """Reads forward; every length is held against what is left of the file before anything is read or reserved."""

    def __init__(self, data: bytes | mmap.mmap) -> None:
        self.data, self.at, self.size = data, 0, len(data)

    def header(self, name: str) -> Header:
        start = self.take(min(24, self.size))
        if start[:4] != MAGIC:
            raise _Damaged(_guess(start, name), NOT_ONE)
        if len(start) < 24:
            raise _Damaged("it ends in its first bytes")
        (version,) = struct.unpack_from("<I", start, 4)
        if version not in VERSIONS:
            raise _Damaged(*_wrong_version(version))
        tensors, keys = struct.unpack_from("<QQ", start, 8)
        if keys * 13 + tensors * 24 > self.size - self.at:  # the least that a key and the entry of a tensor take
            raise _Damaged(f"it ends before its {keys} keys and {tensors} tensors")
        header = Header(version=version, tensors=tensors)
        for _ in range(keys):
            self.pair(header)
        return header

    def pair(self, header: Header) -> None:
        key = self.string().decode("utf-8", "replace")
        if key in header.values or key in header.arrays:
            raise _Damaged(f"the key {key!r} stands there twice")
        kind = int(self.number("I"))
        if kind == STRING:
            header.values[key] = self.string().decode("utf-8", "replace")
        elif kind == ARRAY:
            header.arrays[key] = self.array(key, header)
        elif kind in CODES:
            header.values[key] = self.number(CODES[kind])
        else:
            raise _Damaged(f"the key {key!r} has a value of the unknown type {kind}")

    def array(self, key: str, header: Header) -> tuple[int, int]:
        kind, count = int(self.number("I")), int(self.number("Q"))
        if kind == STRING:
            found = self.strings(count, key)
            if key == "tokenizer.ggml.tokens":
                header.tokens = found
        elif kind in CODES:
            self.skip(count * struct.calcsize(f"<{CODES[kind]}"), key)
        else:
            raise _Damaged(f"{key} is a list of the unknown type {kind}")
        return kind, count

    def strings(self, count: int, key: str) -> list[bytes]:
        """A vocabulary has some hundred thousand: the loop is kept short."""
        data, at, size, found = self.data, self.at, self.size, []
        if count * 8 > size - at:
            raise _Damaged(f"it ends within {key}")
        unpack = struct.Struct("<Q").unpack_from
        for _ in range(count):
            start = at + 8
            if start > size:
                raise _Damaged(f"it ends within {key}")
            at = start + unpack(data, at)[0]
            if at > size:
                raise _Damaged(f"it ends within {key}")
            found.append(data[start:at])
        self.at = at
        return found

    def string(self) -> bytes:
        return self.take(int(self.number("Q")))

    def number(self, code: str) -> int | float | bool:
        value: int | float | bool = struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]
        return value

    def take(self, count: int) -> bytes:
        start = self.at
        self.skip(count, "its keys")
        return self.data[start : self.at]

    def skip(self, count: int, what: str) -> None:
        if count > self.size - self.at:
            raise _Damaged(f"it ends within {what}")
        self.at += count


def _guess(start: bytes, name: str) -> str:
    """What a file without the magic is."""
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
