"""What a parser of one shape of calls is, and what all shapes have in common: names of tools.

It knows nothing of what stands around calls; that is `call_walk.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol

from espalier.chat.reading.incoming import Fault, Incoming, Reading
from espalier.chat.tools import NAME
from espalier.chat.wire.formats import WireFormat

NAME_CHARACTERS = re.compile(r"[A-Za-z0-9_.-]*")
MAX_SHOWN = 64


class CallListener(Protocol):
    """Who is told of one call: once its name, and then its arguments in any number of pieces."""

    def begin(self, name: str) -> None: ...

    def arguments(self, text: str) -> None: ...


class CallShape(Protocol):
    """Reads single calls of a format, and nothing around them; it keeps nothing from one call to the next."""

    def __init__(self, wire: WireFormat, names: Collection[str]) -> None:
        """names: the tools there are; if none, any name will do."""

    def starts_with(self, character: str) -> bool:
        """Whether a call may begin with that character."""

    def read(self, text: Incoming, listener: CallListener) -> Reading[None]:
        """One call from its first character to its last.

        Raises Fault at the first character that does not fit, Cut if the text ends within; after `begin` was told,
        what fits of the arguments has been told too.
        """


def read_name(text: Incoming) -> Reading[str]:
    """Characters of a name, up to the first that is none. Raises Fault where no name is."""
    at = text.offset
    parts: list[str] = []
    yield from text.run(NAME_CHARACTERS, parts.append)
    name = "".join(parts)
    yield from text.need()
    if not NAME.fullmatch(name):
        raise Fault("the name of a tool is missing" if not name else f"no tool is called {shown(name)}", at)
    return name


def check_name(name: str, names: Collection[str], at: int) -> None:
    """Raises Fault for what is no name of a tool. at: where it is written."""
    if name not in names if names else not NAME.fullmatch(name):
        raise Fault(f"there is no tool {shown(name)}", at, is_certain=True)


def shown(name: str) -> str:
    """A name in quotes, shortened."""
    return repr(name if len(name) <= MAX_SHOWN else f"{name[:MAX_SHOWN]}…")
