"""What test cases generate with: an engine, or a part of a serving engine that others use as well.

Closing a `Share` ends what was submitted through it, and nothing else. It knows no case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from espalier.api.loaded import LoadedEngine
from espalier.engines.base import Load, Request
from espalier.engines.protocols import Engine, Running, ServingEngine
from espalier.errors import Cancelled


class Runs:
    """What a Harness needs of an engine. serve: makes what requests are submitted to."""

    def __init__(self, engine: LoadedEngine, serve: Callable[[], ServingEngine]) -> None:
        self._engine, self._serve = engine, serve

    @property
    def name(self) -> str:
        return self._engine.name

    def requests(self, prompt: Any, /, **options: Any) -> tuple[list[Request], bool]:
        """As `LoadedEngine.requests`."""
        return self._engine.requests(prompt, **options)

    def serve(self, **options: Any) -> ServingEngine:
        """A serving engine that its caller closes."""
        return self._serve()


class Share:
    """A ServingEngine over another one. owner: whose requests these are; seconds: the longest one. Safe across
    threads."""

    def __init__(self, serving: ServingEngine, *, owner: str, seconds: float) -> None:
        self._serving, self._owner, self._seconds = serving, owner, seconds
        self._running: list[Running] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def engine(self) -> Engine:
        return self._serving.engine

    def submit(self, request: Request, *, owner: str = "", deadline: float | None = None) -> Running:
        """As ServingEngine. Raises Cancelled once it is closed."""
        seconds = self._seconds if deadline is None else min(deadline, self._seconds)
        running = self._serving.submit(request, owner=self._owner, deadline=seconds)
        with self._lock:
            self._running.append(running)
            is_late = self._is_closed
        if is_late:
            running.cancel()
            raise Cancelled
        return running

    def load(self) -> Load:
        return self._serving.load()

    def close(self, *, drain: float = 0.0) -> None:
        """End what was submitted here."""
        with self._lock:
            self._is_closed = True
            running = list(self._running)
        for request in running:
            request.cancel()
