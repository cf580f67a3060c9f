"""Each threat of docs/security.md and each fault of docs/operations.md has a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("page", "head", "tables", "least"),
    [
        ("security.md", "| threat | what holds | test |", 2, 30),
        ("operations.md", "| fault | what happens | what you see | test |", 1, 38),
    ],
)
def test_each_row_names_tests_that_exist(page: str, head: str, tables: int, least: int) -> None:
    _, *parts = (ROOT / "docs" / page).read_text(encoding="utf-8").split(head)
    assert len(parts) == tables
    bodies = [part.partition("\n\n")[0] for part in parts]
    rows = [row for body in bodies for row in re.findall(r"^\| (.+) \| (.+) \|$", body, re.MULTILINE)]
    assert len(rows) >= least
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for row, tests in rows:
        assert row.count(" | ") == head.count(" | ") - 1, row
        names = re.findall(r"`([^`]+)`", tests)
        assert names, row
        for name in names:
            assert (ROOT / name).is_file() if "/" in name else f"def {name}(" in sources, name
