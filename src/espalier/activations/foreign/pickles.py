"""Reads pickles that others wrote without running anything of theirs.

A pickle is a program: it can name any function and call it. `load_plain` takes those alone that name none. `load_inert`
is for logs that hold tensors beside the texts: a name becomes a stand-in that is never looked up, and whose calls do
nothing. Both look at the instructions first, so that none asks for more memory than the pickle has bytes.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any

from espalier.activations.foreign.entry import BadEntry

PLAIN = frozenset(
    {
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "POP",
        "POP_MARK",
        "DUP",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "INT",
        "BININT",
        "BININT1",
        "BININT2",
        "LONG",
        "LONG1",
        "LONG4",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE",
        "BINUNICODE8",
        "BINBYTES",
        "SHORT_BINBYTES",
        "BINBYTES8",
        "EMPTY_LIST",
        "APPEND",
        "APPENDS",
        "LIST",
        "EMPTY_TUPLE",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "EMPTY_DICT",
        "DICT",
        "SETITEM",
        "SETITEMS",
        "EMPTY_SET",
        "ADDITEMS",
        "FROZENSET",
        "GET",
        "BINGET",
        "LONG_BINGET",
        "PUT",
        "BINPUT",
        "LONG_BINPUT",
        "MEMOIZE",
    }
)
NAMED = frozenset({"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD", "NEWOBJ", "NEWOBJ_EX", "BYTEARRAY8"})
"""What tensors take beside these."""
MAX_INSTRUCTIONS = 2_000_000
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")


def load_plain(data: bytes) -> Any:
    """The value of a pickle of numbers, texts, lists and dicts. Raises BadEntry for any other, or a damaged one."""
    return _Plain(io.BytesIO(_check_pickle(data, PLAIN))).value()


def load_inert(data: bytes) -> Any:
    """As `load_plain`, with an `Inert` for each object of a class. Raises BadEntry."""
    return _Inert(io.BytesIO(_check_pickle(data, PLAIN | NAMED))).value()


def _check_pickle(data: bytes, allowed: frozenset[str]) -> bytes:
    try:
        for number, (opcode, argument, place) in enumerate(pickletools.genops(data)):
            if opcode.name not in allowed:
                raise BadEntry(f"its pickle names code ({opcode.name} at byte {place})")
            if opcode.name in _PUTS and int(argument or 0) > len(data):  # the table of names grows to that number
                raise BadEntry(f"its pickle is damaged at byte {place}")
            if number == MAX_INSTRUCTIONS:
                raise BadEntry(f"its pickle has more than {MAX_INSTRUCTIONS:,} instructions")
    except BadEntry:
        raise
    except Exception as error:  # whatever a damaged pickle makes it raise
        raise BadEntry(f"its pickle is damaged: {_short(error)}") from error
    return data


class Inert:
    """Stands for an object of a class that is never looked up: it takes what a pickle does to an object, and keeps
    nothing."""

    __slots__ = ()

    def __new__(cls, *given: Any, **named: Any) -> Inert:
        return super().__new__(cls)

    def __setstate__(self, state: Any) -> None:
        """Nothing is kept."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Nothing is kept."""

    def append(self, value: Any) -> None:
        """Nothing is kept."""

    def extend(self, values: Any) -> None:
        """Nothing is kept."""

    def add(self, value: Any) -> None:
        """Nothing is kept."""


class _Plain(pickle.Unpickler):
    """The second wall: no name is resolved, whatever the look at the instructions let through."""

    def find_class(self, module: str, name: str) -> Any:
        raise BadEntry(f"its pickle names code ({module}.{name})"[:200])

    def persistent_load(self, pid: Any) -> Any:
        raise BadEntry("its pickle names an object outside it")

    def value(self) -> Any:
        try:
            return self.load()
        except BadEntry:
            raise
        except Exception as error:  # a damaged pickle raises nearly anything
            raise BadEntry(f"its pickle is damaged: {_short(error)}") from error


class _Inert(_Plain):
    def find_class(self, module: str, name: str) -> Any:
        return Inert


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]
