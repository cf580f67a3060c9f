"""Drafts what followed most often where texts under the same constraint were in the same state."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.decoding.drafts.source import DraftSource, DraftText


class GrammarDrafter:
    """Follows the places that earlier texts went through; the strategy records them. sure: see `SureDrafter`."""

    def __init__(self, text: DraftText) -> None:
        self._text = text
        self.sure: list[float] = []

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        place, known, least = self._text.place, self._text.known, self._text.least
        self.sure = sure = []
        for token in ahead:
            if place is None:
                return ()
            place = known.leads_to(place, token)
        draft: list[int] = []
        reached = worth = 1.0
        while place is not None and len(draft) < most:
            following = known.likeliest(place)
            if following is None:
                break
            token, rate, place = following
            reached, worth = reached * rate, worth * least
            if reached < worth:  # on average they are not sure enough
                break
            draft.append(token)
            sure.append(rate)
        return draft


GRAMMAR = DraftSource(make=GrammarDrafter, is_sure=True)
