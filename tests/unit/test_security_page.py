"""Each threat of docs/security.md has a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROW = re.compile(r"^\| (?P<threat>[^|]+) \| [^|]+ \| (?P<tests>[^|]+) \|$", re.MULTILINE)


def test_each_threat_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    tables = page.split("| threat | what holds | test |\n|---|---|---|\n")[1:]
    assert len(tables) == 2
    rows = [row for table in tables for row in ROW.finditer(table.partition("\n\n")[0])]
    assert len(rows) >= 30
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    for row in rows:
        names = re.findall(r"`([^`]+)`", row["tests"])
        assert names, row["threat"]
        for name in names:
            assert (ROOT / name).is_file() if "/" in name else f"def {name}(" in sources, name
