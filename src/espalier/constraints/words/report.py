"""The out-of-vocabulary report of a text for a `Wordlist`: counts known and unknown words, capitals and characters.

`judge.py` decides whether the text fits the list; this module counts its parts.
"""

from __future__ import annotations

import math
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from espalier.constraints.words.judge import Problem, WordReader, problems, straight
from espalier.constraints.words.spec import Wordlist
from espalier.json_record import FIRST, Json, JsonRecord, in_json
from espalier.lexicon.files import WordFiles
from espalier.lexicon.languages import HYPHENS, fold

SHARES = (50, 90, 95, 99)
PROBLEMS = 5
NOWHERE = math.inf
"""The rank of a word that is not in the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordCount(JsonRecord):
    """A word or character of the text, with its count. offset: where it first occurs, in characters; line and column
    from 1. rank: the rank of a word of the list beyond `top`; None for a word that is not in the list.
    """

    text: str
    count: int
    offset: int
    line: int
    column: int
    rank: int | None = None


def _text_keys(numbers: Mapping[int, Any]) -> dict[str, Any]:
    return {str(number): value for number, value in numbers.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class WordReport(JsonRecord):
    """The counts of one text.

    words: number of words; distinct: number of distinct words, ignoring capitals; known: number of words of the list.
    numbers: number of numbers, if the spec allows them. unknown: words outside the list, most frequent first. capitals:
    known words whose capitals are not allowed. characters: characters that are neither separators nor part of words.
    problems: the first places where the text does not fit, of `problem_count`. largest_rank: the largest rank of the
    text's words in the whole list. enough: for a share of the words in percent, the smallest `top` that covers it, None
    if no `top` does. listed: number of words allowed by `top`.
    """

    listed: int
    words: int
    distinct: int
    known: int
    numbers: int
    unknown: tuple[WordCount, ...]
    capitals: tuple[WordCount, ...]
    characters: tuple[WordCount, ...]
    largest_rank: int | None
    enough: Annotated[dict[int, int | None], Json(write=_text_keys)]
    problem_count: int
    problems: tuple[Problem, ...]

    @property
    @in_json(after=FIRST)
    def fits(self) -> bool:
        return self.problem_count == 0

    @property
    @in_json(after="known")
    def share(self) -> float | None:
        """The share of known words, from 0 to 1; None if there are no words."""
        return self.known / self.words if self.words else None


class TextPiece(NamedTuple):
    """A part of the text. kind: `word`, `known` (a listed word that contains separators), `number` or `character`.
    start: a sentence may start with it."""

    kind: str
    offset: int
    text: str
    start: bool


def oov_report(spec: Wordlist, text: str, words: WordFiles) -> WordReport:
    """The report of a text. Raises SpecError, UnknownName if there is no such list."""
    reader = WordReader(spec, words)
    count = Counter(reader, text)
    for piece in pieces(reader, text, count.ranks):
        count.add(piece)
    return count.report()


def pieces(reader: WordReader, text: str, ranks: dict[str, int]) -> Iterator[TextPiece]:
    """The words, numbers and stray characters of a text, in order, without separators."""
    apart = reader.separators | (frozenset(HYPHENS) if reader.spec.hyphens else frozenset())
    spanning: dict[str, list[str]] = {}  # words that contain separators, by first character, longest first
    for word in sorted((w for w in ranks if not apart.isdisjoint(w)), key=len, reverse=True):
        spanning.setdefault(word[0], []).append(word)
    folded = straight(text).lower()
    aligned = len(folded) == len(text)  # a few letters change their length in lower case
    at, start, between = 0, True, True
    while at < len(text):
        if between and aligned:
            near = spanning.get(folded[at], ())
            held = next((w for w in near if folded.startswith(w, at) and _ends(text, at + len(w), apart)), None)
            if held is not None:
                yield TextPiece("known", at, text[at : at + len(held)], start)
                at, start, between = at + len(held), False, False
                continue
        char = text[at]
        if char in apart:
            start, between, at = start or char in reader.ends, True, at + 1
            continue
        kind = _kind(reader, char)
        end = max(reader.number_ends(text, at), default=at + 1) if kind == "number" else at + 1
        while kind == "word" and end < len(text) and text[end] not in apart and _kind(reader, text[end]) == "word":
            end += 1
        yield TextPiece(kind, at, text[at:end], start)
        at, start, between = end, False, False


def _ends(text: str, at: int, apart: frozenset[str]) -> bool:
    return at == len(text) or text[at] in apart or not text[at].isalnum()


def _kind(reader: WordReader, char: str) -> str:
    """The kind of the piece that a character starts, if it is no separator."""
    if char.isdigit() and char not in reader.alphabet:
        return "number" if reader.spec.digits and char in reader.digits else "character"
    if char.isalpha() or unicodedata.category(char).startswith("M") or char in reader.alphabet:
        return "word"
    return "character"


class Counter:
    """Counts pieces. Words are compared in lower case; ranks refer to the whole list, beyond `top` too."""

    def __init__(self, reader: WordReader, text: str) -> None:
        self._reader = reader
        self._text = text
        self._line_starts = [0, *(i + 1 for i, c in enumerate(text) if c == "\n")]
        self._cuts: dict[str, list[str]] = {}  # by word, because words repeat
        spec = reader.spec
        self.ranks = {word: rank for rank, word in enumerate(reader.full, 1)}
        self._names = frozenset(fold(name, reader.rules) for name in spec.names)
        self.ranks |= dict.fromkeys((*spec.extra, *self._names), 0)
        self._top = len(reader.full) if spec.top is None else spec.top
        self._longest = max(map(len, self.ranks))
        self._known: list[float] = []  # the rank of each word; NOWHERE for words outside the list
        self._distinct: set[str] = set()
        self._numbers = 0
        self._tables: dict[str, dict[str, list[Any]]] = {"unknown": {}, "capitals": {}, "characters": {}}

    def add(self, piece: TextPiece) -> None:
        """Count one piece."""
        if piece.kind == "number":
            self._numbers += 1
        elif piece.kind == "character":
            self._note("characters", piece.text, piece.offset)
        elif self._reader.rules.spaced or piece.kind == "known":
            self._word(piece)
        else:
            self._note_unspaced(piece)

    def report(self) -> WordReport:
        """The report of all pieces so far."""
        faults = problems(self._reader, self._text)
        ranks = sorted(self._known)
        reached = [int(rank) for rank in ranks if rank != NOWHERE and rank > 0]
        return WordReport(
            words=len(ranks),
            distinct=len(self._distinct),
            known=sum(rank <= self._top for rank in ranks),
            numbers=self._numbers,
            unknown=self._table("unknown"),
            capitals=self._table("capitals"),
            characters=self._table("characters"),
            problems=tuple(faults[:PROBLEMS]),
            problem_count=len(faults),
            largest_rank=reached[-1] if reached else None,
            enough={share: _enough(ranks, share) for share in SHARES},
            listed=self._top,
        )

    def _fold(self, text: str) -> str:
        return fold(text, self._reader.rules)

    def _word(self, piece: TextPiece) -> None:
        """Count a word between separators, which may consist of several listed words: l'eau, dog's."""
        word = self._fold(piece.text)
        cut = self._cut(word)
        if not cut and not word.isalnum():  # marks around the word that are not part of it: 'word', -word-
            begin, end = _inner(piece.text)
            if 0 < end - begin < len(piece.text) and (inner := self._cut(self._fold(piece.text[begin:end]))):
                for at in (*range(begin), *range(end, len(piece.text))):
                    self._note("characters", piece.text[at], piece.offset + at)
                piece = piece._replace(offset=piece.offset + begin, text=piece.text[begin:end])
                word, cut = self._fold(piece.text), inner
            elif begin == end:
                for at, char in enumerate(piece.text):
                    self._note("characters", char, piece.offset + at)
                return
        for part in cut or [word]:
            self._count(part)
        worst = max((self.ranks[part] for part in cut), default=NOWHERE)
        if worst > self._top:
            self._note("unknown", word, piece.offset, worst)
        elif straight(piece.text) == word and self._names.isdisjoint(cut):
            return  # written as listed
        elif not self._reader.fits(piece.text, start=piece.start):
            self._note("capitals", piece.text, piece.offset)

    def _count(self, word: str) -> None:
        self._distinct.add(word)
        self._known.append(self.ranks.get(word, NOWHERE))

    def _cut(self, word: str) -> list[str]:
        """The listed words that make up a word between separators, with the best ranks; empty if none do."""
        if word in self.ranks and self._joins(word) is None:
            return [word]
        if word not in self._cuts:
            self._cuts[word] = self._search(word)
        return self._cuts[word]

    def _search(self, word: str) -> list[str]:
        # (worst rank, words) by offset, and whether the main word has been read, around which elided forms and clitics
        # stand.
        best: dict[tuple[int, bool], tuple[int, list[str]]] = {(0, False): (0, [])}
        for at in range(len(word)):
            for read in (False, True):
                if (at, read) not in best:
                    continue
                worst, parts = best[at, read]
                for end in range(at + 1, min(len(word), at + self._longest) + 1):
                    part = word[at:end]
                    if part not in self.ranks or (self._joins(part) == "before") != read:
                        continue
                    then = (end, self._joins(part) != "after")
                    value = (max(worst, self.ranks[part]), [*parts, part])
                    if then not in best or value[0] < best[then][0]:
                        best[then] = value
        return best.get((len(word), True), (0, []))[1]

    def _joins(self, word: str) -> str | None:
        """The neighbour that a word attaches to: the one `before` it (a clitic), `after` it (an elided form), or
        None."""
        rules = self._reader.rules
        if word in self._names or word == "'":
            return None
        if rules.elisions and word.endswith("'"):
            return "after"
        return "before" if rules.clitics and word.startswith("'") else None

    def _note_unspaced(self, piece: TextPiece) -> None:
        """Count words without spaces between them: cut so that as few characters as possible are outside the list, and
        then into as few words as possible."""
        text = straight(piece.text)
        lower = text.lower()
        word = lower if len(lower) == len(text) else text
        size = len(word)
        # Cost of the rest from each offset: (characters beyond `top`, characters outside the list, words, next cut).
        best: list[tuple[int, int, int, int]] = [(0, 0, 0, size)] * (size + 1)
        for at in range(size - 1, -1, -1):
            options = [(best[at + 1][0] + 1, best[at + 1][1] + 1, best[at + 1][2] + 1, at + 1)]
            for end in range(at + 1, min(size, at + self._longest) + 1):
                if word[at:end] in self.ranks:
                    over = end - at if self.ranks[word[at:end]] > self._top else 0
                    options.append((best[end][0] + over, best[end][1], best[end][2] + 1, end))
            best[at] = min(options)
        at = 0
        while at < size:
            begin, at = at, best[at][3]
            if word[begin:at] not in self.ranks:  # one character; adjacent ones belong to the same unknown word
                while at < size and word[at : best[at][3]] not in self.ranks:
                    at = best[at][3]
            part = word[begin:at]
            self._count(part)
            rank = self.ranks.get(part, NOWHERE)
            if rank > self._top:
                self._note("unknown", part, piece.offset + begin, rank)
            elif not self._reader.fits(text[begin:at], start=piece.start and begin == 0):
                self._note("capitals", text[begin:at], piece.offset + begin)

    def _note(self, table: str, text: str, offset: int, rank: float = NOWHERE) -> None:
        entry = self._tables[table].setdefault(text, [0, offset, None if rank == NOWHERE else int(rank)])
        entry[0] += 1

    def _table(self, name: str) -> tuple[WordCount, ...]:
        """The entries, most frequent first, then in the order of the text."""
        entries = sorted(self._tables[name].items(), key=lambda item: (-item[1][0], item[1][1]))
        rows = []
        for text, (count, offset, rank) in entries:
            line = bisect_right(self._line_starts, offset)
            column = offset - self._line_starts[line - 1] + 1
            rows.append(WordCount(text=text, count=count, offset=offset, line=line, column=column, rank=rank))
        return tuple(rows)


def _inner(text: str) -> tuple[int, int]:
    """The offsets of the first letter and after the last one; (0, 0) if there is no letter."""
    letters = [i for i, c in enumerate(text) if c.isalnum() or unicodedata.combining(c)]
    return (letters[0], letters[-1] + 1) if letters else (0, 0)


def _enough(ranks: list[float], share: int) -> int | None:
    """The smallest `top` that covers a share, in percent, of words with these ranks, sorted."""
    if not ranks:
        return None
    worst = ranks[math.ceil(len(ranks) * share / 100) - 1]
    return None if worst == NOWHERE else max(1, int(worst))
