"""Runs requests and logs each that ends: with its result, or with its error. An answer never waits for the log."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from espalier.api.log_rows import log_row
from espalier.engines.base import Event, FinishEvent, Request, Result
from espalier.errors import EspalierError

if TYPE_CHECKING:
    from espalier.engines.protocols import Engine
    from espalier.store.writer import LogWriter

LOCAL = "(local)"
"""The caller of rows that no server wrote: no API key can have this name."""


def logged(
    engine: Engine, requests: Sequence[Request], log: LogWriter | None, *, kind: str | None, route: str
) -> Iterator[Event]:
    """The events of a run. log: None logs nothing. kind: the engine's name. route: what asked."""
    if log is None:
        return engine.run(requests)
    return _follow_run(engine, requests, log, kind, route)


def _follow_run(
    engine: Engine, requests: Sequence[Request], log: LogWriter, kind: str | None, route: str
) -> Iterator[Event]:
    began, group = time.monotonic(), secrets.token_hex(8)
    left = set(range(len(requests)))

    def put(index: int, result: Result | None, error: str | None) -> None:
        total = time.monotonic() - began
        log.put(
            lambda: log_row(
                requests[index],
                result,
                model=engine.name,
                caller=LOCAL,
                with_content=log.with_content,
                compiler=engine.compiler,
                engine=kind,
                route=route,
                total=total,
                error=error,
                request_id=requests[index].request_id or f"{group}-{index}",
            )
        )

    try:
        for event in engine.run(requests):
            if isinstance(event, FinishEvent):
                left.discard(event.index)
                put(event.index, event.result, None)
            yield event
    except GeneratorExit:
        for index in left:
            put(index, None, "cancelled")
        raise
    except EspalierError as error:
        for index in left:
            put(index, None, error.code)
        raise
