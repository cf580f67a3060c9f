"""`CandidateList`: the candidates of one stage of a step, kept as flat lists of ids and numbers.

A trace has some twenty candidates for each token and is mostly written without anybody looking at one, so that an
object is made only of those that are read. It knows neither logits nor how candidates are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, overload

from espalier.tokens.vocab import Vocab
from espalier.trace.steps import Candidate

MOST_VOCABS = 8
"""Vocabularies of which spellings are remembered: the same few tokens come at every step."""


class Spelling:
    """The text and the bytes of tokens, each looked up once. vocab: of tokens that are not `known`. specials: the known
    ones that stand outside the text."""

    __slots__ = ("_vocab", "known", "specials")

    def __init__(
        self, vocab: Vocab | None, known: dict[int, tuple[str, bytes]] | None = None, specials: Collection[int] = ()
    ) -> None:
        self._vocab, self.known, self.specials = vocab, {} if known is None else known, specials

    def of(self, token: int) -> tuple[str, bytes]:
        """Raises IndexError for an id that is no token."""
        spelled = self.known.get(token)
        if spelled is None:
            if self._vocab is None:
                raise IndexError(f"token id {token} has no spelling")
            spelled = self.known[token] = self._vocab.text_of(token), self._vocab.bytes_of(token)
        return spelled


@lru_cache(maxsize=MOST_VOCABS)
def spelling_of(vocab: Vocab) -> Spelling:
    return Spelling(vocab, specials=vocab.special_texts.keys())


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

    __slots__ = ("_find", "_listed", "_made", "_spelling")

    def __init__(self, spelling: Spelling, find: Callable[[], CandidateRows]) -> None:
        self._spelling = spelling
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
        flags = allowed or [True] * len(ids)
        return [
            {"id": token, "text": text, "bytes": [*data], "prob": prob, "logit": logit, "allowed": flag}
            for token, (text, data), prob, logit, flag in zip(
                ids, map(self._spelling.of, ids), probs, logits, flags, strict=True
            )
        ]

    def _candidate(self, at: int) -> Candidate:
        ids, probs, logits, allowed = self._rows()
        text, data = self._spelling.of(ids[at])
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
