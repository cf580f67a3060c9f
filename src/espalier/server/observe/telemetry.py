"""OpenTelemetry spans with gen_ai attributes, one per generating request, without prompts and answers.

Off unless OTEL=true. A route opens a span with `Spans.request` and reports what happens; this module knows no route. An
existing tracer provider of the process (`opentelemetry-instrument`) is used; otherwise OTEL_TRACES_EXPORTER,
OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_SERVICE_NAME decide where spans go.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, Protocol

from espalier.errors import EspalierError, MissingDependency
from espalier.optional import optional_imports
from espalier.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, Tracer

Operation = Literal["chat", "text_completion"]
PARAMETERS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
    "n": "gen_ai.request.choice.count",
    "constraint": "espalier.constraint",
    "stream": "espalier.stream",
}
EXPORTERS = "opentelemetry_traces_exporter"
"""The group of entry points under which exporters register."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyCosts:
    """What a constraint cost the outputs of one reply. fingerprint, title: the constraint's; None for free text."""

    fingerprint: str | None
    title: str | None
    #: Of the outputs whose tax was measured; None where no output's was.
    tax_nats: float | None
    #: `valid`, `invalid` or `unknown`, of each output.
    verdicts: Sequence[str]
    #: The ids of the stored traces.
    traces: Sequence[str]


class RequestSpan(Protocol):
    """What a route reports of one request."""

    #: Whether what is reported goes anywhere.
    is_recording: bool

    def parameters(self, **values: Any) -> None:
        """Values by the names of PARAMETERS; None is left out."""
        ...

    def first_token(self, ago: float = 0.0) -> None:
        """The first token was generated so many seconds ago. Further calls do nothing."""
        ...

    def finished(
        self, *, response_id: str, input_tokens: int, output_tokens: int, finish_reasons: Sequence[str]
    ) -> None: ...

    def constrained(self, costs: ReplyCosts) -> None:
        """What the constraint cost the reply's outputs, and what became of them."""
        ...

    def failed(self, error: EspalierError) -> None:
        """An error that a stream sent as an event. A raised error is recorded without this call."""
        ...


class Spans(Protocol):
    def request(
        self, *, operation: Operation, model: str, headers: Mapping[str, str], request_id: str = ""
    ) -> AbstractContextManager[RequestSpan]:
        """A span around a request, a child of the span in the header `traceparent` if there is one. It may end in
        another task than the one that opened it."""
        ...

    def close(self) -> None:
        """Flush pending spans."""
        ...


class NoSpans:
    """Telemetry is off."""

    def request(
        self, *, operation: Operation, model: str, headers: Mapping[str, str], request_id: str = ""
    ) -> AbstractContextManager[RequestSpan]:
        return _no_span()

    def close(self) -> None:
        """Nothing to close."""


class TracedSpans:
    """Spans of a provider. is_ours: whether `close` shuts the provider down. clock: monotonic seconds."""

    def __init__(
        self, provider: TracerProvider, *, is_ours: bool = True, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._provider, self._is_ours, self._clock = provider, is_ours, clock
        self._tracer: Tracer = provider.get_tracer("espalier", __version__)

    @contextmanager
    def request(
        self, *, operation: Operation, model: str, headers: Mapping[str, str], request_id: str = ""
    ) -> Iterator[RequestSpan]:
        from opentelemetry.trace import SpanKind  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        carrier = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
        # Not made the current span: a stream may be closed from a task with another context.
        span = self._tracer.start_span(
            f"{operation} {model}",
            context=TraceContextTextMapPropagator().extract(carrier),
            kind=SpanKind.SERVER,
            attributes={
                "gen_ai.operation.name": operation,
                "gen_ai.provider.name": "espalier",
                "gen_ai.request.model": model,
                **({"espalier.request_id": request_id} if request_id else {}),
            },
        )
        opened = _OpenSpan(span, self._clock)
        try:
            yield opened
        except BaseException as error:
            opened.raised(error)
            raise
        finally:
            span.end()

    def close(self) -> None:
        if self._is_ours:
            self._provider.shutdown()


class _OpenSpan:
    is_recording = True

    def __init__(self, span: Span, clock: Callable[[], float]) -> None:
        self._span, self._clock = span, clock
        self._began = clock()
        self._has_first = False

    def parameters(self, **values: Any) -> None:
        for name, value in values.items():
            if value is not None:
                self._span.set_attribute(PARAMETERS[name], value)

    def first_token(self, ago: float = 0.0) -> None:
        if not self._has_first:
            self._has_first = True
            self._span.set_attribute("gen_ai.server.time_to_first_token", self._clock() - ago - self._began)

    def finished(
        self, *, response_id: str, input_tokens: int, output_tokens: int, finish_reasons: Sequence[str]
    ) -> None:
        self._span.set_attributes(
            {
                "gen_ai.response.id": response_id,
                "gen_ai.usage.input_tokens": input_tokens,
                "gen_ai.usage.output_tokens": output_tokens,
                "gen_ai.response.finish_reasons": list(finish_reasons),
                "gen_ai.server.request.duration": self._clock() - self._began,
            }
        )

    def constrained(self, costs: ReplyCosts) -> None:
        values: dict[str, Any] = {
            "espalier.constraint.fingerprint": costs.fingerprint,
            "espalier.constraint.title": costs.title,
            "espalier.tax_nats": costs.tax_nats,
            "espalier.verdicts": list(costs.verdicts),
            "espalier.trace_ids": list(costs.traces) or None,
        }
        self._span.set_attributes({name: value for name, value in values.items() if value is not None})

    def failed(self, error: EspalierError) -> None:
        self._error(error.code)

    def raised(self, error: BaseException) -> None:
        """Record an error by its code or type, without its message, which may quote the prompt."""
        self._error(error.code if isinstance(error, EspalierError) else type(error).__name__)

    def _error(self, code: str) -> None:
        from opentelemetry.trace import StatusCode  # noqa: PLC0415

        self._span.set_attribute("error.type", code)
        self._span.set_status(StatusCode.ERROR)


class _NoSpan:
    is_recording = False

    def parameters(self, **values: Any) -> None: ...

    def first_token(self, ago: float = 0.0) -> None: ...

    def finished(
        self, *, response_id: str, input_tokens: int, output_tokens: int, finish_reasons: Sequence[str]
    ) -> None: ...

    def constrained(self, costs: ReplyCosts) -> None: ...

    def failed(self, error: EspalierError) -> None: ...


@contextmanager
def _no_span() -> Iterator[RequestSpan]:
    yield _NoSpan()


def make_spans(*, is_on: bool, environ: Mapping[str, str] | None = None) -> Spans:
    """Raises MissingDependency if it is on and OpenTelemetry or the requested exporter is not installed."""
    if not is_on:
        return NoSpans()
    with optional_imports("otel"):
        from opentelemetry import trace  # noqa: PLC0415
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    current = trace.get_tracer_provider()
    if isinstance(current, TracerProvider):
        return TracedSpans(current, is_ours=False)
    env = os.environ if environ is None else environ
    resource = Resource.create({SERVICE_NAME: env.get("OTEL_SERVICE_NAME") or "espalier", SERVICE_VERSION: __version__})
    provider = TracerProvider(resource=resource)
    for name in (env.get("OTEL_TRACES_EXPORTER") or "otlp").split(","):
        if name.strip() != "none":
            provider.add_span_processor(BatchSpanProcessor(_exporter(name.strip())))
    return TracedSpans(provider)


def _exporter(name: str) -> Any:
    asked = "otlp_proto_http" if name == "otlp" else name  # the SDK itself reads `otlp` as gRPC
    for point in entry_points(group=EXPORTERS, name=asked):
        return point.load()()
    raise MissingDependency(f"the exporter {name!r} of OpenTelemetry", extra="otel")
