"""What one server process holds; made once in `apps.py`, read by every route through `request.app.state.serving`."""

from __future__ import annotations

from dataclasses import dataclass

from espalier.api.loaded import LoadedEngine
from espalier.engines.base import ServingEngine
from espalier.server.ports import Gate, Meter, TraceStore
from espalier.server.settings import ServerSettings
from espalier.trace.recorders.protocol import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """engine: the model for what needs no scheduler (tokenising, templates). names: under which it is asked for, the
    first being what replies say. started: Unix time. recorders: told of every run. usual_strategy: of requests that
    name none; None leaves it at the engine's."""

    settings: ServerSettings
    engine: LoadedEngine
    scheduler: ServingEngine
    names: tuple[str, ...]
    gate: Gate
    meter: Meter
    store: TraceStore | None
    started: int
    recorders: tuple[Recorder, ...] = ()
    usual_strategy: str | None = None
