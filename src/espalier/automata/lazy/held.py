"""Which of many objects somebody still holds, for those that weak references cannot name: wheels hold the classes of
states compiled, and instances of such classes take none. This module is never compiled, since it counts references.
"""

from __future__ import annotations

import sys
from typing import TypeVar

T = TypeVar("T")
_MINE = 2  # the variable and the argument of the count


def take_held(objects: list[T]) -> list[T]:
    """Empty a list, from its end, and return those objects that are held elsewhere too. An object that another one of
    them holds is let go with it if the other comes later, so the order in which they were made is best."""
    held: list[T] = []
    while objects:
        last = objects.pop()
        if sys.getrefcount(last) > _MINE:
            held.append(last)
    return held
