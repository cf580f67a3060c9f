"""Drafts what followed the same tokens earlier in the prompt or in the text (prompt lookup)."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.decoding.drafts.source import DraftSource, DraftText

LONGEST, SHORTEST = 4, 2
"""How many tokens have to be the same; longer ones are looked for first."""


class LookupDrafter:
    """Remembers where each run of tokens was last followed by something."""

    def __init__(self, text: DraftText) -> None:
        self._text = text
        self._ids: list[int] = list(text.job.prompt)
        self._prompt = len(self._ids)
        self._ends: dict[tuple[int, ...], int] = {}  # a run of tokens -> the index after its last occurrence
        self._indexed = 0  # runs that end before this index are in `_ends`

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        self._ids += self._text.tokens[len(self._ids) - self._prompt :]
        ids, ends = self._ids, self._ends
        # A run at the very end is not recorded yet: nothing follows it.
        for end in range(max(self._indexed, SHORTEST), len(ids)):
            for size in range(SHORTEST, min(LONGEST, end) + 1):
                ends[tuple(ids[end - size : end])] = end
        self._indexed = max(self._indexed, len(ids))
        last = [*ids[-LONGEST:], *ahead][-LONGEST:]
        for size in range(min(LONGEST, len(last)), SHORTEST - 1, -1):
            start = ends.get(tuple(last[-size:]))
            if start is not None:
                return ids[start : start + most]
        return ()


LOOKUP = DraftSource(make=LookupDrafter)
