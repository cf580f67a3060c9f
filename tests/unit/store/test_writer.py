"""Logs of generations are written in a thread: nothing waits for it, and what is not written is told."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from espalier.errors import OutputError
from espalier.store.writer import LogWriter


class Rows:
    """A store in memory; it waits for `open` where that is given."""

    def __init__(self, *, fails: Exception | None = None, gate: threading.Event | None = None) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self.is_closed = False
        self._fails, self._gate = fails, gate

    def save_generation(self, row: Mapping[str, Any]) -> str:
        if self._gate is not None:
            self._gate.wait(60)
        if self._fails is not None:
            raise self._fails
        self.rows.append(row)
        return "gen_"

    def close(self) -> None:
        self.is_closed = True


def writer(store: Any, told: list[str], **options: Any) -> LogWriter:
    return LogWriter(lambda: store, with_content=False, tell=told.append, **options)


def test_rows_are_written_in_order_and_the_end_waits_for_them() -> None:
    store, told = Rows(), list[str]()
    log = writer(store, told)
    for number in range(50):
        log.put(lambda number=number: {"n": number})  # type: ignore[misc]
    log.close(60)
    log.close(60)
    assert [row["n"] for row in store.rows] == list(range(50))
    assert (told, store.is_closed) == ([], True)


def test_a_database_that_cannot_be_written_is_told_once_with_the_number_of_rows() -> None:
    told: list[str] = []
    log = writer(Rows(fails=OutputError("the disk is full")), told)
    for _ in range(3):
        log.put(dict)
    log.close(60)
    assert told == ["not logged: the disk is full", "3 generations were not logged"]


def test_a_row_that_cannot_be_made_is_told_and_the_next_is_written() -> None:
    store, told = Rows(), list[str]()
    log = writer(store, told)
    log.put(lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    log.put(dict)
    log.close(60)
    assert (len(store.rows), told) == (1, ["not logged: ZeroDivisionError: division by zero"])


def test_a_locked_database_holds_nobody_up_and_what_is_lost_is_told() -> None:
    gate, told = threading.Event(), list[str]()
    log = writer(Rows(gate=gate), told, most_waiting=2)
    for _ in range(9):
        log.put(dict)  # returns at once, though no row is written
    log.close(0.01)
    gate.set()
    assert told[0] == "not logged: 2 rows wait to be written"
    assert told[1] == "not logged: the database took longer than 0.01 s"
    assert "generations were not logged" in told[2]
