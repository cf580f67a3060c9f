"""`espalier costs`: in 80 columns, with fingerprints that lead on, and an exit code for pipelines."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from rich.cells import cell_len

from espalier.cli.main import main_code
from espalier.store.open import open_store
from tests.batch_jobs import Clock
from tests.unit.store.test_costs import answer, save

DAY = 86_400


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Two weeks of answers; in the second the path `/unit` costs three times as much."""
    clock, url = Clock(), f"sqlite:///{tmp_path}/costs.db"
    store = open_store(url, clock=clock)
    now = time.time()
    for number in range(60):
        clock.now = now - 14 * DAY + number * 14 * DAY / 60
        unit = (1.0 if number < 30 else 3.0) + number % 3 / 10
        save(store, answer(tax=unit + 1.0, paths={"/items/0/unit": unit, "/name\x1b[2J": 1.0}), total=0.5)
        save(store, answer(schema=None, tax=0.0), total=0.1)
    store.close()
    return url


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main_code(["costs", *arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


def fingerprint(capsys: pytest.CaptureFixture[str], database: str) -> str:
    rows: list[dict[str, Any]] = json.loads(run(capsys, "list", "--json", "--database", database)[1])
    return next(str(row["fingerprint"]) for row in rows if row["fingerprint"])


def test_the_dearest_constraint_comes_first_in_80_columns(capsys: pytest.CaptureFixture[str], database: str) -> None:
    code, text = run(capsys, "list", "--database", database)
    assert code == 0
    lines = text.splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    assert lines[1].startswith("Order ")
    assert re.search(r"\+(1\.9|2) \(\+1\.\d+ to \+2\.\d+\)", lines[2])
    assert "a token takes 5.00 of free text" in lines[3]
    assert fingerprint(capsys, database) in lines[2]


def test_paths_are_shown_by_their_share_and_control_characters_as_escapes(
    capsys: pytest.CaptureFixture[str], database: str
) -> None:
    code, text = run(capsys, "show", fingerprint(capsys, database), "--database", database)
    assert code == 0
    assert text.splitlines()[1].startswith("/items/*/unit")
    assert "\x1b" not in text


def test_a_path_that_became_dearer_ends_a_pipeline(capsys: pytest.CaptureFixture[str], database: str) -> None:
    windows = ("--before", "14d..7d", "--after", "7d..now", "--database", database)
    code, text = run(capsys, "diff", fingerprint(capsys, database), *windows, "--limit", "50")
    assert code == 1
    assert "dearer by more than 50 %: /items/*/unit" in text
    assert run(capsys, "diff", fingerprint(capsys, database), *windows, "--limit", "500")[0] == 0
    assert run(capsys, "diff", fingerprint(capsys, database), *windows)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("show", "0123456789abcdef"), "0123456789abcdef"),
        (("list", "--since", "1h", "--until", "2d"), "--until"),
        (("diff", "x", "--before", "yesterday"), "--before"),
        (("diff", "x", "--before", "9d..8d"), "--before"),
    ],
)
def test_what_is_wrong_is_named(
    capsys: pytest.CaptureFixture[str], database: str, arguments: tuple[str, ...], field: str
) -> None:
    code, text = run(capsys, *arguments, "--database", database)
    assert code in (1, 2)
    assert field in text
