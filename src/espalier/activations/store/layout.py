"""What stands where in the LMDB environment, and the bytes of a chunk of vectors. Version 1.

Named databases: `info` (one key, `layout`), `requests` (key of the request -> its record as JSON), `chunks` (key, NUL,
site, NUL, layer as three digits -> chunk), `by_prompt` (SHA-256 of the prompt, 32 bytes, key -> empty), `by_request`
(SHA-256 of the request id, 32 bytes, key -> empty), `by_time` (microseconds since 1970, eight bytes big-endian, key ->
empty).

A chunk: `ESPA`, the length of its head (four bytes, little-endian), the head as JSON (`dtype`, `shape`, `codec`,
`checksum`), then the bytes. The checksum is CRC-32 of the bytes before compression.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from espalier.activations.store.dtypes import from_bytes, size_of, to_bytes
from espalier.errors import InputError
from espalier.optional import optional_imports

FORMAT, VERSION = "espalier-activations", 1
DATABASES = ("info", "requests", "chunks", "by_prompt", "by_request", "by_time")
CODECS = ("none", "zstd")
MAX_KEY = 400
"""Bytes of a request's key; LMDB takes 511 in all."""
MAGIC = b"ESPA"
_HEAD = struct.Struct("<4sI")
_ZSTD_LEVEL = 3
MOST_EXPANDED = 2**15
"""Bytes that one byte of zstd can become at most: four make a block of 128 KiB."""


class DamagedChunk(ValueError):
    """These bytes are not the vectors that were stored; the text says why."""


def chunk_key(key: str, site: str, layer: int) -> bytes:
    """Where the vectors of one layer stand."""
    return b"\0".join((key.encode(), site.encode(), f"{layer:03d}".encode()))


def text_key(text: str, key: str) -> bytes:
    """Keys by the SHA-256 of a text, which may be longer than a key of LMDB."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() + key.encode()


def time_key(seconds: float, key: str) -> bytes:
    """Keys in the order of time."""
    return struct.pack(">Q", max(0, round(seconds * 1e6))) + key.encode()


def indices(prompt: str, timestamp: float, request: str | None, key: str) -> Iterator[tuple[str, bytes]]:
    """Where the look-up tables name a request: the database, and its key there."""
    yield "by_prompt", text_key(prompt, key)
    yield "by_time", time_key(timestamp, key)
    if request is not None:
        yield "by_request", text_key(request, key)


def pack(values: npt.NDArray[Any], dtype: str, codec: str) -> bytes:
    """A chunk of vectors `(n, hidden)`. Raises ValueError as `to_bytes`, MissingDependency without zstandard."""
    raw = to_bytes(values, dtype)
    body = raw if codec == "none" else _zstd().ZstdCompressor(level=_ZSTD_LEVEL).compress(raw)
    head = {"dtype": dtype, "shape": [*values.shape], "codec": codec, "checksum": zlib.crc32(raw)}
    written = json.dumps(head, separators=(",", ":")).encode()
    return _HEAD.pack(MAGIC, len(written)) + written + body


def unpack(chunk: bytes | memoryview) -> npt.NDArray[Any]:
    """The vectors of a chunk, as `from_bytes` gives them. Raises DamagedChunk, MissingDependency."""
    head, body = split(chunk)
    shape = (head["shape"][0], head["shape"][1])
    size = size_of(head["dtype"], shape)
    if head["codec"] == "zstd":
        zstd = _zstd()
        if size > MOST_EXPANDED * len(body):
            raise DamagedChunk(f"its shape needs {size:,} bytes, more than its {len(body):,} can hold")
        try:
            # What the bytes say of their size is believed by the library, which then takes that memory.
            if (stated := zstd.frame_content_size(bytes(body))) not in (size, -1):
                raise DamagedChunk(f"its bytes hold {stated:,}, and its shape needs {size:,}")
            raw = zstd.ZstdDecompressor().decompress(bytes(body), max_output_size=size)
        except zstd.ZstdError as error:
            raise DamagedChunk(f"its bytes are no zstd: {error}") from error
    else:
        raw = bytes(body)
    if len(raw) != size:
        raise DamagedChunk(f"it has {len(raw):,} bytes, and its shape needs {size:,}")
    if zlib.crc32(raw) != head["checksum"]:
        raise DamagedChunk("its checksum is another")
    return from_bytes(raw, head["dtype"], shape)


def split(chunk: bytes | memoryview) -> tuple[dict[str, Any], memoryview]:
    """Head and bytes of a chunk; the head is checked. Raises DamagedChunk."""
    view = memoryview(chunk)
    if len(view) < _HEAD.size:
        raise DamagedChunk("it ends within its head")
    magic, length = _HEAD.unpack_from(view)
    if magic != MAGIC or _HEAD.size + length > len(view):
        raise DamagedChunk("it does not begin as a chunk does")
    try:
        head = json.loads(bytes(view[_HEAD.size : _HEAD.size + length]))
        shape, codec = head["shape"], head["codec"]
        size_of(head["dtype"], (shape[0], shape[1]))
        is_right = len(shape) == 2 and all(type(size) is int and size >= 0 for size in (*shape, head["checksum"]))
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise DamagedChunk("its head cannot be read") from error
    if not is_right or codec not in CODECS:
        raise DamagedChunk("its head cannot be read")
    return head, view[_HEAD.size + length :]


def check_codec(codec: str) -> None:
    """Raises InputError for an unknown codec, MissingDependency without zstandard."""
    if codec not in CODECS:
        raise InputError(f"the compression is {codec!r}", hint=f"one of {', '.join(CODECS)}", field="compression")
    if codec == "zstd":
        _zstd()


def _zstd() -> Any:
    with optional_imports("activations"):
        import zstandard  # noqa: PLC0415  # an extra
    return zstandard
