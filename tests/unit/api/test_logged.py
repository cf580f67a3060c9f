"""Runs that are logged: one row for each output, also where the run ends early; and none where logging is off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import espalier
from espalier.api.logged import LOCAL
from espalier.engines.fake import open_engine
from espalier.errors import DeadEnd
from espalier.store.writer import LogWriter


class Rows:
    """A store in memory."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []

    def save_generation(self, row: Mapping[str, Any]) -> str:
        self.rows.append(row)
        return "gen_"

    def close(self) -> None:
        """Nothing is open."""


def made(*, with_content: bool = False) -> tuple[espalier.LoadedEngine, LogWriter, Rows]:
    rows = Rows()
    log = LogWriter(lambda: rows, with_content=with_content)
    return espalier.LoadedEngine(open_engine(wish="Hello there."), log=log, kind="fake"), log, rows


def test_a_batch_is_a_row_for_each_output_and_its_results_are_as_without_a_log() -> None:
    engine, log, rows = made(with_content=True)
    asked: dict[str, Any] = {"seed": 1, "max_tokens": 8, "constraint": espalier.Regex("[A-Z][a-z]+")}
    results = engine.generate(["one", "two"], **asked)
    log.close(60)
    plain = espalier.LoadedEngine(open_engine(wish="Hello there.")).generate(["one", "two"], **asked)
    assert [one.text for one in results] == [one.text for one in plain]
    assert [(row["content"]["prompt"], row["content"]["text"]) for row in rows.rows] == [
        ("one", results[0].text),
        ("two", results[1].text),
    ]
    assert {row["caller"] for row in rows.rows} == {LOCAL}
    assert len({row["request_id"] for row in rows.rows}) == 2
    assert [row["tax_nats"] for row in rows.rows] == [one.trace.total_tax_nats for one in results if one.trace]


def test_a_stream_that_is_closed_is_logged_as_cancelled() -> None:
    engine, log, rows = made()
    events = engine.stream("one", max_tokens=8)
    next(iter(events))
    events.close()  # type: ignore[attr-defined]
    log.close(60)
    (row,) = rows.rows
    assert (row["error"], row["content"], row["request"]["constraint"]) == ("cancelled", None, None)


def test_a_run_that_fails_is_logged_with_its_code_and_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, log, rows = made()

    def broken(requests: Any) -> Any:
        raise DeadEnd("nothing is left")
        yield

    monkeypatch.setattr(engine.engine, "run", broken)
    with pytest.raises(DeadEnd):
        engine.generate("one")
    log.close(60)
    assert [row["error"] for row in rows.rows] == ["dead_end"]
