"""`PackedSteps`: the steps of a trace as a few arrays, which are stored as bytes, and read as the JSON of each step.

JSON of a step has some thirty candidates, and to write it takes longer than a small model's token. Here the rows of all
steps (`listed.py`) become arrays at once, in as few bytes as their values have, and a candidate is a Python object only
for who reads it. What was no row, such as a step whose token was drawn twice, stays JSON. It knows no store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from espalier.automata.reasons.blame import Blame
from espalier.sampling.fast.codes import ALLOWED, CHAIN, COUNT, FIGURES, IS_BEST, NUMBERS, TAX, TOKEN, WANTED
from espalier.trace.candidates import Spelling
from espalier.trace.listed import StepLines, StepRow, gather_lines, row_sizes
from espalier.trace.steps import StepRecord

LISTS = (WANTED, ALLOWED, CHAIN)
"""Where the lengths of the three lists of a step stand."""
MOST_WIDTH = 1_000
"""Places of a list, in what is read."""
Arrays = dict[str, NDArray[Any]]


class _StoredAnswers:
    """The rule and the blame of a step that was stored."""

    __slots__ = ("_blame", "_rule")

    def __init__(self, rule: str | None, blame: Blame | None) -> None:
        self._rule, self._blame = rule, blame

    def why_refused(self, token: int) -> Blame | None:
        return self._blame

    def rule_of(self, token: int) -> str | None:
        return self._rule


class RefusedFavourite(NamedTuple):
    """A token that the model wanted most where it was not allowed, and the one that was taken."""

    path: str | None
    rule: str | None
    wanted: str
    taken: str
    tax_nats: float


class PackedSteps(Sequence[Mapping[str, Any]]):
    """Steps in order; as a sequence, each as `StepRecord.to_json()` writes it. paths: of each step's first byte; None
    without a document."""

    def __init__(self, steps: Sequence[StepRecord], paths: Sequence[str | None] | None = None) -> None:
        self.records, self.paths = steps, paths
        #: those that are rows, in order
        self.listed: list[StepRow] = [step.origin for step in steps if step.origin is not None]
        self._numbers, self._figures = gather_lines([listed.lines for listed in self.listed])

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Mapping[str, Any]]: ...
    def __getitem__(self, index: int | slice) -> Mapping[str, Any] | Sequence[Mapping[str, Any]]:
        if isinstance(index, slice):
            return [record.to_json() for record in self.records[index]]
        return self.records[index].to_json()

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return (record.to_json() for record in self.records)

    @property
    def bounded(self) -> int:
        """Steps of which some values are bounds."""
        return sum(step.origin is None and step.exactness == "bounded" for step in self.records)

    def refused_favourites(self) -> Iterator[RefusedFavourite]:
        """Where the model wanted a token most that was not allowed."""
        places = IS_BEST, NUMBERS, TOKEN  # the favourite is the first that is listed
        columns = (self._numbers[:, place].tolist() for place in places)
        rows = iter(zip(self.listed, *columns, self._figures[:, TAX].tolist(), strict=True))
        for at, step in enumerate(self.records):
            path = None if self.paths is None else self.paths[at]
            if step.origin is not None:
                listed, is_best, favourite, token, tax = next(rows)
                if not is_best:
                    wanted, taken = (listed.spelling.of(each)[0] for each in (favourite, token))
                    yield RefusedFavourite(path, listed.reasons()[0], wanted, taken, tax)
            elif step.pre_masking and not step.pre_masking[0].allowed:
                yield RefusedFavourite(path, step.rule, step.pre_masking[0].text, step.text, step.tax_nats)

    def write(self) -> tuple[dict[str, Any], bytes]:
        """A description, which is JSON, and the bytes that it describes."""
        numbers, figures = self._numbers, self._figures
        width = (numbers.shape[1] - NUMBERS) // 4
        counts = numbers[:, LISTS]  # (n, 3) int64
        wanted, allowed, drawn = (np.arange(width) < counts[:, at, None] for at in range(3))  # (n, width) bool each
        lists = (wanted, wanted, allowed, drawn)
        ids = [numbers[:, NUMBERS + at * width : NUMBERS + (at + 1) * width][each] for at, each in enumerate(lists)]
        lists = (wanted, allowed, drawn, drawn)
        values = [figures[:, FIGURES + at * width : FIGURES + (at + 1) * width][each] for at, each in enumerate(lists)]
        used = np.unique(np.concatenate([ids[0], ids[2], ids[3]]))
        small = np.uint16 if not used.size or used[-1] < 1 << 16 else np.uint32
        rules: dict[str | None, int] = {}
        blames: dict[Blame | None, int] = {}
        reasons = [listed.reasons() for listed in self.listed]
        arrays: Arrays = {
            "steps": np.array([listed.step for listed in self.listed], dtype=np.int32),
            "tokens": numbers[:, TOKEN].astype(small),
            "counts": counts.astype(np.uint16 if width > 255 else np.uint8),
            "allowed": numbers[:, COUNT].astype(np.int32),
            "best": numbers[:, IS_BEST].astype(np.uint8),
            "figures": np.ascontiguousarray(figures[:, :FIGURES]),
            "wanted_ids": ids[0].astype(small),
            "wanted_flags": np.packbits(ids[1].astype(np.bool_)),
            "wanted_logits": values[0].astype(np.float32),
            "allowed_ids": ids[2].astype(small),
            "allowed_logits": values[1].astype(np.float32),
            "drawn_ids": ids[3].astype(small),
            "drawn_logits": values[2].astype(np.float32),
            "drawn_probs": values[3],
            "rules": np.array([rules.setdefault(rule, len(rules)) for rule, _ in reasons], dtype=np.int32),
            "blames": np.array([blames.setdefault(why, len(blames)) for _, why in reasons], dtype=np.int32),
        }
        spelling = self.listed[0].spelling if self.listed else Spelling(None)
        tokens = used.tolist()
        spelled = [spelling.of(token) for token in tokens]
        description = {
            "width": width,
            "arrays": {name: [array.dtype.str, array.size] for name, array in arrays.items()},
            "ids": tokens,
            "texts": [text for text, _ in spelled],
            # Only of what the text does not tell, such as a part of a character.
            "bytes": {str(at): [*data] for at, (text, data) in enumerate(spelled) if _encoded(text) != data},
            "specials": [token for token in tokens if token in spelling.specials],
            "rules": [*rules],
            "blames": [None if why is None else why.to_json() for why in blames],
            "others": {str(at): step.to_json() for at, step in enumerate(self.records) if step.origin is None},
        }
        return description, b"".join(array.tobytes() for array in arrays.values())


def read_steps(description: Mapping[str, Any], data: bytes) -> list[dict[str, Any]]:
    """The steps that `PackedSteps.write` wrote, as JSON. Raises ValueError, KeyError, TypeError, IndexError for what it
    did not write."""
    arrays, start = {}, 0
    for name, (dtype, size) in description["arrays"].items():
        arrays[name] = np.frombuffer(data, dtype=np.dtype(dtype), count=size, offset=start)
        start += arrays[name].nbytes
    lines, spelling = _read_lines(arrays, int(description["width"])), _read_spelling(description)
    rules, blames = description["rules"], [_read_blame(why) for why in description["blames"]]
    reasons = zip(arrays["rules"].tolist(), arrays["blames"].tolist(), strict=True)
    listed = iter(
        StepRow(step, lines._replace(at=at), spelling, _StoredAnswers(rules[rule], blames[why]), 0).record()
        for at, (step, (rule, why)) in enumerate(zip(arrays["steps"].tolist(), reasons, strict=True))
    )
    others = description["others"]
    count = arrays["steps"].size + len(others)
    return [others[str(at)] if str(at) in others else next(listed).to_json() for at in range(count)]


def _read_lines(arrays: Arrays, width: int) -> StepLines:
    count = arrays["steps"].size
    if not 0 <= width <= MOST_WIDTH:
        raise ValueError(f"{width} places of a list")
    sizes = row_sizes(width)
    numbers, figures = np.zeros((count, sizes[0]), dtype=np.int64), np.zeros((count, sizes[1]), dtype=np.float64)
    numbers[:, TOKEN], numbers[:, COUNT], numbers[:, IS_BEST] = arrays["tokens"], arrays["allowed"], arrays["best"]
    numbers[:, LISTS] = counts = arrays["counts"].reshape(count, 3)
    figures[:, :FIGURES] = arrays["figures"].reshape(count, FIGURES)
    wanted, allowed, drawn = (np.arange(width) < counts[:, at, None] for at in range(3))
    flags = np.unpackbits(arrays["wanted_flags"], count=arrays["wanted_ids"].size)
    numbered = (wanted, arrays["wanted_ids"]), (wanted, flags), (allowed, arrays["allowed_ids"])
    for at, (each, values) in enumerate((*numbered, (drawn, arrays["drawn_ids"]))):
        numbers[:, NUMBERS + at * width : NUMBERS + (at + 1) * width][each] = values
    logits = (wanted, arrays["wanted_logits"]), (allowed, arrays["allowed_logits"]), (drawn, arrays["drawn_logits"])
    for at, (each, values) in enumerate((*logits, (drawn, arrays["drawn_probs"]))):
        figures[:, FIGURES + at * width : FIGURES + (at + 1) * width][each] = values
    return StepLines(numbers, figures, 0)


def _read_spelling(description: Mapping[str, Any]) -> Spelling:
    own = description["bytes"]
    pairs = enumerate(zip(description["ids"], description["texts"], strict=True))
    known = {token: (text, bytes(own[str(at)]) if str(at) in own else _encoded(text)) for at, (token, text) in pairs}
    return Spelling(None, known, frozenset(description["specials"]))


def _read_blame(data: Any) -> Blame | None:
    return None if data is None else Blame.from_json(data)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
