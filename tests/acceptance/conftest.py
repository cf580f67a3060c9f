"""What several modules of this folder share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.warm_shell import warm_shell


@pytest.fixture(scope="module")
def programs() -> Iterator[Path]:
    """The folder of `espalier` and `python` that start fast."""
    with tempfile.TemporaryDirectory() as folder, warm_shell(Path(folder)) as found:
        yield found
