"""Opens what a server process holds, in order, and closes it in the reverse order. It knows no route.

Parts that the caller of `create_app` brings are used and stay open; all others are made from the settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from espalier.api import LoadedEngine
from espalier.confined.pool import is_supported
from espalier.constraints import judging
from espalier.constraints.cache import ConstraintBytes
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.compile import warm_schemas
from espalier.constraints.judging import ConfinedJudge, Judge, in_this_process
from espalier.constraints.safety.compile import FILTERS, warm_filters
from espalier.constraints.spec import Regex
from espalier.constraints.words.spec import Wordlist
from espalier.decoding.drafts.source import MODEL
from espalier.decoding.drafts.sources import check_sources
from espalier.engines.protocols import Engine, ServingEngine
from espalier.engines.serving.serve import serve_engine
from espalier.errors import CapabilityError
from espalier.grammar.regex import classes
from espalier.kernels.group import start
from espalier.sampling.fast.candidates import DRAWS
from espalier.server.admit.auth import check_uvicorn, read_keys
from espalier.server.admit.gate import KeyGate, make_gate
from espalier.server.admit.limits import LEASE_SECONDS
from espalier.server.environment import export_for_libraries, read_environment
from espalier.server.observe import logs, telemetry
from espalier.server.observe.guarded import GuardedRecorder
from espalier.server.observe.metrics import MOST_TOKENS, PrometheusMeter, make_meter
from espalier.server.ports import Gate, Meter, Replicas, TraceStore
from espalier.server.process.ending import ShutdownPlan, end_with_supervisor, ending_on_signals
from espalier.server.process.garbage import memory_returned, short_collections
from espalier.server.process.hidden_states import HiddenStates
from espalier.server.process.named_stores import NamedStores
from espalier.server.process.pools import Pools, make_pools
from espalier.server.process.prebuild import Prebuild, checked_lists, prebuilding
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings
from espalier.store.batches.open import BatchStore, default_folder
from espalier.store.batches.quota import ResultQuota, UploadQuota
from espalier.store.counters import StoredCounters
from espalier.store.open import Store, open_store
from espalier.store.retention import Limits, keep
from espalier.store.writer import LogWriter, TraceWriter
from espalier.trace.recorders.protocol import Recorder
from espalier.trace.recorders.rejection_log import RejectionLog
from espalier.version import __version__
from espalier.wiring import App, build_app

REJECTION = "rejection"
"""The default strategy while a rejection log is written: other strategies would leave the log empty."""
USUAL_STRATEGY = "mask"
RETENTION_SECONDS = 300.0
SWITCH_SECONDS = 0.0002
"""How long a thread may keep the interpreter lock from the one that runs the model, which gives it back very often."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts that the caller of `create_app` brings; None is made from the settings. serve: makes the ServingEngine.
    takes_batches: whether the application has batch jobs, if the settings do not turn them off. takes_signals: whether
    signals that end the process begin the end of what runs here. replicas: those that
    serve beside this one, perhaps on other machines, and share the database."""

    app: App | None = None
    engine: LoadedEngine | None = None
    serve: Callable[[Engine], ServingEngine] | None = None
    gate: Gate | None = None
    meter: Meter | None = None
    store: TraceStore | None = None
    judge: Judge | None = None
    takes_batches: bool = True
    takes_signals: bool = True
    replicas: Replicas | None = None


@asynccontextmanager
async def open_process(settings: ServerSettings, parts: Parts, lists: tuple[Wordlist, ...]) -> AsyncIterator[Process]:
    """lists: compiled in the background. Raises InputError for a wrong setting, and what opening a model or a database
    raises."""
    if parts.engine is None:
        logs.configure(settings)
        check_uvicorn(settings, read_keys(settings), sys.argv, os.environ)
        sys.setswitchinterval(SWITCH_SECONDS)
    async with AsyncExitStack() as stack:
        app = await asyncio.to_thread(_make_app) if parts.app is None else parts.app
        engine = parts.engine or await _open_engine(stack, app, settings)
        compiler = engine.engine.compiler
        if engine.capabilities.kv_unified is not None:
            cache_form = "all in one KV cache" if engine.capabilities.kv_unified else "each with its own KV cache"
            log.info("%s sequences at once, %s", engine.capabilities.max_sequences, cache_form)
        if lists and compiler is not None:
            lists = checked_lists(lists, compiler)
        if settings.max_input_tokens is not None and engine.engine.vocab is None:
            raise CapabilityError(
                f"{engine.name} does not know its tokens, so MAX_INPUT_TOKENS cannot be kept", field="MAX_INPUT_TOKENS"
            )
        store, shares = parts.store, parts.replicas is not None or _is_one_of_several(settings)
        has_batches = parts.takes_batches and settings.batch_jobs
        if store is None and (_keeps(settings) or settings.store_responses or has_batches or shares):
            store = await open_kept_store(stack, settings)
        logs_kept = store if settings.store_generations != "off" and isinstance(store, Store) else None
        writer = None if logs_kept is None else _open_log(stack, settings, logs_kept)
        trace_store = store if parts.store is not None or _keeps(settings) else None
        gate = parts.gate or open_gate(stack, settings, store, shares=shares)
        judge = parts.judge or await _open_judge(stack, settings, gate)
        running: list[ServingEngine] = []
        pools = make_pools(waiting=settings.queue_size, steps=lambda: _steps(running), charge=gate.charge)
        scheduler = (parts.serve or _server(settings, judge, pools, gate))(engine.engine)
        running.append(scheduler)
        ending = _ending(settings, scheduler, pools)
        stack.callback(pools.close)
        stack.push_async_callback(_close, scheduler, ending)
        if parts.takes_signals:
            stack.enter_context(ending_on_signals(ending))
            end_with_supervisor()
        if parts.engine is None:
            freezes = stack.enter_context(short_collections())
            cache = None if compiler is None else compiler.cache
            if cache is not None:  # only here: without those collections its garbage would count for good
                cache.ceiling = settings.constraint_bytes
            keeping = memory_returned(pools, lambda: _count_steps(running), constraints=cache, freezes=freezes)
            await stack.enter_async_context(keeping)
        names = _names(settings, app, engine)
        meter = parts.meter or _open_meter(stack, settings, engine, scheduler, names[0])
        recorders = await _open_recorders(stack, settings, meter)
        traces = None
        if trace_store is not None and settings.trace_level != "off":
            traces = _open_trace_writer(stack, trace_store, meter, gate)
        spans = telemetry.make_spans(is_on=settings.otel)
        stack.push_async_callback(asyncio.to_thread, spans.close)
        activations = named = None
        if settings.activations_store is not None:
            activations = await asyncio.to_thread(HiddenStates, settings)
            stack.push_async_callback(asyncio.to_thread, activations.close)
            if settings.wordlist_server_compat:
                named = NamedStores(settings, activations)
                stack.push_async_callback(asyncio.to_thread, named.close)
        prebuild: Prebuild | None = None
        if lists and compiler is not None:
            prebuild = await stack.enter_async_context(prebuilding(settings, compiler, lists))
        yield Process(
            settings=settings,
            app=app,
            engine=engine,
            scheduler=scheduler,
            names=names,
            gate=gate,
            meter=meter,
            pools=pools,
            spans=spans,
            store=trace_store,
            traces=traces,
            started=int(time.time()),
            fingerprint=_fingerprint(engine),
            recorders=recorders,
            default_strategy=REJECTION if recorders and engine.capabilities.logits else _drafting(settings, engine),
            prebuild=prebuild,
            logs=logs_kept,
            log=writer,
            activations=activations,
            named_stores=named,
            batches=open_batches(store, settings) if has_batches and isinstance(store, Store) else None,
            responses=store if settings.store_responses and isinstance(store, Store) else None,
            replicas=parts.replicas,
        )


def _drafting(settings: ServerSettings, engine: LoadedEngine) -> str | None:
    """The strategy of requests that name none, where it is not `mask`. Raises InputError for a source of drafts that
    does not exist, CapabilityError for a source or a strategy that this model cannot have."""
    check_sources(settings.drafts, field="DRAFTS")
    can = engine.capabilities
    if MODEL in settings.drafts and not can.draft_model:
        raise CapabilityError(
            "DRAFTS has the source model, and no smaller model is open to draft",
            hint="ESPALIER_DRAFT_MODEL=PATH",
            field="DRAFTS",
        )
    if settings.strategy == USUAL_STRATEGY:
        return None
    if not (can.logits and can.truncate):
        raise CapabilityError(
            f"{engine.engine.name} cannot draft: it gives no logits here, or its cache cannot be cut",
            hint=f"STRATEGY={USUAL_STRATEGY}",
            field="STRATEGY",
        )
    return settings.strategy


def _make_app() -> App:
    environment = read_environment()
    export_for_libraries(environment)
    return build_app(environ=environment.values)


def open_batches(store: Store, settings: ServerSettings) -> BatchStore:
    """What is kept of batch jobs. Without a folder in the settings, uploads lie beside the SQLite file."""
    if settings.batch_job_temp_dir is not None:
        folder = Path(settings.batch_job_temp_dir).expanduser()
    elif store.database.is_sqlite:
        folder = Path(store.database.engine.url.database or "").absolute().parent / "batches"
    else:
        folder = default_folder()
    quota = UploadQuota(store.database, most_bytes=settings.upload_bytes_per_key, most_files=settings.uploads_per_key)
    results = ResultQuota(settings.batch_output_bytes)
    return BatchStore(store.database, folder, lease=settings.batch_lease_seconds, quota=quota, results=results)


async def _open_engine(stack: AsyncExitStack, app: App, settings: ServerSettings) -> LoadedEngine:
    opened = await asyncio.to_thread(app.open, settings.model_name)
    engine = LoadedEngine(opened, app.presets, kind=app.engine_kind(settings.model_name))
    stack.push_async_callback(asyncio.to_thread, engine.close)
    await asyncio.to_thread(_warm, engine)
    return engine


def _warm(engine: LoadedEngine) -> None:
    """Do what a process does once, such as loading compiled code, before a request waits for it."""
    compiler = engine.engine.compiler
    if engine.capabilities.logits:
        # Two passes, of the prompt and of a token, which warm the model itself.
        engine.generate("a", raw=True, max_tokens=2, temperature=0.0, constraint=Regex("[a-z]{2,9}"))
    if compiler is not None:
        compiler.far.start()
        # What compiles longest, once for an installation, is not waited for.
        start(later=[DRAWS, FILTERS])
        thread = threading.Thread(target=_warm_aside, args=(compiler,), name="espalier-filters", daemon=True)
        thread.start()


def _warm_aside(compiler: Compiler) -> None:
    classes.warm()
    warm_schemas(compiler)
    judging.warm()  # imports what reads the verdicts of the worker processes
    warm_filters(compiler)
    DRAWS.load()


async def open_kept_store(stack: AsyncExitStack, settings: ServerSettings) -> Store:
    """A store from which old rows are deleted now and then."""
    store = await asyncio.to_thread(open_store, settings.database_url)
    stack.push_async_callback(asyncio.to_thread, store.close)
    await stack.enter_async_context(_retention(store, settings))
    return store


@asynccontextmanager
async def _retention(store: Store, settings: ServerSettings) -> AsyncIterator[None]:
    seconds, rows = settings.usual_limits
    limits = Limits(seconds=seconds, rows=rows)
    retention = store.retention(limits, traces=trace_limits(settings), most_flagged=settings.retention_flagged)
    task = asyncio.create_task(keep(retention, every=RETENTION_SECONDS))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def trace_limits(settings: ServerSettings) -> Limits:
    """The limits of traces, in the store and in the proxy's files."""
    seconds, rows = settings.trace_limits
    return Limits(seconds=seconds, rows=rows)


def _open_trace_writer(stack: AsyncExitStack, store: TraceStore, meter: Meter, gate: Gate) -> TraceWriter:
    """Writes traces in a thread of its own. Replies wait for it, but not long."""
    trace_writer = TraceWriter(
        lambda: store, tell=log.warning, tells_all=True, closes=False, dropped=meter.unkept, charge=gate.charge
    )
    stack.push_async_callback(asyncio.to_thread, trace_writer.close)
    return trace_writer


def _open_log(stack: AsyncExitStack, settings: ServerSettings, store: Store) -> LogWriter:
    """Writes generation logs in a thread of its own, which nobody waits for but the end of the process."""
    log_writer = LogWriter(
        lambda: store,
        with_content=settings.store_generations == "content",
        tell=log.warning,
        tells_all=True,
        closes=False,
    )
    stack.push_async_callback(asyncio.to_thread, log_writer.close)
    return log_writer


def open_gate(
    stack: AsyncExitStack, settings: ServerSettings, store: TraceStore | None, *, shares: bool = False
) -> KeyGate:
    """Workers of one host, and replicas, count requests in their store, so that they hold limits together."""
    counters = None
    if isinstance(store, Store) and (shares or _is_one_of_several(settings)):
        counters = StoredCounters(store.database, lease=LEASE_SECONDS)
    gate = make_gate(settings, counters)
    stack.push_async_callback(gate.close)
    return gate


def _open_meter(
    stack: AsyncExitStack, settings: ServerSettings, engine: LoadedEngine, scheduler: ServingEngine, model: str
) -> PrometheusMeter:
    compiler = engine.engine.compiler
    meter = make_meter(
        model=model,
        constraints=ConstraintBytes if compiler is None else compiler.cache.held,
        load=scheduler.load,
        queue_size=settings.queue_size,
        max_tokens=engine.capabilities.max_context or MOST_TOKENS,
    )
    stack.callback(meter.close)
    return meter


async def _open_recorders(stack: AsyncExitStack, settings: ServerSettings, meter: Meter) -> tuple[Recorder, ...]:
    if settings.rejection_log is None:
        return ()
    log = await asyncio.to_thread(RejectionLog, settings.rejection_log, settings.rejection_log_bytes)
    stack.push_async_callback(asyncio.to_thread, log.close)
    return (GuardedRecorder(log, failed=meter.unrecorded),)


def _count_steps(running: list[ServingEngine]) -> int:
    """How many steps the model has made, whether it does something now or not."""
    return running[0].load().steps if running else 0


def _steps(running: list[ServingEngine]) -> int | None:
    """How many steps the model has made; None while it does nothing, or is not there yet."""
    load = running[0].load() if running else None
    return load.steps if load is not None and load.running else None


def _ending(settings: ServerSettings, scheduler: ServingEngine, pools: Pools) -> ShutdownPlan:
    """What still runs at the end of the drain is ended, and its readers are told."""

    async def finish() -> None:
        pools.preparing.close()
        pools.known.close()
        pools.tokens.close()
        pools.reading.close()
        await asyncio.to_thread(scheduler.close, drain=0)

    return ShutdownPlan(settings.drain_seconds, finish)


async def _close(scheduler: ServingEngine, ending: ShutdownPlan) -> None:
    await asyncio.to_thread(scheduler.close, drain=ending.left())


async def _open_judge(stack: AsyncExitStack, settings: ServerSettings, gate: Gate) -> Judge:
    """Verdicts in worker processes; where the system has none that can be limited, in this process."""
    if not is_supported():
        log.warning("verdicts have no limit on this system")
        return in_this_process
    confined_judge = ConfinedJudge(seconds=settings.verdict_seconds, charge=gate.charge)
    stack.callback(confined_judge.close)
    await asyncio.to_thread(confined_judge.start)
    return confined_judge.judge


def _server(settings: ServerSettings, judge: Judge, pools: Pools, gate: Gate) -> Callable[[Engine], ServingEngine]:
    def serve(engine: Engine) -> ServingEngine:
        return serve_engine(
            engine,
            queue_size=settings.queue_size,
            step_seconds=settings.step_seconds,
            plan_seconds=settings.plan_seconds,
            prefix_tokens=settings.prefix_tokens,
            judge=judge,
            aside=pools.results.aside,
            charge=gate.charge,
        )

    return serve


def _is_one_of_several(settings: ServerSettings) -> bool:
    """Whether other worker processes serve beside this one: `uvicorn --workers` starts them as children."""
    return settings.workers > 1 or multiprocessing.parent_process() is not None


def _keeps(settings: ServerSettings) -> bool:
    """Whether traces or generations are stored."""
    return settings.trace_level != "off" or settings.store_generations != "off"


def _names(settings: ServerSettings, app: App, engine: LoadedEngine) -> tuple[str, ...]:
    """The aliases, then the model's name as it was asked for; a path by its last part, all that clients need."""
    given = settings.model_name or app.settings.model or engine.name
    path = Path(given).expanduser()
    names = (path.resolve().name,) if path.exists() else (given,)
    return tuple(dict.fromkeys((*settings.model_alias, *names)))


def _fingerprint(engine: LoadedEngine) -> str:
    """The same for the same model under the same version."""
    vocab = engine.engine.vocab
    named = f"{__version__} {engine.name} {'' if vocab is None else vocab.fingerprint}"
    return f"fp_{hashlib.blake2b(named.encode(), digest_size=8).hexdigest()}"
