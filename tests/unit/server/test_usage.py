"""What outputs of several prompts count: a prompt once, however many outputs it has; every output its own tokens."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.engines.base import Usage
from espalier.server.answering import counts
from espalier.server.answering.counts import StreamTimings, predicted, timings, timings_of, usage
from espalier.server.batching.executor import _answer
from espalier.server.observe import logs
from espalier.server.process import opening
from tests.server_app import client, settings


def output(prompt: int, completion: int, *, cached: int = 0, reasoning: int = 0, others: Any = ()) -> Any:
    """A Result, as far as counting looks at it."""
    tokens = Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, reasoning_tokens=reasoning)
    return SimpleNamespace(usage=tokens, others=others, reasoning=None)


RESULTS = [output(5, 1, cached=2), output(5, 10, cached=4), output(7, 100, cached=1), output(7, 1000, cached=6)]
"""Two prompts with two outputs each."""


def test_a_prompt_counts_once_and_with_its_first_output() -> None:
    assert usage(RESULTS, 2) == {
        "prompt_tokens": 12,
        "completion_tokens": 1111,
        "total_tokens": 1123,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert usage(RESULTS, 4)["prompt_tokens"] == 5
    assert usage(RESULTS, 1)["prompt_tokens"] == 24


def test_every_beam_counts_and_reasoning_is_told_where_there_is_some() -> None:
    beams = output(5, 1, others=(output(5, 20), output(5, 300, reasoning=7)))
    assert usage([beams], 1)["completion_tokens"] == 321
    assert usage([beams], 1)["prompt_tokens"] == 5
    assert usage([beams], 1)["completion_tokens_details"] == {"reasoning_tokens": 7}
    assert "completion_tokens_details" not in usage([output(5, 1)], 1)
    said = output(5, 1)
    said.reasoning = ""
    assert usage([said], 1)["completion_tokens_details"] == {"reasoning_tokens": 0}


def ended(result: Any, first: float | None, last: float) -> Any:
    return SimpleNamespace(result=result, first=first, last=last)


def test_timings_are_from_the_first_token_of_any_output_to_the_last_of_all() -> None:
    moments = [(12.0, 15.0), (11.0, 13.0), (None, 19.0), (14.0, 21.0)]
    outputs = [ended(result, *moment) for result, moment in zip(RESULTS, moments, strict=True)]
    told = timings_of(outputs, began=10.0, n=2)
    assert (told["cache_n"], told["prompt_n"], told["predicted_n"]) == (3, 9, 1111)
    assert (told["prompt_ms"], told["predicted_ms"]) == (1000.0, 10_000.0)
    assert told["prompt_per_token_ms"] == pytest.approx(1000 / 9)
    assert told["prompt_per_second"] == pytest.approx(9.0)
    assert told["predicted_per_token_ms"] == pytest.approx(10_000 / 1111)
    assert told["predicted_per_second"] == pytest.approx(111.1)


def test_timings_of_beams_count_all_of_them() -> None:
    beams = ended(output(5, 1, others=(output(5, 20),)), 11.0, 12.0)
    assert timings_of([beams, ended(None, None, 13.0)], began=10.0)["predicted_n"] == 21


def test_timings_of_nothing_divide_by_nothing() -> None:
    nothing = timings(Usage(prompt_tokens=4, completion_tokens=0, cached_tokens=4), began=3.0, first=None, last=3.0)
    assert nothing == {
        "cache_n": 4,
        "prompt_n": 0,
        "prompt_ms": 0.0,
        "prompt_per_token_ms": 0.0,
        "prompt_per_second": 0.0,
        **predicted(0, first=None, last=3.0),
    }
    assert set(predicted(0, first=None, last=3.0).values()) == {0}
    assert timings(Usage(prompt_tokens=4, completion_tokens=0), began=3.0, first=None, last=5.0)["prompt_ms"] == 2000.0
    assert predicted(3, first=5.0, last=4.0)["predicted_ms"] == 0.0, "no time is negative"


def test_a_stream_says_how_far_an_output_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([11.0, 12.0, 14.0])
    monkeypatch.setattr(counts.time, "monotonic", lambda: next(now))
    stream = StreamTimings(began=10.0)
    assert stream.so_far(0) == predicted(0, first=None, last=10.0)
    for _ in range(3):
        stream.count(0, SimpleNamespace(prompt_tokens=None, cached_tokens=None))  # type: ignore[arg-type]
    assert stream.so_far(0) == predicted(3, first=11.0, last=14.0)
    assert stream.so_far(1)["predicted_n"] == 0
    whole = Usage(prompt_tokens=6, completion_tokens=3, cached_tokens=2)
    assert stream.so_far(0, whole) == timings(whole, began=10.0, first=11.0, last=14.0)


def test_speeds_of_less_than_a_millisecond_are_told_and_those_of_no_time_are_0() -> None:
    counted = Usage(prompt_tokens=6, completion_tokens=3, cached_tokens=2)
    quick = timings(counted, began=0.0, first=0.0005, last=0.00075)
    assert (quick["prompt_per_second"], quick["predicted_per_second"]) == pytest.approx((8_000, 12_000))
    at_once = timings(counted, began=10.0, first=10.0, last=10.0)
    assert (at_once["prompt_per_second"], at_once["predicted_per_second"]) == (0.0, 0.0)


@pytest.mark.parametrize(("cached", "told"), [(2, 2), (None, 0)])
def test_a_stream_says_what_the_prompt_took_where_the_engine_knows(cached: int | None, told: int) -> None:
    stream = StreamTimings(began=10.0)
    stream.count(1, SimpleNamespace(prompt_tokens=6, cached_tokens=cached))  # type: ignore[arg-type]
    assert stream.so_far(1)["cache_n"] == told
    assert stream.so_far(1)["prompt_n"] == 6 - told
    assert stream.so_far(1)["predicted_n"] == 1


class Spans:
    """Notes what a span is told at the end."""

    is_recording = True

    def __init__(self) -> None:
        self.finishes: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def request(self, **_: Any) -> Iterator[Spans]:
        yield self

    def parameters(self, **_: Any) -> None: ...

    def first_token(self, ago: float = 0.0) -> None: ...

    def failed(self, *_: Any, **__: Any) -> None: ...

    def constrained(self, *_: Any) -> None: ...

    def finished(self, **values: Any) -> None:
        self.finishes.append(values)

    def close(self) -> None: ...


def test_a_reply_its_span_and_its_log_line_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two prompts of three outputs each."""
    spans, lines = Spans(), list[dict[str, Any]]()
    add_fields = logs.add_fields
    monkeypatch.setattr(logs, "add_fields", lambda *args, **fields: (lines.append(fields), add_fields(*args, **fields)))
    body = {"max_tokens": 4, "temperature": 0}
    monkeypatch.setattr(opening.telemetry, "make_spans", lambda **_: spans)
    with client(config=settings()) as http:
        single = [
            http.post("/v1/completions", json={**body, "prompt": prompt}).json()["usage"]["prompt_tokens"]
            for prompt in ("a", "a longer prompt")
        ]
        spans.finishes.clear()
        many = {**body, "prompt": ["a", "a longer prompt"], "n": 3, "temperature": 1}
        reply = http.post("/v1/completions", json=many).json()
    assert single[0] != single[1]
    assert len(reply["choices"]) == 6
    assert reply["usage"]["prompt_tokens"] == sum(single)
    assert [finish["input_tokens"] for finish in spans.finishes] == [sum(single)]
    assert [finish["output_tokens"] for finish in spans.finishes] == [reply["usage"]["completion_tokens"]]
    assert len(spans.finishes[0]["finish_reasons"]) == 6
    told = [fields for fields in lines if "prompt_tokens" in fields]
    assert told[-1]["prompt_tokens"] == sum(single)
    assert told[-1]["completion_tokens"] == reply["usage"]["completion_tokens"]
    assert reply["timings"]["prompt_n"] + reply["timings"]["cache_n"] == sum(single)


def test_an_item_of_a_batch_counts_its_prompt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("espalier.server.batching.executor.figures_of", lambda outputs: None)
    monkeypatch.setattr("espalier.server.batching.executor.valid_of", lambda outputs: True)
    running: Any = SimpleNamespace(
        asked=SimpleNamespace(lines=["narrowed"], n=2, model="m"),
        told=["more"],
        outputs=[SimpleNamespace(result=result, trace_id=None) for result in RESULTS]
        + [SimpleNamespace(result=None, trace_id="trc_1")],
    )
    answer = _answer(b'{"espalier": {"a": 1}}', running, "req", is_told=True)
    assert (answer.prompt_tokens, answer.completion_tokens, answer.trace_id) == (12, 1111, "trc_1")
    assert answer.body == {"espalier": {"a": 1, "warnings": ["narrowed", "more"]}}
    assert json.loads(json.dumps(_answer(b"{}", running, "req", is_told=False).body)) == {}
