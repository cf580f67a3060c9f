"""Holds a limit of reasoning tokens in front of a server that counts none: the thought is read as it comes, and closed.

    <think> one two three four …      limit 4: hang up behind "three", write </think>, and ask for the rest

The second request has the first one's prompt, the thought and its closing marker, which the server has in its cache.
"""

from __future__ import annotations

from espalier.chat.reasoning import Reasoning
from espalier.engines.local.turns import PreparedTurn

CHANNELS = "the limit of reasoning is not held: the model reasons in channels"
FILTERED = "the limit of reasoning is not held: the grammar of a safety filter cannot go on from the middle of a text"


class ThoughtLimit:
    """The thought of one text, with the start marker. Not thread-safe."""

    def __init__(self, turn: PreparedTurn, reasoning: Reasoning, most: int) -> None:
        self._markers, self._most = reasoning, most
        self._text = ""
        self._count = 0
        self._is_inside = turn.inside
        self._is_over = False

    def take(self, text: str, tokens: int) -> None:
        """More text, and how many tokens it has."""
        if self._is_over:
            return
        self._text += text
        self._count += tokens
        if not self._is_inside:
            begun = self._text.lstrip()
            self._is_inside = begun.startswith(self._markers.start)
            self._is_over = not self._is_inside and not self._markers.start.startswith(begun)
        if self._is_inside and self._markers.end in self._text:
            self._is_over = True

    @property
    def is_spent(self) -> bool:
        """Whether the thought has had its tokens and goes on."""
        return self._is_inside and not self._is_over and self._count >= self._most

    def close(self) -> str:
        """What closes the thought: its end marker, without what has come of it."""
        end = self._markers.end
        begun = max((size for size in range(len(end)) if self._text.endswith(end[:size])), default=0)
        self._is_over = True
        return end[begun:]
