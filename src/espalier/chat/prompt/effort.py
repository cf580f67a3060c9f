"""What one rendering of a chat template may use: CPU time of its thread, and the sizes of what it makes.

`spend` is called by compiled templates in every block; `made` for every value that a template makes. A list counts with
all that is in it, however often, so that no short list spells out to a long text. It knows no Jinja.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from espalier.errors import TemplateError
from espalier.wording import RAW, OptionText

CPU_SECONDS = 2.0
"""CPU time of one rendering."""
MAX_TEXT = 16 << 20
"""The largest value that a template may make, in characters and items."""
MAX_MADE = 64 << 20
"""The most that a rendering may make in all, and `PER_GIVEN` for each character and item that it is given."""
PER_GIVEN = 64
LOOK = 64
"""The clock is looked at after so much work: as many blocks, or a text of as many characters."""
HINT = OptionText("the template is damaged, or made to do harm: say ", RAW, " and write the whole prompt")


class EffortExceeded(TemplateError):
    """The chat template does not end within its limits."""


class _Effort:
    """What one rendering has left, and the sizes of the lists and objects that it has seen. They are kept alive, so
    that no other gets their number; a template cannot change them."""

    __slots__ = ("ends", "known", "left", "until")

    def __init__(self, seconds: float) -> None:
        self.ends = time.thread_time() + seconds
        self.left = float(MAX_MADE)
        self.until = self.left  # what is left when the clock is looked at next: it costs as much as a small template
        self.known: dict[int, tuple[Any, int]] = {}

    def spend(self, size: float) -> None:
        self.left -= size
        if self.left < 0:
            raise exceeded("makes more text than its messages need")
        if self.left < self.until:
            self.until = self.left - LOOK
            if time.thread_time() > self.ends:
                raise exceeded(f"takes more than {CPU_SECONDS:g} s of CPU time")

    def size(self, value: Any) -> int:
        """The characters and items of a value in all. Raises EffortExceeded above MAX_TEXT."""
        if isinstance(value, str | bytes):
            return len(value)
        if isinstance(value, int):
            return value.bit_length() >> 6
        if not isinstance(value, list | tuple | Mapping | set | frozenset):
            return 1
        measured = self.known.get(id(value))
        if measured is not None:
            return measured[1]
        parts = [part for pair in value.items() for part in pair] if isinstance(value, Mapping) else value
        total = 1 + len(value)
        for part in parts:
            total += self.size(part)
            if total > MAX_TEXT:
                raise too_long()
        self.known[id(value)] = (value, total)
        return total


_EFFORT: ContextVar[_Effort | None] = ContextVar("template_effort", default=None)


@contextmanager
def limited(*given: Any, seconds: float = CPU_SECONDS) -> Iterator[None]:
    """Limit the rendering inside. given: what it is given, JSON. Raises EffortExceeded, at once or from within."""
    effort = _Effort(seconds)
    effort.left += PER_GIVEN * sum(map(effort.size, given))
    token = _EFFORT.set(effort)
    try:
        yield
    finally:
        _EFFORT.reset(token)


def spend(size: float = 1) -> None:
    """Count work of this size. Raises EffortExceeded."""
    effort = _EFFORT.get()
    if effort is not None:
        effort.spend(size)


def made(value: Any) -> Any:
    """Count a value that was made, and return it. Raises EffortExceeded."""
    effort = _EFFORT.get()
    if effort is not None:
        total = effort.size(value)
        if total > MAX_TEXT:
            raise too_long()
        effort.spend(total + 1)
    return value


def size(value: Any) -> int:
    """The characters and items of a value in all, 0 outside a rendering. Raises EffortExceeded."""
    effort = _EFFORT.get()
    return 0 if effort is None else effort.size(value)


def check_size(size: float) -> None:
    """Before something of this size is made. Raises EffortExceeded."""
    if size > MAX_TEXT:
        raise too_long()


def too_long() -> EffortExceeded:
    return exceeded(f"makes a text of more than {MAX_TEXT:,} characters")


def exceeded(what: str) -> EffortExceeded:
    """The error. what: what the template does."""
    return EffortExceeded(f"the chat template {what}", hint=HINT, field="messages")
