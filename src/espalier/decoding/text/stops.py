"""Turns token bytes into text: emits whole UTF-8 characters, and holds back text that may be the start of a stop text.

It sees bytes, and knows nothing about tokens that end a text (EOS). Where the text may begin with a thought, stop texts
are looked for in the answer alone.
"""

from __future__ import annotations

from encodings.utf_8 import IncrementalDecoder
from typing import NamedTuple

from espalier.chat.reading.thoughts import ThoughtSplitter


class ShownText(NamedTuple):
    """text: may be shown now. stop: the stop text that was met, or None."""

    text: str
    stop: str | None = None


class TextAssembler:
    """Feed bytes, get text. All pieces together are the decoded bytes up to the first stop text. thoughts: a splitter
    of its own, None where all of the text is the answer."""

    def __init__(self, stops: tuple[str, ...] = (), thoughts: ThoughtSplitter | None = None) -> None:
        self._stops = stops
        self._thoughts = thoughts
        self._longest = max(map(len, stops), default=0)
        self._decoder = IncrementalDecoder("replace")
        self._held = ""  # decoded, not yet shown
        self._shown: list[str] = []
        self._stopped = False

    @property
    def text(self) -> str:
        """All text that was emitted."""
        return "".join(self._shown)

    def feed(self, data: bytes) -> ShownText:
        """Add the bytes of one token. After a stop text, further bytes are ignored."""
        if self._stopped:
            return ShownText("")
        decoder = self._decoder
        text = data.decode() if not decoder.buffer and data.isascii() else decoder.decode(data)
        if self._stops:
            return self._take(text, final=False)
        self._shown.append(text)  # the common case
        return ShownText(text)

    def fork(self) -> TextAssembler:
        """An independent copy in the same state."""
        copy = TextAssembler(self._stops, None if self._thoughts is None else self._thoughts.fork())
        copy._decoder.setstate(self._decoder.getstate())
        copy._held, copy._shown, copy._stopped = self._held, self._shown.copy(), self._stopped
        return copy

    def finish(self) -> ShownText:
        """The held text, and U+FFFD for an incomplete character at the end."""
        if self._stopped:
            return ShownText("")
        return self._take(self._decoder.decode(b"", final=True), final=True)

    def _take(self, text: str, *, final: bool) -> ShownText:
        if self._thoughts is None or not self._stops:
            self._held += text
            return self._release(final=final)
        shown: list[str] = []
        for part, piece in (*self._thoughts.feed(text), *(self._thoughts.finish() if final else ())):
            is_answer = part == "answer"
            self._held += piece if is_answer else ""
            given = self._release(final=not is_answer)
            shown.append(given.text)
            if given.stop is not None:
                return ShownText("".join(shown), given.stop)
            if not is_answer:
                shown.append(self._give(piece, None).text)
        last = self._release(final=True) if final else ShownText("")
        return ShownText("".join(shown) + last.text, last.stop)

    def _release(self, *, final: bool) -> ShownText:
        matches = [(at, len(stop), stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        maybe = len(self._held) if final else len(self._held) - self._could_be_stop()
        if matches:
            at, _, stop = min(matches)  # the earliest; of two at one place the shorter, which is complete first
            # An earlier place may still become a stop text: that one counts, however the bytes were split into tokens.
            if at <= maybe:
                text, self._held, self._stopped = self._held[:at], "", True
                return self._give(text, stop)
        text, self._held = self._held[:maybe], self._held[maybe:]
        return self._give(text, None)

    def _could_be_stop(self) -> int:
        """The length of the longest end of the held text that is the start of a stop text, in characters."""
        for size in range(min(len(self._held), self._longest - 1), 0, -1):
            tail = self._held[-size:]
            if any(stop.startswith(tail) for stop in self._stops):
                return size
        return 0

    def _give(self, text: str, stop: str | None) -> ShownText:
        self._shown.append(text)
        return ShownText(text, stop)
