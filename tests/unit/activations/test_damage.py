"""A damaged store gives an error that names its file, wherever it is damaged, and never ends the process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lmdb", reason="lmdb is not installed")

from espalier.activations.store.base import ActivationStore
from espalier.errors import InputError
from tests import damaged_stores
from tests.unit.activations.test_store import sample


@pytest.mark.slow
def test_a_store_damaged_at_any_page_is_refused_by_name_or_read_and_never_ends_the_process(tmp_path: Path) -> None:
    with ActivationStore(tmp_path / "whole", write=True) as store:
        for number in range(20):
            store.put(sample(number), f"key{number:04d}")
        for number in range(0, 20, 4):
            store.remove(f"key{number:04d}")  # so that there are freed pages
    done = subprocess.run(
        [sys.executable, damaged_stores.__file__, "activations", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    ends = dict(line.split("\t", 1) for line in done.stdout.splitlines())
    assert len(ends) > 100
    wrong = {damage: end for damage, end in ends.items() if not end.startswith(("ok", "error"))}
    assert not wrong, wrong
    unnamed = {damage: end for damage, end in ends.items() if end.startswith("error") and str(tmp_path) not in end}
    assert not unnamed, unnamed
    accepted = [damage for damage, end in ends.items() if end == "ok" and damage.startswith(("cut", "version"))]
    assert {*accepted} <= {"cut at 0", "version 0", "version 1"}, accepted  # an empty file is a new store


def test_an_empty_data_file_is_said_to_be_empty(tmp_path: Path) -> None:
    ActivationStore(tmp_path, write=True).close()
    (tmp_path / "data.mdb").write_bytes(b"")
    with pytest.raises(InputError, match="it is empty"):
        ActivationStore(tmp_path)
