"""`CallShape`: the protocol of a parser for one shape of calls; and the check of tool names that all shapes share.

The text around calls is read by `call_walk.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Protocol

from espalier.chat.argument_types import ArgumentTypes
from espalier.chat.reading.incoming import FormatMismatch, IncomingText, Reading
from espalier.chat.tools import NAME
from espalier.chat.wire.formats import WireFormat

NAME_CHARACTERS = re.compile(r"[A-Za-z0-9_.-]*")
MAX_SHOWN = 64


class CallListener(Protocol):
    """Receives one call: its name once, then its arguments in any number of pieces."""

    def begin(self, name: str) -> None: ...

    def arguments(self, text: str) -> None: ...


class CallShape(Protocol):
    """Reads single calls of a format, and nothing around them; it keeps no state between calls."""

    def __init__(self, wire: WireFormat, names: Collection[str], types: Mapping[str, ArgumentTypes]) -> None:
        """names: the known tools; if empty, any name is accepted. types: those of each tool's arguments, for formats
        that write strings as raw text; a tool may be missing."""

    def starts_with(self, character: str) -> bool:
        """Whether a call may begin with that character."""

    def read(self, text: IncomingText, listener: CallListener) -> Reading[None]:
        """Read one call from its first character to its last.

        Raises FormatMismatch at the first character that does not fit, IncompleteText if the text ends within; once
        `begin` has been called, the fitting part of the arguments has been passed on too."""


def read_name(text: IncomingText) -> Reading[str]:
    """Read the characters of a name. Raises FormatMismatch if there is none."""
    at = text.offset
    parts: list[str] = []
    yield from text.run(NAME_CHARACTERS, parts.append)
    name = "".join(parts)
    yield from text.need()
    if not NAME.fullmatch(name):
        raise FormatMismatch("the name of a tool is missing" if not name else f"no tool is called {shown(name)}", at)
    return name


def check_name(name: str, names: Collection[str], at: int) -> None:
    """Raises FormatMismatch for an unknown tool. at: the position of the name."""
    if name not in names if names else not NAME.fullmatch(name):
        raise FormatMismatch(f"there is no tool {shown(name)}", at, is_certain=True)


def shown(name: str) -> str:
    """A name in quotes, shortened."""
    return repr(name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}…")
