"""What one HTTP request is counted with: to the log line, the metrics, the span, the content log and the stores."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.decoding.options import Decoding
from espalier.engines.base import FinishEvent, TokenEvent, Usage
from espalier.errors import Cancelled, DeadEnd, EspalierError, LimitExceeded, OutputError, Stranded, Unavailable
from espalier.server.answering import generation as generations
from espalier.server.answering.generation import Generation, GenerationOutput, system_text
from espalier.server.http.errors import TooCostly, code_of
from espalier.server.observe.telemetry import ReplyCosts
from espalier.store.trace_columns import identify_constraint
from tests.server_app import CountingMeter


class NotedSpan:
    """Notes what a route reports."""

    is_recording = False

    def __init__(self) -> None:
        self.errors: list[EspalierError] = []
        self.firsts: list[float] = []
        self.costs: list[ReplyCosts] = []

    def constrained(self, costs: ReplyCosts) -> None:
        self.costs.append(costs)

    def failed(self, error: EspalierError) -> None:
        self.errors.append(error)

    def first_token(self, ago: float = 0.0) -> None:
        self.firsts.append(ago)

    def finished(self, **_: Any) -> None: ...


class Scripted:
    """A run whose bursts are known. error: what it ends with."""

    progress = SimpleNamespace(queued=0.5)

    def __init__(self, bursts: Sequence[Any], error: Exception | None = None) -> None:
        self._bursts, self._error = bursts, error

    async def bursts(self) -> AsyncIterator[Any]:
        for burst in self._bursts:
            yield burst
        if self._error is not None:
            raise self._error


def result(prompt: int = 3, completion: int = 2, **more: Any) -> Any:
    """A Result, as far as counting looks at it."""
    fields = {"finish_reason": "stop", "others": (), "breaches": (), "trace": None, "activations": None, "text": "t"}
    usage = Usage(prompt_tokens=prompt, completion_tokens=completion)
    return SimpleNamespace(**{"usage": usage, **fields, **more})


def finish(of: Any, index: int = 0) -> FinishEvent:
    return FinishEvent(index=index, text="", result=of)


def token(**more: Any) -> TokenEvent:
    return TokenEvent(index=0, token_id=1, text="a", **more)


def generation(*outputs: GenerationOutput, n: int = 1, process: Any = (), asked: Any = (), **more: Any) -> Generation:
    """A request that came at 100 s."""
    request = SimpleNamespace(
        decoding=Decoding(), tools=(), constraint=None, filters=(), soft=None, messages=(), prompt="the prompt",
        sampling=SimpleNamespace(bad_words=()),
    )  # fmt: skip
    parsed = {"requests": [request] * len(outputs), "names": {}, "constraint": None, "n": n, "stream": False}
    parsed |= {"states": None, "shown_trace": "none", "named": lambda error: error}
    kept = {"meter": CountingMeter(), "names": ("m",), "log": None, "traces": None, "activations": None}
    kept |= {"settings": SimpleNamespace(trace_texts=False)}
    given: dict[str, Any] = {
        "process": SimpleNamespace(**(kept | dict(process))),
        "asked": SimpleNamespace(**(parsed | dict(asked))),
        "caller": SimpleNamespace(name="someone"),
        "route": "/v1/chat/completions",
        "request_id": "req",
        "began": 100.0,
        "span": NotedSpan(),
        "outputs": list(outputs),
    }
    return Generation(**given | more)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that generations read."""
    clock = [110.0]
    monkeypatch.setattr(generations, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    return clock


async def read(running: Generation) -> list[Any]:
    return [happened async for burst in running.events() for happened in burst]


def test_an_output_without_a_token_has_none() -> None:
    assert GenerationOutput().tokens == 0
    assert GenerationOutput(first=1.0).tokens == 1
    assert GenerationOutput(first=1.0, gaps=[0.1, 0.1]).tokens == 3


def test_outputs_that_have_not_ended_are_logged_with_the_error_and_the_others_with_their_finish_reason() -> None:
    running = generation(GenerationOutput(result=result(), finish="stop"), GenerationOutput(first=1.0, gaps=[1.0]), n=2)
    assert running.line() == {"prompt_tokens": 3, "completion_tokens": 4, "finish_reason": "stop,cancelled"}
    running.failed(LimitExceeded("much"))
    assert running.line()["finish_reason"] == f"stop,{code_of(LimitExceeded('much'))}"
    assert [str(error) for error in running.span.errors] == ["much"]  # type: ignore[attr-defined]
    running.failed(RuntimeError("a fault"))
    assert running.line()["finish_reason"] == "stop,internal_error"


def test_tokens_are_timed_by_when_they_came_and_not_by_when_they_were_read(now: list[float]) -> None:
    output = GenerationOutput(submitted=101.0)
    output.running = Scripted([[token(after=2.0)], [token(after=2.5), token(after=3.5), finish(result())]])  # type: ignore[assignment]
    running = generation(output)
    asyncio.run(read(running))
    assert (output.first, output.last, output.gaps) == (103.0, 104.5, [0.5, 1.0])
    assert running.span.firsts == [7.0]  # type: ignore[attr-defined]
    told = running.process.meter.finishes[0]  # type: ignore[attr-defined]
    assert (told.to_first_token, told.total, told.preparing, told.queued) == (3.0, 10.0, 1.0, 0.5)
    assert told.gaps == (0.5, 1.0)


def test_tokens_that_are_read_as_they_come_are_timed_then(now: list[float]) -> None:
    output = GenerationOutput()
    output.running = Scripted([[token()], [token(after=1.0)], [finish(result())]])  # type: ignore[assignment]

    async def follow() -> None:
        async for _ in generation(output).events():
            now[0] += 1.0

    asyncio.run(follow())
    assert (output.first, output.last, output.gaps) == (110.0, 111.0, [1.0])


def test_an_output_without_tokens_ends_when_its_end_came(now: list[float]) -> None:
    output = GenerationOutput(submitted=101.0)
    output.running = Scripted([[finish(result(completion=0))]])  # type: ignore[assignment]
    running = generation(output)
    asyncio.run(read(running))
    assert (output.first, output.last) == (None, 110.0)
    assert running.process.meter.finishes[0].to_first_token is None  # type: ignore[attr-defined]


def test_a_prompt_is_metered_with_the_first_of_its_outputs() -> None:
    running = generation(*(GenerationOutput(submitted=101.0) for _ in range(4)), n=2)
    for index in range(4):
        running.count(index, result(), None)
        running.count(index, None, "cancelled")  # it has ended
    told = running.process.meter.finishes  # type: ignore[attr-defined]
    assert [finish.is_first for finish in told] == [True, False, True, False]
    assert [finish.error for finish in told] == [None] * 4


@pytest.mark.parametrize(
    ("error", "constraint", "kind", "code"),
    [
        (DeadEnd("no way"), "regex", Stranded, 400),
        (DeadEnd("no way"), None, DeadEnd, 500),
        (LimitExceeded("much"), "regex", TooCostly, 400),
    ],
)
def test_an_error_of_what_was_asked_for_is_the_requests_and_another_the_servers(
    error: EspalierError, constraint: str | None, kind: type[EspalierError], code: int
) -> None:
    spec = None if constraint is None else SimpleNamespace(kind=constraint)
    running = generation(GenerationOutput(running=Scripted([], error)), asked={"constraint": spec})  # type: ignore[arg-type]
    running.asked.requests[0].constraint = spec  # type: ignore[misc]
    with pytest.raises(kind) as told:
        asyncio.run(read(running))
    assert type(told.value) is kind
    assert told.value.http_status == code
    assert running.span.errors == [told.value]  # type: ignore[attr-defined]
    assert running.code != "cancelled"


def test_the_content_log_has_the_prompt_and_every_answer(caplog: pytest.LogCaptureFixture) -> None:
    monitored = logging.getLogger("espalier.content")
    before = monitored.level
    monitored.setLevel(logging.DEBUG)
    try:
        with caplog.at_level(logging.DEBUG, logger="espalier.content"):
            generation(GenerationOutput()).ended("rep", [result(text="one", others=(result(text="two"),))])
    finally:
        monitored.setLevel(before)
    [record] = [record for record in caplog.records if record.name == "espalier.content"]
    assert record.__dict__["texts"] == ["one", "two"]
    assert record.__dict__["prompt"] == "the prompt"
    assert record.__dict__["request_id"] == "req"


def test_a_span_that_is_recorded_hears_what_the_constraint_cost_all_outputs() -> None:
    regex = {"type": "regex", "pattern": "a+"}
    traces = [SimpleNamespace(constraint=spec, total_tax_nats=nats) for spec, nats in ((None, 0.5), (regex, 0.25))]
    verdicts = [SimpleNamespace(valid=valid) for valid in (True, None)]
    of = [result(trace=trace, verdict=verdict) for trace, verdict in zip(traces, verdicts, strict=True)]
    of.append(result(verdict=None))
    running = generation(*(GenerationOutput(trace_id=name) for name in ("trc_1", None, "trc_2")))
    span: Any = running.span
    running.ended("id", of)
    assert span.costs == [], "nobody records it"
    span.is_recording = True
    running.ended("id", of)
    (told,) = span.costs
    assert (told.fingerprint, told.title) == identify_constraint(regex)
    assert (told.tax_nats, told.verdicts) == (0.75, ["valid", "unknown", "unknown"])
    assert told.traces == ["trc_1", "trc_2"]
    running.ended("id", [result(verdict=None)])
    assert (span.costs[-1].fingerprint, span.costs[-1].tax_nats) == (None, None)


def test_a_run_that_the_closing_server_cancelled_may_be_sent_again() -> None:
    running = generation(GenerationOutput(running=Scripted([], Cancelled("cancelled"))))  # type: ignore[arg-type]
    with pytest.raises(Unavailable, match="the server is closing") as told:
        asyncio.run(read(running))
    assert told.value.hint == "send the request again"
    assert running.code == told.value.code


class Saving:
    """A pool that takes a while. error: what it ends with."""

    def __init__(self, error: Exception | None = None) -> None:
        self.owners: list[str] = []
        self._error = error

    async def run(self, work: Any, *, owner: str) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        work()
        self.owners.append(owner)


@pytest.mark.parametrize("error", [None, OutputError("the disk is full")])
def test_hidden_states_are_stored_before_the_reply_ends_and_a_full_disk_is_told(
    error: Exception | None, caplog: pytest.LogCaptureFixture
) -> None:
    stored: list[Any] = []
    states = SimpleNamespace(put=lambda of, *, request_id, trace_id: stored.append((of, request_id, trace_id)))
    pool, of = Saving(error), result(activations=object())
    output = GenerationOutput(submitted=101.0, trace_id="trc", running=Scripted([[finish(of)]]))  # type: ignore[arg-type]
    running = generation(output, process={"activations": states, "pools": SimpleNamespace(saving=pool)})
    assert len(asyncio.run(read(running))) == 1
    assert stored == ([(of, "req", "trc")] if error is None else [])
    assert pool.owners == (["someone"] if error is None else [])
    assert [record.getMessage() for record in caplog.records] == ([] if error is None else [f"not stored: {error}"])


class Writer:
    """A writer of traces. The test ends its write."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self.is_slow = is_slow
        self.written: Future[str] = Future()
        self.puts: list[Any] = []

    def put(self, made: Any) -> Future[str]:
        self.puts.append(made())
        return self.written


def traced(writer: Writer, **asked: Any) -> tuple[Generation, GenerationOutput]:
    of = result(trace=SimpleNamespace(packed=lambda: {"steps": []}))
    output = GenerationOutput(submitted=101.0, promised_id="trc", running=Scripted([[token(), finish(of)]]))  # type: ignore[arg-type]
    return generation(output, process={"traces": writer}, asked=asked), output


@pytest.mark.parametrize("shown", ["none", "steps"])
@pytest.mark.parametrize("is_slow", [False, True])
def test_a_reply_waits_for_its_trace_unless_the_database_is_slow_and_nobody_asked(shown: str, is_slow: bool) -> None:
    writer = Writer(is_slow=is_slow)
    running, output = traced(writer, shown_trace=shown)
    writer.written.set_result("trc")
    asyncio.run(read(running))
    assert output.trace_id == (None if is_slow and shown == "none" else "trc")
    assert writer.puts[0]["trace_id"] == "trc"
    assert writer.puts[0]["to_first_token"] > 0


def test_an_output_without_a_promised_trace_keeps_none() -> None:
    writer = Writer()
    running, output = traced(writer)
    output.promised_id = None
    asyncio.run(read(running))
    assert writer.puts == []
    assert output.trace_id is None


def test_a_trace_that_fails_after_its_reply_has_gone_leaves_no_error_that_nobody_reads(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(generations, "SLOW_SECONDS", 0.0)
    writer, unread = Writer(), list[Any]()
    running, output = traced(writer)

    async def follow() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unread.append(context))
        await read(running)
        writer.written.set_exception(OutputError("the disk is full"))
        for _ in range(5):
            await asyncio.sleep(0)
        writer.written = Future()  # the one before is told of when nothing refers to it any more
        gc.collect()

    asyncio.run(follow())
    assert output.trace_id is None
    assert "the database is slow" in caplog.text
    assert not unread


def test_a_template_is_the_system_messages_alone() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "private"},
        {"role": "developer", "content": "In French."},
    ]
    asked: Any = SimpleNamespace(messages=messages)
    assert system_text(asked) == "Be brief.\nIn French."
    asked.messages = messages[1:2]
    assert system_text(asked) is None
    asked.messages = None
    assert system_text(asked) is None
