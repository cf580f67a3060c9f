"""`IncomingText`: text that arrives in pieces, read by coroutines that wait for more. Formats and JSON are not known
here.

A coroutine reads with `yield from`; the driver pushes a piece and resumes it, and it waits again when all is read. Held
text can be read again, so that a reader can backtrack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
"""A coroutine that yields while it waits, and returns what it read."""
Emit: TypeAlias = Callable[[str], object]

SPACE = " \t\n\r"
_SPACES = re.compile(f"[{SPACE}]*")


class IncompleteText(Exception):
    """The text ends where more of it is needed. The message is "" if only the reader's caller knows what was cut
    off."""


class FormatMismatch(Exception):
    """The text does not fit the format from character `at` of the whole text on.

    is_certain: False if it may never have been meant as a call. is_foreign: it was meant as something else, so a format
    without a marker reports nothing.
    """

    def __init__(self, message: str, at: int, *, is_certain: bool = False, is_foreign: bool = False) -> None:
        super().__init__(f"at character {at}: {message}")
        self.is_certain = is_certain
        self.is_foreign = is_foreign


class IncomingText:
    """The text so far and the current position. Every character is read a bounded number of times, however the pieces
    are cut."""

    def __init__(self) -> None:
        self._pieces = [""]
        self._index = 0  # the current piece
        self._at = 0  # the position in it
        self._before = 0  # characters of the text before it
        self._held: tuple[int, int, int] | None = None
        self._is_over = False

    def push(self, text: str) -> None:
        """Add text."""
        if self._held is None and self._index:
            del self._pieces[: self._index]
            self._index = 0
        if text:
            self._pieces.append(text)

    def pass_over(self, text: str) -> None:
        """Count text that comes before the first piece and is read elsewhere."""
        self._before += len(text)

    def close(self) -> None:
        """End the text."""
        self._is_over = True

    @property
    def offset(self) -> int:
        """The number of characters read so far."""
        return self._before + self._at

    # Backtracking

    def hold(self) -> None:
        """Remember the current position, so that `back` can return to it; one position at a time."""
        self._held = (self._index, self._at, self._before)

    def release(self) -> None:
        """Forget the held position."""
        self._held = None

    def back(self) -> None:
        """Return to the held position and forget it."""
        if self._held is not None:
            self._index, self._at, self._before = self._held
        self._held = None

    # Reading

    def wait(self) -> Reading[bool]:
        """Whether there is another character; waits for it. `rest` then contains it."""
        while self._at == len(self._pieces[self._index]):
            if self._index + 1 < len(self._pieces):
                self._before += self._at
                self._index += 1
                self._at = 0
            elif self._is_over:
                return False
            else:
                yield
        return True

    @property
    def rest(self) -> tuple[str, int]:
        """The current piece, and the position in it."""
        return self._pieces[self._index], self._at

    def move(self, at: int) -> None:
        """Move to a position in the current piece."""
        self._at = at

    def need(self) -> Reading[str]:
        """The next character, not consumed. Raises IncompleteText at the end of the text."""
        if (yield from self.wait()):
            return self._pieces[self._index][self._at]
        raise IncompleteText

    def take(self) -> Reading[str]:
        """The next character, consumed. Raises IncompleteText at the end of the text."""
        character = yield from self.need()
        self._at += 1
        return character

    def skip(self) -> Reading[None]:
        """Consume whitespace; waits for what follows it."""
        yield from self.run(_SPACES, _nothing)

    def sees(self, literal: str) -> Reading[bool]:
        """Whether the literal comes next; waits as long as that is open, and consumes nothing. Raises IncompleteText if
        the text ends before it is decided."""
        ahead, at = 0, self._at
        for wanted in literal:
            while at == len(self._pieces[self._index + ahead]):
                if self._index + ahead + 1 < len(self._pieces):
                    ahead, at = ahead + 1, 0
                elif self._is_over:
                    raise IncompleteText
                else:
                    yield
            if self._pieces[self._index + ahead][at] != wanted:
                return False
            at += 1
        return True

    def meets(self, literal: str) -> Reading[bool]:
        """As `sees`, and consumes the literal if it is there."""
        is_next = yield from self.sees(literal)
        if is_next:
            for _ in literal:
                yield from self.take()
        return is_next

    def expect(self, literal: str) -> Reading[None]:
        """Consume whitespace and the literal. Raises FormatMismatch if something else is there, IncompleteText if the
        text ends before."""
        yield from self.skip()
        at = self.offset
        if not (yield from self.meets(literal)):
            raise FormatMismatch(f"{literal!r} is missing", at)

    def until(self, literal: str, emit: Emit, *, must_come: bool = False) -> Reading[bool]:
        """Pass on all text before the literal as it arrives, and stop in front of it; False if it never comes. With
        `must_come` the beginning of the literal at the end of the text is no text: then IncompleteText is raised."""
        while (yield from self.wait()):
            piece, at = self.rest
            start = piece.find(literal[0], at)
            end = len(piece) if start < 0 else start
            if end > at:
                emit(piece[at:end])
                self._at = end
            if start >= 0:
                try:
                    if (yield from self.sees(literal)):
                        return True
                except IncompleteText:
                    if must_come:
                        raise
                    # Only the beginning of the literal: plain text.
                emit((yield from self.take()))
        return False

    def all(self, emit: Emit) -> Reading[None]:
        """Pass on all text to the end."""
        while (yield from self.wait()):
            piece, at = self.rest
            emit(piece[at:])
            self._at = len(piece)

    def run(self, wanted: re.Pattern[str], emit: Emit) -> Reading[None]:
        """Pass on characters as long as they match, and wait for one that does not. wanted: matches any length, also
        zero."""
        while (yield from self.wait()):
            piece, at = self.rest
            match = wanted.match(piece, at)
            end = match.end() if match else at
            if end > at:
                emit(piece[at:end])
                self._at = end
            if end < len(piece):
                return


def _nothing(_text: str) -> None:
    pass
