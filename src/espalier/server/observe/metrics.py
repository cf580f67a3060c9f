"""Prometheus metrics: vLLM's metrics under their names and under `espalier:`, and metrics of constraints.

Each application has a registry of its own. Several workers write into a folder that all of them read
(`PROMETHEUS_MULTIPROC_DIR`): counters, histograms and the numbers of requests add up, and of the KV cache usage the
highest is shown. It knows no route and no engine, only a function that returns the load.
"""

from __future__ import annotations

import glob
import os
import re
import threading
from bisect import bisect_left
from collections import Counter as Counts
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from math import fsum
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from espalier.constraints.cache import ConstraintBytes
from espalier.constraints.kinds import KINDS
from espalier.engines.base import Load, Result
from espalier.server.ports import Finish

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
ENGINE = "0"
"""The label `engine`: vLLM numbers its engines, a worker has one."""
REFRESH_SECONDS = 1.0
MOST_TOKENS = 131_072
PREFIXES = ("vllm", "espalier")
LABELS = ("model_name", "engine")

FIRST = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
GAP = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.2,
    0.3,
    0.4,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
)
LONG = (
    0.005,
    0.01,
    0.05,
    0.1,
    0.3,
    0.5,
    0.8,
    1,
    1.5,
    2,
    2.5,
    5,
    10,
    15,
    20,
    30,
    40,
    50,
    60,
    120,
    240,
    480,
    960,
    1920,
    7680,
)
"""Seconds: vLLM's buckets, and lower ones before them for faster models."""
COMPILE = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
MASK = (0.000005, 0.00001, 0.00005, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5)
MASS = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1)
NATS = (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 1000)
TIMES = {
    "time_to_first_token_seconds": ("From the arrival of a request to its first token.", FIRST),
    "inter_token_latency_seconds": ("Time between two tokens of an output.", GAP),
    "time_per_output_token_seconds": ("The same under its older name.", GAP),
    "e2e_request_latency_seconds": ("From the arrival of a request to the end of its output.", LONG),
    "request_queue_time_seconds": ("Waiting in the queue.", LONG),
    "request_prefill_time_seconds": ("From the end of the queue to the first token.", LONG),
    "request_decode_time_seconds": ("From the first token to the end.", LONG),
}
REASONS = {"stop": "stop", "length": "length", "tool_calls": "stop"}
"""vLLM's name of each finish reason; it counts tool calls as `stop`."""


def up_to(limit: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... up to a limit."""
    steps = (m * 10**e for e in range(len(str(limit))) for m in (1, 2, 5))
    return tuple(step for step in steps if step <= limit)


class PrometheusMeter:
    """The `Meter` of one application. Every method may be called from any thread; none raises."""

    def __init__(
        self,
        *,
        model: str,
        load: Callable[[], Load],
        queue_size: int,
        constraints: Callable[[], ConstraintBytes] = ConstraintBytes,
        max_tokens: int = MOST_TOKENS,
        folder: Path | None = None,
    ) -> None:
        """model: as replies name it. constraints: bytes of compiled ones. max_tokens: the largest bucket of that
        parameter. folder: shared by workers; `PROMETHEUS_MULTIPROC_DIR` must have named it before prometheus_client was
        first imported."""
        self._model, self._load, self._folder = model, load, folder
        self._held = constraints
        self._registry = CollectorRegistry()
        self._reused = 0
        self._lock = threading.Lock()
        self._stop = threading.Event()
        sizes = up_to(max(max_tokens, 1))
        self._times = {(p, n): self._histogram(f"{p}:{n}", *TIMES[n]) for p in PREFIXES for n in TIMES}
        self._running = self._gauges("num_requests_running", "Requests that are running.", "livesum")
        self._waiting = self._gauges("num_requests_waiting", "Requests that wait in the queue.", "livesum")
        self._sequences = self._gauge(
            "espalier:sequences", "Sequences of the model in use, kept prefixes too.", "livesum"
        )
        self._constraint_bytes = Gauge(
            "espalier:constraint_bytes",
            "Compiled constraints: `kept` for the next request, and `garbage` that is not collected yet.",
            (*LABELS, "state"),
            registry=self._registry,
            multiprocess_mode="livesum",
        )
        self._usage = self._gauges("kv_cache_usage_perc", "Share of the KV cache in use, from 0 to 1.", "livemax")
        self._prompt = self._counters("prompt_tokens", "Prompt tokens.")
        self._generated = self._counters("generation_tokens", "Generated tokens.")
        self._ended = self._counters("request_success", "Outputs that ended, by reason.", "finished_reason")
        help_tokens, help_n = "`max_tokens` of requests.", "`n` of requests."
        self._max_tokens = [self._histogram(f"{p}:request_params_max_tokens", help_tokens, sizes) for p in PREFIXES]
        self._n = [self._histogram(f"{p}:request_params_n", help_n, (1, 2, 5, 10, 20)) for p in PREFIXES]
        self._compile = self._histogram(
            "espalier:constraint_compile_seconds",
            "Compiling a constraint, or finding it in the cache.",
            COMPILE,
            "constraint",
        )
        self._mask = self._histogram(
            "espalier:mask_seconds", "Time of a token mask, the mean of an output's tokens.", MASK, "constraint"
        )
        self._mass = self._histogram(
            "espalier:removed_mass", "Mass that the constraint removed, for each traced step.", MASS, "constraint"
        )
        self._tax = self._histogram(
            "espalier:tax_nats", "The sum of -ln Z over the steps, of each traced output.", NATS, "constraint"
        )
        self._rejected = self._counter(
            "espalier:rejected_tokens",
            "Traced steps that refused a token: `top_choice`, the model's most probable one (known from full traces);"
            " `drawn`, the one that was drawn.",
            "constraint",
            "kind",
        )
        self._invalid = self._counter("espalier:invalid_outputs", "Outputs that the validator refused.", "constraint")
        self._broken = self._counter(
            "espalier:broken_outputs",
            "Outputs that break a constraint which was called enforced: a fault of Espalier or of the engine.",
            "constraint",
        )
        self._drafted = self._counter(
            "espalier:drafted_tokens",
            "Tokens that drafts proposed, and those of them that were taken.",
            "source",
            "kind",
        )
        self._draft_passes = self._counter("espalier:draft_passes", "Forward passes of outputs with drafts.")
        self._draft_tokens = self._counter("espalier:draft_tokens", "Tokens of outputs with drafts.")
        self._spared = self._counter("espalier:prefix_reused_tokens", "Prompt tokens found in the prefix cache.")
        self._queue_size = self._gauge(
            "espalier:queue_size", "How many requests may wait, over all workers.", "livesum"
        )
        self._responses = Counter(
            "espalier:http_responses", "Responses, by route and status.", ("route", "code"), registry=self._registry
        )
        self._refused = Counter(
            "espalier:refused_requests",
            "Requests that were refused, by route and error.",
            ("route", "error"),
            registry=self._registry,
        )
        self._queue_size.labels(model, ENGINE).set(queue_size)
        self._unrecorded = self._counter("espalier:recorder_errors", "Failures of recorders.")
        self._unkept = self._counter("espalier:traces_dropped", "Traces that were to be kept and could not be stored.")
        self._begin_at_zero()
        self.refresh()
        if folder is not None:
            threading.Thread(target=self._keep_fresh, name="metrics", daemon=True).start()

    def started(self, *, route: str, max_tokens: int, outputs: int) -> None:
        for histogram in self._max_tokens:
            histogram.labels(self._model, ENGINE).observe(max_tokens)
        for histogram in self._n:
            histogram.labels(self._model, ENGINE).observe(outputs)

    def compiled(self, *, constraint: str, seconds: float) -> None:
        self._compile.labels(self._model, ENGINE, constraint).observe(seconds)

    def refused(self, *, route: str, code: str) -> None:
        self._refused.labels(route, code).inc()

    def unrecorded(self) -> None:
        self._unrecorded.labels(self._model, ENGINE).inc()

    def unkept(self) -> None:
        self._unkept.labels(self._model, ENGINE).inc()

    def answered(self, *, route: str, status: int) -> None:
        self._responses.labels(route, str(status)).inc()

    def finished(self, finish: Finish) -> None:
        result = finish.result
        if result is None:
            reason = "abort" if finish.error == "cancelled" else "error"
            for counter in self._ended:
                counter.labels(finish.model, ENGINE, reason).inc()
            return
        vllm, own = self._ended
        vllm.labels(finish.model, ENGINE, REASONS.get(result.finish_reason, result.finish_reason)).inc()
        own.labels(finish.model, ENGINE, result.finish_reason).inc()
        for counter in self._prompt if finish.is_first else ():
            counter.labels(finish.model, ENGINE).inc(result.usage.prompt_tokens)
        generated = sum(output.usage.completion_tokens for output in (result, *result.others))
        for counter in self._generated:
            counter.labels(finish.model, ENGINE).inc(generated)
        for names, seconds in _durations(finish, result):
            histograms = [self._times[key].labels(finish.model, ENGINE) for key in product(PREFIXES, names)]
            observe_all(histograms, seconds)
        self._count_drafts(finish, result)
        for breach in result.breaches:
            self._broken.labels(finish.model, ENGINE, breach.kind).inc()
        self._count_constrained(finish, result)

    def refresh(self) -> None:
        """Set the gauges from the engine's load. Called at every scrape, and every second if there are several
        workers."""
        load = self._load()
        usage = load.tokens_held / load.capacity if load.capacity else 0.0
        for gauges, value in (
            (self._running, load.running),
            (self._waiting, load.waiting),
            ([self._sequences], load.sequences),
            (self._usage, usage),
        ):
            for gauge in gauges:
                gauge.labels(self._model, ENGINE).set(value)
        held = self._held()
        for state, size in (("kept", held.kept), ("garbage", held.garbage)):
            self._constraint_bytes.labels(self._model, ENGINE, state).set(size)
        with self._lock:
            more, self._reused = load.reused - self._reused, load.reused
        self._spared.labels(self._model, ENGINE).inc(max(0, more))

    def text(self) -> bytes:
        """The body of `/metrics`, of the type CONTENT_TYPE."""
        self.refresh()
        if self._folder is None:
            return generate_latest(_CompactRegistry(self._registry))
        _forget_the_dead(self._folder)
        shared = CollectorRegistry()
        _WorkerSamples(shared, path=str(self._folder))  # type: ignore[no-untyped-call]
        return generate_latest(_CompactRegistry(shared))

    def close(self) -> None:
        """Stop refreshing. Idempotent."""
        self._stop.set()

    def _count_drafts(self, finish: Finish, result: Result) -> None:
        drafting = result.drafting
        if drafting is None:
            return
        self._draft_passes.labels(finish.model, ENGINE).inc(drafting.passes)
        self._draft_tokens.labels(finish.model, ENGINE).inc(drafting.tokens)
        for draft in drafting.drafts:
            self._drafted.labels(finish.model, ENGINE, draft.source, "drafted").inc(draft.drafted)
            self._drafted.labels(finish.model, ENGINE, draft.source, "accepted").inc(draft.accepted)

    def _count_constrained(self, finish: Finish, result: Result) -> None:
        if finish.constraint is None:
            return
        labels = (finish.model, ENGINE, finish.constraint)
        if result.verdict is not None and result.verdict.valid is False:
            self._invalid.labels(*labels).inc()
        if result.mask_seconds is not None and result.token_ids:
            self._mask.labels(*labels).observe(result.mask_seconds / len(result.token_ids))
        if result.trace is None or not result.records:
            return
        observe_all([self._mass.labels(*labels)], [step.removed_mass for step in result.records])
        self._tax.labels(*labels).observe(result.trace.total_tax_nats)
        self._rejected.labels(*labels, "top_choice").inc(result.trace.changed_steps)
        self._rejected.labels(*labels, "drawn").inc(sum(step.was_rejected for step in result.records))

    def _begin_at_zero(self) -> None:
        """Create all series with the value 0, since a rate needs a first sample."""
        for family in (
            *self._prompt,
            *self._generated,
            *self._times.values(),
            self._spared,
            self._unrecorded,
            self._unkept,
        ):
            family.labels(self._model, ENGINE)
        for kind in KINDS.names():
            self._broken.labels(self._model, ENGINE, kind)
        for counter, reasons in zip(self._ended, (set(REASONS.values()), set(REASONS)), strict=True):
            for reason in sorted({*reasons, "abort", "error"}):
                counter.labels(self._model, ENGINE, reason)

    def _keep_fresh(self) -> None:
        while not self._stop.wait(REFRESH_SECONDS):
            self.refresh()

    def _histogram(self, name: str, help_: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, help_, (*LABELS, *labels), buckets=buckets, registry=self._registry)

    def _counter(self, name: str, help_: str, *labels: str) -> Counter:
        return Counter(name, help_, (*LABELS, *labels), registry=self._registry)

    def _counters(self, name: str, help_: str, *labels: str) -> list[Counter]:
        return [self._counter(f"{prefix}:{name}", help_, *labels) for prefix in PREFIXES]

    def _gauge(self, name: str, help_: str, mode: str) -> Gauge:
        return Gauge(name, help_, LABELS, registry=self._registry, multiprocess_mode=mode)  # type: ignore[arg-type]

    def _gauges(self, name: str, help_: str, mode: str) -> list[Gauge]:
        return [self._gauge(f"{prefix}:{name}", help_, mode) for prefix in PREFIXES]


class _CompactRegistry(Collector):
    """A registry without the `_created` samples, which double the number of lines."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for metric in self._registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _WorkerSamples(MultiProcessCollector):
    """The samples of all workers, but for those whose files are still empty: they have just begun."""

    def collect(self) -> Iterable[Metric]:
        files = []
        for path in glob.glob(os.path.join(self._path, "*.db")):
            with suppress(FileNotFoundError):  # of a worker that has just ended
                if os.path.getsize(path):
                    files.append(path)
        return self.merge(files, accumulate=True)  # type: ignore[no-untyped-call,no-any-return]  # the library has no types


def make_meter(
    *,
    model: str,
    load: Callable[[], Load],
    queue_size: int,
    constraints: Callable[[], ConstraintBytes] = ConstraintBytes,
    max_tokens: int = MOST_TOKENS,
) -> PrometheusMeter:
    """A meter of this process, or one that shares the folder of PROMETHEUS_MULTIPROC_DIR if that is set."""
    folder = os.environ.get("PROMETHEUS_MULTIPROC_DIR")
    return PrometheusMeter(
        model=model,
        load=load,
        queue_size=queue_size,
        constraints=constraints,
        max_tokens=max_tokens,
        folder=Path(folder) if folder else None,
    )


def observe_all(histograms: Sequence[Histogram], values: Sequence[float]) -> None:
    """Like `observe` for each value in each of these histograms, which have the same buckets, negative values as 0; but
    with one update per bucket: an output has as many values as tokens, and this runs on the event loop."""
    bounds: list[float] = histograms[0]._upper_bounds
    counts = Counts(bisect_left(bounds, max(0.0, value)) for value in values)
    total = fsum(max(0.0, value) for value in values)
    for histogram in histograms:
        histogram._sum.inc(total)
        for index, count in counts.items():
            histogram._buckets[index].inc(count)


def _durations(finish: Finish, result: Result) -> Iterator[tuple[tuple[str, ...], Sequence[float]]]:
    yield ("e2e_request_latency_seconds",), [finish.total]
    yield ("request_queue_time_seconds",), [finish.queued]
    first = finish.to_first_token
    if first is None:
        return
    yield ("time_to_first_token_seconds",), [first]
    yield ("request_prefill_time_seconds",), [first - finish.preparing - finish.queued]
    yield ("request_decode_time_seconds",), [finish.total - first]
    later = result.usage.completion_tokens - 1
    # Without times of single tokens their mean stands for each: sum and count are right, the distribution is not.
    gaps = finish.gaps or ((finish.total - first) / later,) * later if later > 0 else ()
    yield ("inter_token_latency_seconds", "time_per_output_token_seconds"), gaps


def _forget_the_dead(folder: Path) -> None:
    """Drop the gauges of workers that have ended."""
    for path in glob.glob(str(folder / "gauge_live*.db")):
        match = re.search(r"_(\d+)\.db$", path)
        if match and not _is_alive(int(match[1])):
            mark_process_dead(int(match[1]), str(folder))  # type: ignore[no-untyped-call]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
