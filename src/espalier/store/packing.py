"""Compresses JSON to bytes and back. It does not know the content.

Traces repeat themselves, since each stage of a step names much the same tokens, so compression saves most of the text.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from espalier.errors import EspalierError, InputError, OutputError, TooLarge
from espalier.files.json_shape import check_shape
from espalier.files.limits import STORED
from espalier.trace.packed_steps import PackedSteps, read_steps

LEVEL = 2
"""A third of the CPU time of zlib's own level 6, which a server takes from its tokens, for a sixth more bytes."""

ARRAYS = b"espalier\x01"
"""The first bytes of JSON whose `steps` are arrays behind it. Compressed JSON never begins so."""
UNREADABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError, EspalierError)
"""What reading arrays raises that are damaged."""


def pack(value: Mapping[str, Any], *, what: str) -> bytes:
    """The value as compressed JSON, with null for infinities and NaN; steps in arrays stay arrays, which hardly
    compress. Raises InputError naming `what` if it is no JSON."""
    steps = value.get("steps")
    if not isinstance(steps, PackedSteps):
        return compress(as_bytes(value, what=what))
    description, arrays = steps.write()
    head = compress(as_bytes({**value, "steps": description}, what=what))
    return b"".join((ARRAYS, len(head).to_bytes(8, "little"), head, arrays))


def compress(text: bytes) -> bytes:
    return zlib.compress(text, LEVEL)


def as_bytes(value: Mapping[str, Any], *, what: str) -> bytes:
    """The value as JSON, as `pack` compresses it: in UTF-8, or in ASCII where a text has half a character."""
    try:
        return to_json(value, inf_nan_mode="null")  # six times as fast as the standard library's
    except PydanticSerializationError:  # half a character, which has no UTF-8, or no JSON
        return _as_ascii(value, what=what)


def _as_ascii(value: Mapping[str, Any], *, what: str) -> bytes:
    try:
        try:
            text = json.dumps(value, separators=(",", ":"), allow_nan=False)
        except ValueError:
            text = json.dumps(_finite(value), separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"the {what} is not JSON: {error}", field=what) from error
    return text.encode("ascii")  # ASCII: a lone surrogate is an escape


def unpack(packed: bytes, *, what: str) -> dict[str, Any]:
    """The packed value. Raises OutputError naming `what` if the bytes are damaged."""
    if packed[: len(ARRAYS)] != ARRAYS:
        return _unpack_json(packed, what=what)
    start = len(ARRAYS) + 8
    end = start + int.from_bytes(packed[len(ARRAYS) : start], "little")
    value = _unpack_json(packed[start:end], what=what)
    if len(packed) - end > STORED.bytes:
        raise OutputError(f"the {what} in the database is larger than {STORED.bytes:,} bytes")
    try:
        return {**value, "steps": read_steps(value["steps"], packed[end:])}
    except UNREADABLE as error:
        raise OutputError(f"the {what} is damaged in the database: {type(error).__name__}: {error}") from error


def _unpack_json(packed: bytes, *, what: str) -> dict[str, Any]:
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(packed, STORED.bytes)
        if reader.unconsumed_tail:
            raise OutputError(f"the {what} in the database is larger than {STORED.bytes:,} bytes")
        if not reader.eof:
            raise ValueError("it is cut")
        check_shape(text, STORED, what)
        value = json.loads(text)
    except (zlib.error, ValueError, RecursionError, TooLarge) as error:
        raise OutputError(f"the {what} is damaged in the database: {error}") from error
    if not isinstance(value, dict):
        raise OutputError(f"the {what} is damaged in the database: it is no JSON object")
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(member) for member in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
