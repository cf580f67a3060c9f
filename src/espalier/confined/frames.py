"""One message of a pipe: four bytes of length, then JSON. It knows no message."""

from __future__ import annotations

import json
import struct
from typing import IO, Any

HEAD = struct.Struct("!I")
LARGEST = 64_000_000
"""Bytes of a message; a larger one is refused by whoever sends it."""


class FrameTooLarge(ValueError):
    """The message is larger than LARGEST."""


def packed(message: Any) -> bytes:
    """Raises FrameTooLarge."""
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > LARGEST:
        raise FrameTooLarge(f"a message of {len(body)} bytes; at most {LARGEST} are sent")
    return HEAD.pack(len(body)) + body


def read(source: IO[bytes]) -> Any:
    """The next message. Raises EOFError where the pipe ends."""
    size = HEAD.unpack(_exactly(source, HEAD.size))[0]
    return json.loads(_exactly(source, size))


def _exactly(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) < size:
        raise EOFError
    return data
