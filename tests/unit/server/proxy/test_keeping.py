"""A trace is listed once its file is written, and also if the file cannot be."""

from __future__ import annotations

import asyncio
import os

import pytest

from espalier.server.proxy.keeping import SWEEP_FILES, MemoryStore, TraceKeeper
from espalier.store.retention import Limits
from espalier.store.trace_filter import TraceFilter
from tests.traces import sample_trace


class Listing(MemoryStore):
    """Notes what the folder held when a trace was stored."""

    def __init__(self, folder):
        super().__init__(1)
        self.folder, self.held = folder, []

    def save_trace(self, trace, **_):
        self.held.append([one.name for one in self.folder.glob("*.json")])
        return "trace"


def keep(store, folder, combined):
    path = folder / "combined.json"
    keeper = TraceKeeper(store, folder)
    return asyncio.run(keeper.keep({}, combined, request_id="r", caller="c", route="/", path=path))


def test_a_trace_that_is_listed_has_its_file(tmp_path):
    store = Listing(tmp_path)
    assert keep(store, tmp_path, dict)
    assert store.held == [["combined.json"]]


def test_a_trace_whose_file_cannot_be_made_is_listed(tmp_path):
    def fail():
        raise RuntimeError("no file")

    store = Listing(tmp_path)
    with pytest.raises(RuntimeError, match="no file"):
        keep(store, tmp_path, fail)
    assert store.held == [[]]


def test_files_over_the_limits_are_deleted_and_those_of_others_stay(tmp_path):
    now = [1_700_000_000.0]
    keeper = TraceKeeper(MemoryStore(1), tmp_path, limits=Limits(seconds=86_400, rows=3), clock=lambda: now[0])

    def write(name):
        path = keeper.path_of(name)
        asyncio.run(keeper.keep({}, dict, request_id=name, caller="c", route="/", path=path))
        return path.name

    others = ["combined_20200101_000000_mine.json", "notes.json", "combined_20200101_000000_000001_a.txt"]
    for name in others:
        (tmp_path / name).write_text("{}")
    first = write("a")
    now[0] += 90_000
    rest = [write(name) for name in "bcde" if now.__setitem__(0, now[0] + 1) is None]
    assert first in os.listdir(tmp_path)  # not at every file
    assert keeper.sweep() == 2  # one is too old, one too many
    assert sorted(os.listdir(tmp_path)) == sorted([*others, *rest[1:]])
    assert TraceKeeper(MemoryStore(1), tmp_path).sweep() == 0  # no limits


def test_a_proxy_that_writes_many_files_deletes_the_oldest_by_itself(tmp_path):
    keeper = TraceKeeper(MemoryStore(1), tmp_path, limits=Limits(rows=10))
    for number in range(SWEEP_FILES + 1):
        path = keeper.path_of(f"r{number}")
        asyncio.run(keeper.keep({}, dict, request_id="r", caller="c", route="/", path=path))
    assert len(os.listdir(tmp_path)) == 10


def test_traces_of_a_model_that_always_fails_do_not_fill_the_memory():
    """Flagged traces, of which a database keeps 10,000, stayed beside the latest ones."""
    store, trace = MemoryStore(3), sample_trace(3).to_json()
    trace["metadata"]["verdict"] = {"valid": False, "errors": [], "checked": True, "judge": None}
    for _ in range(9):
        store.save_trace(trace, request_id="r", caller="c", index=0)
    assert len(store.traces(TraceFilter(verdict="flagged"), limit=100)) == 3
    store.close()
