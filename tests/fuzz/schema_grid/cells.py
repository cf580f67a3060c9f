"""The cells of the grid: keywords, place, draft and values, one for each number, in an order that a seed shuffles.

A round has each set of keywords, those of small families several times, each time in the next of its places and with
the next of its values. So any part of a run covers keywords, pairs and places evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any

from tests.fuzz.schema_grid.keywords import ADDRESSES, KINDS, Kind, drafts_of, keyword_sets, pairs, values_at
from tests.fuzz.schema_grid.places import COMPANIONS, Part, Place, places_of

TIMES: dict[Kind, int] = {"object": 1, "array": 1, "string": 3, "number": 2}
"""How often a round has each set of the kind: a family of few keywords has fewer triples around each pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    kind: Kind
    keywords: tuple[str, ...]
    place: Place
    draft: str
    #: The schema of the keywords, without its place.
    part: dict[str, Any]
    #: The whole schema.
    schema: dict[str, Any]
    #: Counts the visits of this set of keywords; it chooses options beside the schema.
    visit: int

    def features(self) -> Iterator[str]:
        """What the cell is counted under."""
        yield from (f"keyword: {name}" for name in self.keywords)
        yield from (f"pair: {self.kind}: {pair}" for pair in pairs(self.keywords))
        yield f"place: {self.place.name}"
        yield f"draft: {self.draft}"


@lru_cache(maxsize=4)
def _round(seed: int) -> tuple[tuple[Kind, tuple[str, ...], int], ...]:
    """The sets of one round, each with its turn within the round."""
    sets = [
        (kind, names, turn) for kind in KINDS for turn in range(TIMES[kind]) for names in keyword_sets(kind)
    ]
    Random(seed).shuffle(sets)
    return tuple(sets)


def cell(seed: int, number: int) -> Cell:
    """The cell of a number, in the order of a seed."""
    sets = _round(seed)
    rounds, position = divmod(number, len(sets))
    kind, names, turn = sets[position]
    return cell_of(kind, names, rounds * TIMES[kind] + turn + seed + position)


def cell_of(kind: Kind, names: tuple[str, ...], visit: int) -> Cell:
    """The cell of a visit of a set of keywords: visits in a row go through its places, and then through its values."""
    drafts = drafts_of(kind, names)
    places = places_of(kind, drafts)
    turn, position = divmod(visit, len(places))
    place = places[position]
    common = [draft for draft in drafts if draft in place.drafts]
    # Half of the visits are of the newest draft, the others go through the older ones.
    draft = common[-1] if visit % 2 else common[-1 - (visit // 2) % len(common)]
    part = values_at(kind, names, draft, visit + turn)
    companions = COMPANIONS[kind]
    companion = companions[(visit + turn) % len(companions)]
    wrapped = place.wrap(Part(schema=part, companion=companion, draft=draft, number=visit // 3))
    return Cell(
        kind=kind,
        keywords=names,
        place=place,
        draft=draft,
        part=part,
        schema={"$schema": ADDRESSES[draft]} | wrapped,
        visit=visit,
    )
