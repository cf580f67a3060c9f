"""`Process`: what one server process holds. `opening.py` makes it; routes get it from `deps.process_of`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from espalier.api.loaded import LoadedEngine
from espalier.engines.protocols import ServingEngine
from espalier.sampling.presets.catalogue import Presets
from espalier.server.observe.telemetry import Spans
from espalier.server.ports import Gate, LogStore, Meter, Replicas, ResponseStore, TraceStore
from espalier.server.process.hidden_states import HiddenStates
from espalier.server.process.named_stores import NamedStores
from espalier.server.process.overwrites import Overwrites
from espalier.server.process.pools import Pools
from espalier.server.process.prebuild import Prebuild
from espalier.server.settings import ServerSettings
from espalier.store.batches.open import BatchStore
from espalier.store.writer import LogWriter, TraceWriter
from espalier.trace.recorders.protocol import Recorder
from espalier.wiring import App


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """engine: for what needs no scheduler (tokenising, templates). names: the model's names; replies use the first.
    started: Unix seconds. pools: threads for work that blocks or takes long. spans: telemetry. fingerprint:
    identifies the model and this version. recorders: get every run. default_strategy: for requests that name none;
    None leaves the choice to the engine. prebuild: how far the word lists are that are compiled at the start. logs:
    stored generation logs; log: writes them; None where they are not kept. traces: writes what `store` has; None
    where no trace is kept. activations: takes hidden states. named_stores: those that requests name. overwrites:
    set for all requests. batches: None where batch jobs are off. responses: None where they are not stored.
    replicas: those that serve beside it, on a cluster. wakers: called when there is a new batch, or one is to stop.
    running: outputs by caller, for the event loop alone. reports_items: whether the items of a batch are
    executed, whose report reads each trace, and whose tokens nobody reads before the end."""

    settings: ServerSettings
    app: App
    engine: LoadedEngine
    scheduler: ServingEngine
    names: tuple[str, ...]
    gate: Gate
    meter: Meter
    pools: Pools
    spans: Spans
    store: TraceStore | None
    started: int
    fingerprint: str
    recorders: tuple[Recorder, ...] = ()
    default_strategy: str | None = None
    prebuild: Prebuild | None = None
    logs: LogStore | None = None
    log: LogWriter | None = None
    traces: TraceWriter | None = None
    activations: HiddenStates | None = None
    named_stores: NamedStores | None = None
    overwrites: Overwrites = field(default_factory=Overwrites)
    batches: BatchStore | None = None
    responses: ResponseStore | None = None
    replicas: Replicas | None = None
    reports_items: bool = False
    wakers: list[Callable[[], None]] = field(default_factory=list)
    running: Counter[str] = field(default_factory=Counter)

    @property
    def eos_ids(self) -> frozenset[int]:
        """Token ids that end a text; empty if the engine does not know its vocabulary."""
        vocab = self.engine.engine.vocab
        return frozenset(() if vocab is None else vocab.eos_ids)

    @property
    def presets(self) -> Presets:
        """Looked up by name in `espalier.preset`."""
        return self.app.presets
