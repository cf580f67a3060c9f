"""A server whose disk is full: it answers on, says what is not kept, and loses nothing that it said is kept."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from tests.server_app import client, settings
from tests.small_disk import fill, mounted

pytestmark = pytest.mark.slow
ROUTE = "/v1/chat/completions"
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 40,
    "espalier": {"trace": "steps"},
    "structured_outputs": {"regex": "[a-z ]{30}"},
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path)


def kept_in(reply: dict[str, Any]) -> list[str]:
    return [one["trace_id"] for one in reply["espalier"]["outputs"] if one.get("trace_id") is not None]


def test_what_a_reply_says_is_kept_is_kept_through_a_full_disk(disk: Path) -> None:
    config = settings(database_url=f"sqlite:///{disk / 'espalier.db'}", trace_level="summary", store_generations="true")
    said: list[str] = []
    lost = 0
    with client(config=config) as asked:

        def ask() -> bool:
            """Whether the reply says that its trace is kept."""
            reply = asked.post(ROUTE, json=CHAT)
            assert reply.status_code == 200, reply.text
            kept = kept_in(reply.json())
            said.extend(kept)
            return bool(kept)

        for _ in range(3):
            assert sum(ask() for _ in range(5)) == 5, "with room, everything is kept"
            filler = fill(disk)
            lost += sum(not ask() for _ in range(20))
            filler.unlink()
            for trace_id in said:
                assert asked.get(f"/traces/{trace_id}").status_code == 200, trace_id
    assert lost, "the disk was full"
    with contextlib.closing(sqlite3.connect(disk / "espalier.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        there = {row[0] for row in connection.execute("SELECT id FROM traces")}
    assert set(said) <= there
    with client(config=config) as again:
        assert again.post(ROUTE, json=CHAT).status_code == 200
        for trace_id in said:
            assert again.get(f"/traces/{trace_id}").status_code == 200
