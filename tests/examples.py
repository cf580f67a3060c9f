"""How many examples a property test runs: `make test-all` and CI run all of them, `make test` a share.

TEST_EXAMPLES is that share, a number above 0; 1 where it is not set.
"""

from __future__ import annotations

import os

SHARE = float(os.environ.get("TEST_EXAMPLES") or 1)
LEAST = 5
"""A property that is looked at less often than this says nothing."""


def examples(full: int) -> int:
    """`full` examples scaled by the share; at least 5, and never more than `full` where the share is at most 1."""
    return max(min(full, LEAST), round(full * SHARE))
