"""A trace is listed once its file is written, and also if the file cannot be."""

from __future__ import annotations

import asyncio

import pytest

from espalier.server.proxy.keeping import MemoryStore, TraceKeeper


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
