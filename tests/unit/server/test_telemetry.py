"""Spans: the gen_ai attributes, the caller's trace, and no prompt or answer."""

from __future__ import annotations

import builtins

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra [otel] is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from espalier.errors import DeadEnd, MissingDependency
from espalier.server.observe import telemetry
from espalier.server.observe.telemetry import NoSpans, TracedSpans, make_spans

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter():
    return InMemorySpanExporter()


@pytest.fixture
def spans(exporter):
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    ticks = iter(range(100))
    made = TracedSpans(provider, clock=lambda: float(next(ticks)))
    yield made
    made.close()


def test_a_request_is_one_span_with_the_names_of_gen_ai(spans, exporter):
    with spans.request(operation="chat", model="m", headers={}, request_id="req-1") as span:
        span.parameters(max_tokens=64, temperature=0.5, seed=None, constraint="json_schema")
        span.first_token()
        span.first_token()
        span.finished(response_id="chatcmpl-1", input_tokens=3, output_tokens=5, finish_reasons=["stop"])
    (one,) = exporter.get_finished_spans()
    assert one.name == "chat m"
    assert dict(one.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "espalier",
        "gen_ai.request.model": "m",
        "espalier.request_id": "req-1",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.temperature": 0.5,
        "espalier.constraint": "json_schema",
        "gen_ai.server.time_to_first_token": 1.0,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.server.request.duration": 2.0,
    }
    assert one.parent is None


def test_the_callers_trace_is_taken_up_and_a_torn_header_is_not(spans, exporter):
    with spans.request(operation="chat", model="m", headers={"traceparent": PARENT}):
        pass
    with spans.request(operation="chat", model="m", headers={"traceparent": "00-zz"}):
        pass
    taken, new = exporter.get_finished_spans()
    assert f"{taken.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{taken.parent.span_id:016x}" == PARENT.split("-")[2]
    assert new.parent is None


def test_an_error_is_its_code_and_none_of_its_words(spans, exporter):
    with pytest.raises(DeadEnd), spans.request(operation="chat", model="m", headers={}):
        raise DeadEnd("the words of a prompt")
    with pytest.raises(ZeroDivisionError), spans.request(operation="chat", model="m", headers={}):
        raise ZeroDivisionError("the words of a prompt")
    with spans.request(operation="chat", model="m", headers={}) as span:
        span.failed(DeadEnd("the words of a prompt"))
    found = exporter.get_finished_spans()
    assert [one.attributes["error.type"] for one in found] == ["dead_end", "ZeroDivisionError", "dead_end"]
    assert all(one.status.status_code is StatusCode.ERROR for one in found)
    assert "the words" not in "".join(one.to_json() for one in found)


def test_off_it_does_nothing_and_needs_nothing(monkeypatch):
    real = builtins.__import__
    monkeypatch.setattr(
        builtins,
        "__import__",
        lambda name, *more, **given: (
            (_ for _ in ()).throw(ModuleNotFoundError(name=name))
            if name.startswith("opentelemetry")
            else real(name, *more, **given)
        ),
    )
    spans = make_spans(is_on=False)
    assert isinstance(spans, NoSpans)
    with spans.request(operation="chat", model="m", headers={"traceparent": PARENT}) as span:
        span.parameters(max_tokens=1)
        span.first_token()
        span.finished(response_id="x", input_tokens=1, output_tokens=1, finish_reasons=())
    spans.close()
    with pytest.raises(MissingDependency, match=r"pip install .*\[otel\]"):
        make_spans(is_on=True)


def test_an_exporter_that_is_not_there_is_one_line():
    with pytest.raises(MissingDependency, match=r"pip install .*\[otel\]"):
        make_spans(is_on=True, environ={"OTEL_TRACES_EXPORTER": "nobody_has_this_one"})


def test_without_an_exporter_spans_are_made_and_go_nowhere():
    spans = make_spans(is_on=True, environ={"OTEL_TRACES_EXPORTER": "none"})
    assert isinstance(spans, TracedSpans)
    spans.close()


def test_a_span_says_what_the_constraint_cost_and_which_trace_shows_it(spans, exporter, tmp_path, monkeypatch):
    pytest.importorskip("fastapi")
    pytest.importorskip("sqlalchemy")
    from espalier.store.open import open_store
    from tests.server_app import client, settings

    monkeypatch.setattr(telemetry, "make_spans", lambda **_: spans)
    schema = {"title": "Answer", "type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    asked = {"json_schema": {"name": "a", "schema": schema}, "type": "json_schema"}
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40, "temperature": 0}
    store = open_store(f"sqlite:///{tmp_path}/a.db")
    with client('{"word": "hidden"}', config=settings(trace_level="summary"), store=store) as c:
        reply = c.post("/v1/chat/completions", json=body | {"response_format": asked})
        free = c.post("/v1/chat/completions", json=body)
        (row,) = c.get("/traces", params={"request_id": reply.headers["x-request-id"]}).json()["data"]
    store.close()
    assert free.status_code == 200
    told, plain = (dict(span.attributes) for span in exporter.get_finished_spans())
    assert told["espalier.trace_ids"] == (row["id"],) == (reply.headers["x-espalier-trace"],)
    assert told["espalier.constraint.fingerprint"] == row["fingerprint"]
    assert told["espalier.constraint.title"] == "Answer"
    assert told["espalier.verdicts"] == ("valid",)
    assert told["espalier.tax_nats"] == pytest.approx(row["tax_nats"])
    assert "espalier.constraint.fingerprint" not in plain
    assert "hidden" not in str(told)
