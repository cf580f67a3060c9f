"""`CandidateList`: the candidates of one stage of a step, kept as flat lists of ids and numbers.

A trace has some twenty candidates for each token and is mostly written without anybody looking at one, so that an
object is made only of those that are read. It knows neither logits nor how candidates are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, overload

from espalier.tokens.vocab import Vocab
from espalier.trace.steps import Candidate

MOST_SPELLED = 16_384
"""Tokens whose spelling is remembered, over all vocabularies: the same few come at every step."""


class CandidateRows(NamedTuple):
    """The candidates of a stage, most probable first; lists of one length. allowed: None for all of them."""

    ids: list[int]
    probs: list[float]
    logits: list[float | None]
    allowed: list[bool] | None


class CandidateList(Sequence[Candidate]):
    """Equal to the tuple of its candidates, with the same hash. `find` is called once, at the first access, and must
    not depend on when that is; what it references is kept until then. Two threads that access first may both call
    it."""

    __slots__ = ("_find", "_listed", "_made", "_vocab")

    def __init__(self, vocab: Vocab, find: Callable[[], CandidateRows]) -> None:
        self._vocab = vocab
        self._find: Callable[[], CandidateRows] | None = find
        self._listed: CandidateRows | None = None
        self._made: tuple[Candidate, ...] | None = None

    def _rows(self) -> CandidateRows:
        rows, find = self._listed, self._find
        if rows is None:
            if find is None:  # another thread has just listed them
                return self._rows()
            rows = self._listed = find()
            self._find = None
        return rows

    def to_json(self) -> list[dict[str, Any]]:
        """As the `to_json` of each candidate."""
        ids, probs, logits, allowed = self._rows()
        vocab, flags = self._vocab, allowed or [True] * len(ids)
        return [
            {"id": token, "text": text, "bytes": [*data], "prob": prob, "logit": logit, "allowed": flag}
            for token, (text, data), prob, logit, flag in zip(
                ids, [_spelling(vocab, token) for token in ids], probs, logits, flags, strict=True
            )
        ]

    def _candidate(self, at: int) -> Candidate:
        ids, probs, logits, allowed = self._rows()
        text, data = _spelling(self._vocab, ids[at])
        flag = allowed is None or allowed[at]
        return Candidate(id=ids[at], text=text, bytes=data, prob=probs[at], logit=logits[at], allowed=flag)

    def _all(self) -> tuple[Candidate, ...]:
        made = self._made
        if made is None:
            made = self._made = tuple(self._candidate(at) for at in range(len(self)))
        return made

    @overload
    def __getitem__(self, index: int) -> Candidate: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...
    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        if self._made is None and isinstance(index, int):
            return self._candidate(index)  # the favourite alone is what most readers want
        return self._all()[index]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._all())  # the one of Sequence asks for each item by its index

    def __len__(self) -> int:
        return len(self._rows().ids)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, CandidateList):
            return self._all() == other._all()
        return self._all() == other if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles are plain tuples: this references a whole vocabulary."""
        return tuple, (self._all(),)


@lru_cache(maxsize=MOST_SPELLED)
def _spelling(vocab: Vocab, token: int) -> tuple[str, bytes]:
    """The text and the bytes of a token."""
    return vocab.text_of(token), vocab.bytes_of(token)
