"""Split a turn's text into thoughts and the answer, in pieces of any size. This is the one place that says where
thoughts are: the parser of turns, stop texts and the count of reasoning tokens ask it.

Markers are text here; engines spell special tokens that are markers (`marker_spellings`). It knows no format of calls.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy
from typing import Any, Literal, NamedTuple, Protocol, Self

from espalier.chat.reading.channel_header import BORDER, MARKERS, MAX_HEADER, MESSAGE, begins_header, read_header
from espalier.chat.reading.incoming import SPACE
from espalier.chat.reasoning import REASONING, Reasoning, detect_reasoning
from espalier.tokens.vocab import Vocab

GAP = 4
"""The most whitespace characters before the start marker, as in the constraint `Thinking`."""
TAG = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]")
"""What special tokens within a marker look like."""

TurnPart = Literal["marker", "thought", "gap", "answer"]
"""marker: a marker of a thought, and whitespace before it. gap: what stands between a thought and the answer."""


class TurnPiece(NamedTuple):
    """A piece of a turn's text; the texts of all pieces together are the whole text."""

    part: TurnPart
    text: str


class ThoughtSplitter(Protocol):
    """Takes a turn's text piece by piece. However it is cut, the texts of each part come to the same."""

    @property
    def is_thinking(self) -> bool | None:
        """Whether the text so far ends within a thought; None while it may still become one."""

    def feed(self, text: str) -> list[TurnPiece]:
        """The pieces that more text decides, in order."""

    def finish(self) -> list[TurnPiece]:
        """The pieces of what was held back, at the end of the text."""

    def fork(self) -> Self:
        """An independent copy in the same state."""


class HeldThoughts(ABC):
    """A splitter that holds back text until it knows what part of the turn it is."""

    __slots__ = ("_held", "_part")

    def __init__(self) -> None:
        self._part: TurnPart = "marker"
        self._held = ""

    def feed(self, text: str) -> list[TurnPiece]:
        """See `ThoughtSplitter`."""
        self._held += text
        return self._split(is_over=False)

    def finish(self) -> list[TurnPiece]:
        """See `ThoughtSplitter`."""
        return self._split(is_over=True)

    def fork(self) -> Self:
        """See `ThoughtSplitter`."""
        return copy(self)

    @abstractmethod
    def _split(self, *, is_over: bool) -> list[TurnPiece]:
        """The pieces that are decided."""

    def _give(self, pieces: list[TurnPiece], count: int) -> None:
        pieces.append(TurnPiece(self._part, self._held[:count]))
        self._held = self._held[count:]


class MarkedThoughts(HeldThoughts):
    """One thought between two markers, which comes first if at all. inside: whether the prompt has opened it; a start
    marker that the model repeats is then a marker too."""

    __slots__ = ("_end", "_inside", "_start")

    def __init__(self, reasoning: Reasoning, *, inside: bool) -> None:
        super().__init__()
        self._start, self._end = reasoning.start.strip(), reasoning.end.strip()
        self._inside = inside

    @property
    def is_thinking(self) -> bool | None:
        """See `ThoughtSplitter`."""
        if self._part == "marker":
            return True if self._inside else None
        return self._part == "thought"

    def _split(self, *, is_over: bool) -> list[TurnPiece]:
        pieces: list[TurnPiece] = []
        if self._part == "marker" and not self._read_start(pieces, is_over=is_over):
            return pieces
        if self._part == "thought":
            before, end, after = self._held.partition(self._end)
            if end:
                pieces += [TurnPiece("thought", before), TurnPiece("marker", end)]
                self._part, self._held = "gap", after
            else:
                self._give(pieces, len(self._held) - (0 if is_over else _overlap(self._held, self._end)))
        if self._part == "gap":
            answer = self._held.lstrip(SPACE)
            self._give(pieces, len(self._held) - len(answer))
            self._part = "answer" if answer else "gap"
        if self._part == "answer":
            self._give(pieces, len(self._held))
        return [piece for piece in pieces if piece.text]

    def _read_start(self, pieces: list[TurnPiece], *, is_over: bool) -> bool:
        """Whether it is known if the text begins with the start marker, which is then read."""
        begun = self._held.lstrip(SPACE)
        blanks = len(self._held) - len(begun)
        if blanks <= GAP:
            if begun.startswith(self._start):
                self._give(pieces, blanks + len(self._start))
                self._part = "thought"
                return True
            if self._start.startswith(begun) and not is_over:
                return False
        self._part = "thought" if self._inside else "answer"
        return True


class ChannelThoughts(HeldThoughts):
    """The thoughts of a turn that consists of messages in channels, see `channel_walk.py`: any number of them, between
    other messages."""

    __slots__ = ("_goes_on", "_is_begun")

    def __init__(self) -> None:
        super().__init__()
        self._is_begun = False  # whether this is not the first message
        self._goes_on = False  # whether another message may follow this one

    @property
    def is_thinking(self) -> bool | None:
        """See `ThoughtSplitter`."""
        return None if self._part == "marker" else self._part == "thought"

    def _split(self, *, is_over: bool) -> list[TurnPiece]:
        pieces: list[TurnPiece] = []
        while True:
            if self._part == "marker" and not self._read_header(pieces, is_over=is_over):
                break
            at = self._held.find(BORDER) if self._goes_on else -1
            if at < 0:
                kept = 0 if is_over or not self._goes_on else _overlap(self._held, BORDER)
                self._give(pieces, len(self._held) - kept)
                break
            self._give(pieces, at)
            self._part, self._is_begun = "gap", True
            self._give(pieces, len(BORDER))
            self._part = "marker"
        return [piece for piece in pieces if piece.text]

    def _read_header(self, pieces: list[TurnPiece], *, is_over: bool) -> bool:
        """Whether a header is complete, which is then read."""
        if (not self._is_begun and begins_header(self._held) is False) or len(self._held) > MAX_HEADER:
            self._part, self._goes_on = "answer", False
            return True
        header, message, _ = self._held.partition(MESSAGE)
        if not message:
            if is_over:
                self._give(pieces, len(self._held))
            return False
        read = read_header(header)
        self._part = "marker" if read.is_thought else "gap"
        self._give(pieces, len(header) + len(message))
        self._part, self._goes_on = "thought" if read.is_thought else "answer", not read.is_last
        return True


def thoughts_of(reasoning: Reasoning, *, inside: bool, in_channels: bool | None = None) -> ThoughtSplitter:
    """A splitter for one turn. inside: whether the prompt has opened the thought. in_channels: whether the turn
    consists of messages in channels; as the markers say if it is None."""
    if not (reasoning.in_channels if in_channels is None else in_channels):
        return MarkedThoughts(reasoning, inside=inside)
    thoughts = ChannelThoughts()
    thoughts.feed(reasoning.start if inside else "")
    return thoughts


class StartedTurn(NamedTuple):
    """How a model's turn starts. reasoning: its markers, None where no thought can come any more. inside: whether the
    prompt has opened the thought. added: what the prompt still needs, text that the turn has begun with included."""

    reasoning: Reasoning | None
    inside: bool
    added: str


def start_turn(
    markers: Reasoning | None, before: str, begun: Mapping[str, Any], *, may_think: bool = True
) -> StartedTurn:
    """before: what the chat template adds to start a turn. begun: a message that the turn continues, or an empty one.
    may_think: where it is false, a thought that the template opens is closed at once, and so it is before the content
    of a message that is continued."""
    content = str(begun.get("content") or "")
    if markers is None:
        return StartedTurn(None, inside=False, added=content)
    start, end = markers.start.strip(), markers.end.strip()
    inside = before.rfind(start) > before.rfind(end)
    is_over = not inside and end in before
    closing = ""
    if inside and (not may_think or (content.strip() and end not in content)):
        thought = str(begun.get("reasoning_content") or begun.get("reasoning") or "")
        closing, inside, is_over = f"{thought}\n{end}\n\n", False, True
    splitter = thoughts_of(markers, inside=inside)
    splitter.feed(content)
    is_over = is_over or splitter.is_thinking is False
    return StartedTurn(None if is_over else markers, bool(splitter.is_thinking) and not is_over, closing + content)


def find_reasoning(template: str, vocab: Vocab | None, *, is_asked: bool = False) -> Reasoning | None:
    """The markers that a chat template shows, or a vocabulary in which they are special tokens. is_asked: somebody says
    that the model reasons, so that tokens of text are enough; models that never think have them too."""
    if vocab is None:
        return detect_reasoning(template)
    texts = {text for reasoning in REASONING.values() for text in (reasoning.start, reasoning.end)}
    known = texts.intersection(vocab.special_texts.values())
    if is_asked:
        known |= {token.decode() for token in {text.encode() for text in texts}.intersection(vocab.tokens)}
    return detect_reasoning(template, known)


def marker_spellings(reasoning: Reasoning, vocab: Vocab) -> dict[int, bytes]:
    """The special tokens that are markers, or stand within one as in `<|end|><|start|>assistant`, with their spelling.
    One that ends a turn is none."""
    markers = [text for text in (reasoning.start, reasoning.end, *(MARKERS if reasoning.in_channels else ())) if text]
    return {
        token: spelling.encode()
        for token, spelling in vocab.special_texts.items()
        if token not in vocab.eos_ids
        and spelling
        and any(spelling == marker.strip() or (TAG.fullmatch(spelling) and spelling in marker) for marker in markers)
    }


def _overlap(text: str, marker: str) -> int:
    """The length of the longest end of a text with which the marker begins, short of the whole marker."""
    sizes = range(min(len(text), len(marker) - 1), 0, -1)
    return next((size for size in sizes if marker.startswith(text[-size:])), 0)
