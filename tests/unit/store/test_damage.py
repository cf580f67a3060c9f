"""A damaged SQLite database gives an error, wherever it is cut, and never ends the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="sqlalchemy is not installed")

from espalier.store.open import open_store
from tests import damaged_stores


def test_a_database_cut_at_any_page_is_refused_or_read_and_never_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    store = open_store(f"sqlite:///{tmp_path / 'whole' / 'data.db'}")
    try:
        for number in range(3):
            store.save_preset({"name": f"n{number}", "version": 1, "text": "y" * 3000})
    finally:
        store.close()
    done = subprocess.run(
        [
            sys.executable,
            damaged_stores.__file__,
            "database",
            str(tmp_path),
            "cut behind",
            "ones 0",
            "ones 1",
            "zeros 1",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    ends = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert len(ends) > 10
    wrong = {damage: end for damage, end in ends.items() if not end.startswith(("ok", "error"))}
    assert not wrong, wrong
    assert ends["ones 0"].startswith("error")
    assert "data.db" in ends["ones 0"]
