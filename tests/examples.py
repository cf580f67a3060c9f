"""How many examples a property test runs, and how many rows of a table: `make test-all` runs all of them, `make test` a
share, CI all rows and a quarter of the examples.

TEST_EXAMPLES is that share, a number above 0; 1 where it is not set. TEST_ROWS is that of rows, where it differs.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable

import pytest

SHARE = float(os.environ.get("TEST_EXAMPLES") or 1)
ROWS = float(os.environ.get("TEST_ROWS") or SHARE)
LEAST = 5
"""A property that is looked at less often than this says nothing."""


def examples(full: int) -> int:
    """`full` examples scaled by the share; at least 5, and never more than `full` where the share is at most 1."""
    return max(min(full, LEAST), round(full * SHARE))


def rows_left_out(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """The rows of parametrised tests that this run leaves to `make test-all`: none where the share is 1 or more.

    A test with more than eight rows keeps its share of them, four at least, at even distances: neighbours in a table
    are most alike. The same rows are kept each time.
    """
    tables: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        name, bracket, _ = item.nodeid.partition("[")
        if bracket:
            tables[name].append(item)
    left_out: set[pytest.Item] = set()
    for rows in tables.values():
        if ROWS < 1 and len(rows) > 8:
            count = max(4, round(len(rows) * ROWS))
            kept = {index * (len(rows) - 1) // (count - 1) for index in range(count)}
            left_out.update(row for index, row in enumerate(rows) if index not in kept)
    return left_out
