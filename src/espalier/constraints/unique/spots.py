"""Where in a document the arrays are whose items must be unique. It knows no text and no tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """What is known about a value at one place of a document. Other spots are named by their index.

    names: the spot of each member, by its name as written between quotes; other: the spot of members with other names.
    items: the spot of each item; the last one is for all further items. unique: no two of its items may be equal.
    names_differ: no two of its names may be equal, since they are counted or satisfy a negation. pointer: the JSON
    pointer of the array or the object that says so. plain: for arrays of strings alone, appending any letter keeps an
    item valid. fresh: for each of `items`, whether an array that is about to begin that item can be completed whatever
    its items are. listed: for each of `items` of such an array that cannot, the texts of values that the schema lists
    for it.
    """

    names: Mapping[bytes, int]
    other: int
    items: tuple[int, ...]
    unique: bool = False
    names_differ: bool = False
    pointer: str = ""
    plain: bool = True
    fresh: tuple[bool, ...] = ()
    listed: tuple[tuple[bytes, ...], ...] = ()


Spots: TypeAlias = tuple[Spot, ...]
"""The first is the document."""
NOTHING: Spots = (Spot(names={}, other=0, items=(0,)),)
"""Documents without arrays whose items must be unique."""


def is_nested(spots: Spots) -> bool:
    """Whether an array with unique items may be inside an item of another."""
    below = [{*spot.names.values(), spot.other, *spot.items} for spot in spots]
    todo = [inner for spot in spots if spot.unique for inner in spot.items]
    met: set[int] = set()
    while todo:
        number = todo.pop()
        if number not in met:
            met.add(number)
            todo += below[number]
    return any(spots[number].unique for number in met)
