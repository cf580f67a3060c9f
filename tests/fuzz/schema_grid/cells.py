"""The cells of the grid: keywords, place, draft and values, one for each number, in an order that a seed shuffles.

A round has each set of keywords once, and some again for pairs that stand in few sets, each time in the next of its
places and with the next of its values. So any part of a run covers keywords, pairs and places evenly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from random import Random
from typing import Any

from tests.fuzz.schema_grid.keywords import (
    ADDRESSES,
    KINDS,
    Kind,
    drafts_of,
    is_misjudged,
    keyword_sets,
    pairs,
    values_at,
)
from tests.fuzz.schema_grid.places import COMPANIONS, Part, Place, places_of

AT_LEAST = 13
"""How often a round has each pair of keywords. Most pairs stand in so many triples; for the others a round has some
triples again."""


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


@cache
def _sets() -> tuple[tuple[Kind, tuple[str, ...], int, int], ...]:
    """The sets of one round: the keywords, how often the round has had them before, and how often it has them."""
    times: Counter[tuple[Kind, tuple[str, ...]]] = Counter()
    for kind in KINDS:
        sets = keyword_sets(kind)
        seen: Counter[str] = Counter()
        for names in sets:
            times[kind, names] += 1
            seen.update(pairs(names))
        while min(seen.values()) < AT_LEAST:
            rarest = min(seen, key=seen.__getitem__)
            around = [names for names in sets if len(names) > 2 and rarest in pairs(names)]
            names = min(around, key=lambda names: sum(seen[pair] for pair in pairs(names)))
            times[kind, names] += 1
            seen.update(pairs(names))
    return tuple((*key, turn, count) for key, count in times.items() for turn in range(count))


@lru_cache(maxsize=4)
def _round(seed: int) -> tuple[tuple[Kind, tuple[str, ...], int, int], ...]:
    sets = list(_sets())
    Random(seed).shuffle(sets)
    return tuple(sets)


def cell(seed: int, number: int) -> Cell:
    """The cell of a number, in the order of a seed."""
    sets = _round(seed)
    rounds, position = divmod(number, len(sets))
    kind, names, turn, times = sets[position]
    return cell_of(kind, names, rounds * times + turn + seed + position)


def _common(drafts: tuple[str, ...], names: tuple[str, ...], place: Place) -> list[str]:
    """The drafts that have the keywords and the place, and that the validators judge as the standard does."""
    beside = (*names, place.name.removeprefix("beside "))
    return [draft for draft in drafts if draft in place.drafts and not is_misjudged(draft, beside)]


def cell_of(kind: Kind, names: tuple[str, ...], visit: int) -> Cell:
    """The cell of a visit of a set of keywords: visits in a row go through its places, and then through its values."""
    drafts = drafts_of(kind, names)
    places = [(place, _common(drafts, names, place)) for place in places_of(kind, drafts)]
    places = [(place, common) for place, common in places if common]
    turn, position = divmod(visit, len(places))
    place, common = places[position]
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
