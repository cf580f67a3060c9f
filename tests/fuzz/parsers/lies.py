"""JSON values in which something else stands than belongs there: each part replaced by values of every type."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

VALUES: tuple[Any, ...] = (None, True, 0, -1, 1.5, 2**70, "", "x", "\ud800", [], [0], [None], [[]], [{}], {}, {"a": 1})


def lies(value: Any) -> Iterator[Any]:
    """The value with each of its parts replaced by each of VALUES, one at a time."""
    yield from VALUES
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(items):
        for lie in lies(part):
            changed = copy.copy(value)
            changed[key] = lie
            yield changed
