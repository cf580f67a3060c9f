"""Drafts what a smaller model with the same vocabulary would write: its most probable allowed tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from espalier.decoding.canonical import shared
from espalier.decoding.drafts.source import Drafter, DraftSource, DraftText
from espalier.decoding.ports import Extend, SequenceId
from espalier.errors import LimitExceeded
from espalier.tokens import mask as masks


class ModelDrafter:
    """One sequence of the sibling model, which follows the text. Where the sibling has no room, nothing is proposed."""

    def __init__(self, text: DraftText) -> None:
        self._text, self._model = text, text.job.kit.sibling
        self._sequence: SequenceId | None = None
        self._held: list[int] = []  # what the sequence holds

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        model, job = self._model, self._text.job
        if model is None:
            return ()
        ids = [*job.prompt, *self._text.tokens, *ahead]
        matcher = None if job.matcher is None else job.matcher.fork()
        draft: list[int] = []
        try:
            todo = self._follow(ids)
            for token in ahead if matcher is not None else ():
                if matcher is None or not matcher.allows(token):
                    return ()
                matcher.advance(token)
            while len(draft) < min(most, model.max_positions - len(ids) + 1) and self._sequence is not None:
                if matcher is not None and matcher.is_finished:
                    break
                row = model.extend([Extend(sequence=self._sequence, tokens=tuple(todo))])[0][-1].copy()  # (V,)
                self._held += todo
                if matcher is not None:
                    masks.apply_inplace(row, masks.resized(matcher.mask(), row.shape[0]))
                token = int(np.argmax(row))
                if matcher is not None:
                    if not matcher.allows(token):
                        break
                    matcher.advance(token)
                draft.append(token)
                todo = [token]
        except LimitExceeded:
            return draft  # the sibling's cache is full
        return draft

    def close(self) -> None:
        """Free the sequence."""
        if self._model is not None and self._sequence is not None:
            self._model.free(self._sequence)
            self._sequence = None

    def _follow(self, ids: list[int]) -> list[int]:
        """The tokens that the sequence lacks, the last one always among them. Raises LimitExceeded."""
        model = self._model
        if model is None:
            return []
        keep = min(shared(self._held, ids), len(ids) - 1)
        if self._sequence is not None and keep < len(self._held):
            if model.can_truncate:
                model.truncate(self._sequence, keep)
            else:
                self.close()
        if self._sequence is None:
            self._sequence, keep = model.new(), 0
        self._held = ids[:keep]
        return ids[keep:]


def close(drafter: Drafter) -> None:
    """Free what a drafter of this source holds."""
    if isinstance(drafter, ModelDrafter):
        drafter.close()


MODEL = DraftSource(make=ModelDrafter, close=close)
