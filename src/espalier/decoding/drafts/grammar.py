"""Drafts what followed most often where texts under the same constraint were in the same state."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.decoding.drafts.source import DraftText, Source


class GrammarDrafter:
    """Follows the places that earlier texts went through; the strategy records them."""

    def __init__(self, text: DraftText) -> None:
        self._text = text

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        place, known = self._text.place, self._text.known
        for token in ahead:
            if place is None:
                return ()
            place = known.leads_to(place, token)
        found: list[int] = []
        while place is not None and len(found) < most:
            following = known.likeliest(place)
            if following is None:
                break
            token, place = following
            found.append(token)
        return found


GRAMMAR = Source(make=GrammarDrafter)
