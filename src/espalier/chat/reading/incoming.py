"""Text as it arrives in pieces, read by coroutines that wait for more of it. It knows no format and no JSON.

A coroutine reads with `yield from`; whoever drives it pushes a piece and resumes it, and it waits again when all is
read. What is held can be read once more, so a reader may find that it was on the wrong road.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Reading: TypeAlias = Generator[None, None, T]
"""A coroutine that yields where it waits, and returns what it read."""
Tell: TypeAlias = Callable[[str], object]

SPACE = " \t\n\r"
_SPACES = re.compile(f"[{SPACE}]*")


class Cut(Exception):
    """The text ends where more of it is needed. Its message is "" where only the reader's caller knows what was cut."""


class Fault(Exception):
    """The text is not what it has to be, from the character `at` of the whole text on.

    is_certain: False where it may never have been meant to be a call. is_foreign: it was meant to be something else,
    so there is nothing to tell where calls have no marker.
    """

    def __init__(self, message: str, at: int, *, is_certain: bool = False, is_foreign: bool = False) -> None:
        super().__init__(f"at character {at}: {message}")
        self.is_certain = is_certain
        self.is_foreign = is_foreign


class Incoming:
    """The text so far and the place in it. Every character is read a bounded number of times, whatever the pieces."""

    def __init__(self) -> None:
        self._pieces = [""]
        self._index = 0  # the piece that is read
        self._at = 0  # the place in it
        self._before = 0  # characters of the text before it
        self._held: tuple[int, int, int] | None = None
        self._is_over = False

    def push(self, text: str) -> None:
        """More of the text."""
        if self._held is None and self._index:
            del self._pieces[: self._index]
            self._index = 0
        if text:
            self._pieces.append(text)

    def close(self) -> None:
        """There is no more."""
        self._is_over = True

    @property
    def offset(self) -> int:
        """How many characters of the whole text are read."""
        return self._before + self._at

    # Going back

    def hold(self) -> None:
        """Keep what follows from here; one place at a time."""
        self._held = (self._index, self._at, self._before)

    def release(self) -> None:
        """What was held need not be read again."""
        self._held = None

    def back(self) -> None:
        """To the place that was held, and no longer hold it."""
        if self._held is not None:
            self._index, self._at, self._before = self._held
        self._held = None

    # Reading

    def wait(self) -> Reading[bool]:
        """Whether there is another character; waits for it, and then `rest` holds it."""
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
        """The piece that is read, and the place in it."""
        return self._pieces[self._index], self._at

    def move(self, at: int) -> None:
        """To a place in the piece that is read."""
        self._at = at

    def need(self) -> Reading[str]:
        """The next character. Raises Cut at the end of the text."""
        if (yield from self.wait()):
            return self._pieces[self._index][self._at]
        raise Cut

    def take(self) -> Reading[str]:
        """The next character, read. Raises Cut at the end of the text."""
        character = yield from self.need()
        self._at += 1
        return character

    def skip(self) -> Reading[None]:
        """Reads whitespace; waits for what comes after it."""
        yield from self.run(_SPACES, _nothing)

    def sees(self, literal: str) -> Reading[bool]:
        """Whether the literal comes next; waits as long as it may, and reads nothing. Raises Cut if the text ends
        before it is clear."""
        ahead, at = 0, self._at
        for wanted in literal:
            while at == len(self._pieces[self._index + ahead]):
                if self._index + ahead + 1 < len(self._pieces):
                    ahead, at = ahead + 1, 0
                elif self._is_over:
                    raise Cut
                else:
                    yield
            if self._pieces[self._index + ahead][at] != wanted:
                return False
            at += 1
        return True

    def meets(self, literal: str) -> Reading[bool]:
        """As `sees`, and reads the literal if it is there."""
        found = yield from self.sees(literal)
        if found:
            for _ in literal:
                yield from self.take()
        return found

    def expect(self, literal: str) -> Reading[None]:
        """Reads whitespace and the literal. Raises Fault if something else is there, Cut if the text ends before."""
        yield from self.skip()
        at = self.offset
        if not (yield from self.meets(literal)):
            raise Fault(f"{literal!r} is missing", at)

    def until(self, literal: str, tell: Tell) -> Reading[bool]:
        """Tells all text before the literal as it arrives and stays in front of it; False where it never comes."""
        while (yield from self.wait()):
            piece, at = self.rest
            found = piece.find(literal[0], at)
            end = len(piece) if found < 0 else found
            if end > at:
                tell(piece[at:end])
                self._at = end
            if found >= 0:
                try:
                    if (yield from self.sees(literal)):
                        return True
                except Cut:
                    pass  # only its beginning: that is text as any other
                tell((yield from self.take()))
        return False

    def all(self, tell: Tell) -> Reading[None]:
        """Tells all text to the end."""
        while (yield from self.wait()):
            piece, at = self.rest
            tell(piece[at:])
            self._at = len(piece)

    def run(self, wanted: re.Pattern[str], tell: Tell) -> Reading[None]:
        """Tells characters as long as they match, and waits for one that does not. wanted: of any length, also none."""
        while (yield from self.wait()):
            piece, at = self.rest
            found = wanted.match(piece, at)
            end = found.end() if found else at
            if end > at:
                tell(piece[at:end])
                self._at = end
            if end < len(piece):
                return


def _nothing(_text: str) -> None:
    pass
