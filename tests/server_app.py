"""A server over the fake or another model, for tests: its application, clients, small parts that count or refuse."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import httpx2
import uvicorn
from fastapi import FastAPI
from starlette.testclient import TestClient

import espalier
from espalier.constraints.judging import in_this_process
from espalier.engines.base import Event, Load, Progress, Request
from espalier.engines.fake import open_engine
from espalier.engines.protocols import Engine, Running
from espalier.errors import TooManyRequests, Unauthorized
from espalier.server.apps import create_app
from espalier.server.observe.telemetry import NoSpans
from espalier.server.ports import Caller, Finish
from espalier.server.process.pools import make_pools
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings, settings_of
from espalier.settings import KernelSettings
from espalier.store.costs.report import ConstraintCosts, PathWindow
from espalier.store.costs.window import CostWindow
from espalier.store.trace_filter import TraceFilter
from espalier.wiring import App


def settings(**values: str) -> ServerSettings:
    """Settings that no environment changes, and that open no database. A step may take long: in a process with the
    objects of thousands of tests, a garbage collection takes the half second that a server allows."""
    return settings_of(
        {
            "TRACE_LEVEL": "off",
            "STORE_RESPONSES": "false",
            "BATCH_JOBS": "false",
            "MODEL_ALIAS": "fake",
            "STEP_SECONDS": "10",
        }
        | {k.upper(): v for k, v in values.items()}
    )


def fake_engine(wish: str = "Hello there.") -> espalier.LoadedEngine:
    """A model that wishes for a text."""
    return espalier.LoadedEngine(open_engine(wish=wish))


def make_process(config: ServerSettings | None = None, **parts: Any) -> Process:
    """A Process over the fake model, without an application. It generates nothing."""
    engine = parts.pop("engine", None) or fake_engine()
    given: dict[str, Any] = {
        "settings": config or settings(),
        "app": App(KernelSettings()),
        "engine": engine,
        "scheduler": Stuck(engine.engine),
        "names": ("fake",),
        "gate": OneKeyGate(),
        "meter": CountingMeter(),
        "pools": make_pools(waiting=1),
        "spans": NoSpans(),
        "store": None,
        "started": 0,
        "fingerprint": "fp_test",
    }
    return Process(**given | parts)


def make_app(
    wish: str = "Hello there.",
    *,
    engine: espalier.LoadedEngine | None = None,
    config: ServerSettings | None = None,
    **parts: Any,
) -> FastAPI:
    """A server over the fake model, or another engine. It judges in this process if no judge is given."""
    given: dict[str, Any] = {
        "app": App(KernelSettings()),
        "engine": engine or fake_engine(wish),
        "judge": in_this_process,
    }
    return create_app(config or settings(), **given | parts)


@contextlib.contextmanager
def client(wish: str = "Hello there.", **options: Any) -> Iterator[TestClient]:
    """A client of a started server; faults of the server are answered, not raised."""
    with TestClient(make_app(wish, **options), raise_server_exceptions=False) as found:
        yield found


@contextlib.contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of a real uvicorn on a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port = listener.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=5))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            httpx2.get(f"http://127.0.0.1:{port}/ready", timeout=60)  # answered once the server has started
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join()


def events(text: str) -> list[str]:
    """The data of a stream's events, `[DONE]` among them."""
    return [block.removeprefix("data: ") for block in text.split("\n\n") if block.startswith("data: ")]


class CountingMeter:
    """A Meter that remembers what it was told."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.compiles: list[str] = []
        self.finishes: list[Finish] = []
        self.refusals: list[tuple[str, str]] = []
        self.faults = 0

    def started(self, *, route: str, max_tokens: int, outputs: int) -> None:
        self.begun.append((route, max_tokens, outputs))

    def compiled(self, *, constraint: str, seconds: float) -> None:
        self.compiles.append(constraint)

    def finished(self, finish: Finish) -> None:
        self.finishes.append(finish)

    def refused(self, *, route: str, code: str) -> None:
        self.refusals.append((route, code))

    def unrecorded(self) -> None:
        self.faults += 1

    def unkept(self) -> None:
        self.faults += 1

    def answered(self, *, route: str, status: int) -> None:
        pass

    def text(self) -> bytes:
        return b""


class OneKeyGate:
    """A Gate that knows one key, and lets nobody in once it is full."""

    def __init__(self, key: str = "sk-good", *, is_full: bool = False) -> None:
        self._key, self._is_full = key, is_full
        self.inside = 0
        self.is_open = False
        self.charged: dict[str, float] = {}

    def identify(self, authorization: str | None, query_token: str | None) -> Caller:
        if authorization != f"Bearer {self._key}":
            raise Unauthorized
        return Caller(name="tester")

    def admit(self, caller: Caller, *, requests: int = 1, sequences: int = 0) -> AbstractAsyncContextManager[None]:
        return self._admit(requests)

    def admit_cheap(self, caller: Caller) -> None:
        if self._is_full:
            raise TooManyRequests("full", retry_after=7)

    def charge(self, name: str, seconds: float) -> None:
        self.charged[name] = self.charged.get(name, 0.0) + seconds

    @contextlib.asynccontextmanager
    async def _admit(self, requests: int) -> Any:
        if self._is_full:
            raise TooManyRequests("full", retry_after=7)
        self.inside += requests
        try:
            yield
        finally:
            self.inside -= requests


class MemoryStore:
    """A TraceStore in memory."""

    def __init__(self) -> None:
        self.kept: dict[str, Mapping[str, Any]] = {}

    def new_trace_id(self) -> str:
        return f"trc_{len(self.kept)}"

    def save_trace(
        self, trace: Mapping[str, Any], *, request_id: str, caller: str, index: int, trace_id: str = "", **more: Any
    ) -> str:
        self.kept[trace_id or f"trc_{request_id}_{index}"] = trace
        return trace_id or f"trc_{request_id}_{index}"

    def traces(self, wanted: TraceFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        return []

    def save_feedback(self, request_id: str, **said: Any) -> bool | None:
        return None

    def feedback(self, request_id: str, *, caller: str | None) -> Sequence[Mapping[str, Any]]:
        return []

    def trace(self, trace_id: str, *, caller: str | None) -> Mapping[str, Any] | None:
        return self.kept.get(trace_id)

    def costs(self, window: CostWindow) -> Sequence[ConstraintCosts]:
        return []

    def cost_paths(self, window: CostWindow, fingerprint: str) -> Sequence[PathWindow]:
        return []

    def cost_constraint(self, fingerprint: str, *, caller: str | None) -> Mapping[str, Any] | None:
        return None

    def delete_trace(self, trace_id: str, *, caller: str | None) -> bool:
        return self.kept.pop(trace_id, None) is not None

    def close(self) -> None:
        pass


class Stuck:
    """A ServingEngine whose requests say nothing until they are cancelled; an error, if given, is raised then or, by
    `submit`, at once."""

    def __init__(self, engine: Engine, *, refuses: Exception | None = None, fails: Exception | None = None) -> None:
        self.engine, self._refuses, self._fails = engine, refuses, fails
        self.runs: list[_StuckRun] = []
        self.begun = threading.Event()  # a reply is waited for: who leaves before has only cancelled a submission

    def submit(self, request: Request, *, owner: str = "", deadline: float | None = None) -> Running:
        if self._refuses is not None:
            raise self._refuses
        run = _StuckRun(self._fails, self.begun)
        self.runs.append(run)
        return run

    def load(self) -> Load:
        return Load(running=len(self.runs))

    def close(self, *, drain: float = 0.0) -> None:
        pass


class _StuckRun:
    def __init__(self, fails: Exception | None, begun: threading.Event) -> None:
        self.cancelled = threading.Event()
        self._fails, self._begun = fails, begun

    @property
    def progress(self) -> Progress:
        return Progress()

    def __iter__(self) -> Iterator[Event]:
        self._begun.set()
        self.cancelled.wait()
        return iter(())

    async def bursts(self) -> Any:
        self._begun.set()
        if self._fails is not None:
            raise self._fails
        await asyncio.Event().wait()
        yield None

    def cancel(self) -> None:
        self.cancelled.set()
