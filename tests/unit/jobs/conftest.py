"""A store of batches in SQLite, for the tests that need one: others here need no database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from espalier.store.batches.open import BatchStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BatchStore]:
    from tests.batch_jobs import open_batches

    opened = open_batches(f"sqlite:///{tmp_path}/e.db", tmp_path / "files")
    yield opened
    opened.database.close()
