"""Metrics: vLLM's names, our names, and several workers read together."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

pytest.importorskip("prometheus_client", reason="the extra [server] is not installed")

import prometheus_client as prometheus
from prometheus_client.parser import text_string_to_metric_families

import espalier
from espalier import JsonSchema
from espalier.engines.base import Load
from espalier.server.observe.metrics import PrometheusMeter, observe_all, up_to
from espalier.server.ports import Finish

NAMES = {
    "num_requests_running",
    "num_requests_waiting",
    "kv_cache_usage_perc",
    "prompt_tokens_total",
    "generation_tokens_total",
    "request_success_total",
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_params_max_tokens",
    "request_params_n",
}


def meter_of(load: Load | None = None, **more) -> PrometheusMeter:
    return PrometheusMeter(model="m", load=lambda: load or Load(), queue_size=7, **more)


def read(meter: PrometheusMeter) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """(name, labels but for model and engine) -> value."""
    found = {}
    for family in text_string_to_metric_families(meter.text().decode()):
        for sample in family.samples:
            labels = {k: v for k, v in sample.labels.items() if k not in ("model_name", "engine")}
            found[sample.name, tuple(sorted(labels.items()))] = sample.value
    return found


def finish_of(result=None, **more) -> Finish:
    usual = {"route": "/x", "model": "m", "error": None, "constraint": None, "streamed": False}
    usual |= {"queued": 0.1, "to_first_token": 0.5, "total": 2.5}
    return Finish(result=result, **{**usual, **more})


@pytest.fixture(scope="module")
def results():
    with espalier.load("fake") as engine:
        schema = JsonSchema(schema={"type": "object", "properties": {"a": {"type": "integer"}}})
        return engine.generate(["hi", "ho"], constraint=schema, temperature=0, trace="full")


def test_every_name_is_there_under_both_prefixes_before_anything_was_asked():
    families = {f.name for f in text_string_to_metric_families(meter_of().text().decode())}
    for prefix in ("vllm", "espalier"):
        assert {f"{prefix}:{name.removesuffix('_total')}" for name in NAMES} <= families
    found = read(meter_of())
    assert found["vllm:request_success_total", (("finished_reason", "stop"),)] == 0
    assert found["espalier:request_success_total", (("finished_reason", "tool_calls"),)] == 0
    assert not any(name.endswith("_created") for name, _ in found)


def test_labels_are_those_of_vllm():
    text = meter_of().text().decode()
    assert 'vllm:num_requests_running{engine="0",model_name="m"} 0.0' in text


def test_gauges_are_read_at_the_scrape_and_the_cache_is_a_share():
    load = Load(running=1, waiting=2, tokens_held=30, capacity=120, reused=5)
    meter = PrometheusMeter(model="m", load=lambda: load, queue_size=7)
    load = Load(running=3, waiting=4, tokens_held=60, capacity=120, reused=9)
    found = read(meter)
    for prefix in ("vllm", "espalier"):
        assert found[f"{prefix}:num_requests_running", ()] == 3
        assert found[f"{prefix}:num_requests_waiting", ()] == 4
        assert found[f"{prefix}:kv_cache_usage_perc", ()] == 0.5
    assert found["espalier:prefix_reused_tokens_total", ()] == 9
    assert found["espalier:queue_size", ()] == 7
    assert read(meter)["espalier:prefix_reused_tokens_total", ()] == 9


def test_what_an_output_took_is_counted(results):
    meter = meter_of()
    result = results[0]
    meter.started(route="/x", max_tokens=64, outputs=2)
    meter.finished(finish_of(result, constraint="json_schema"))
    found = read(meter)
    tokens = result.usage.completion_tokens
    for prefix in ("vllm", "espalier"):
        assert found[f"{prefix}:prompt_tokens_total", ()] == result.usage.prompt_tokens
        assert found[f"{prefix}:generation_tokens_total", ()] == tokens
        assert found[f"{prefix}:request_success_total", (("finished_reason", "stop"),)] == 1
        sums = {name: found[f"{prefix}:{name}_sum", ()] for name in NAMES if name.endswith("_seconds")}
        assert sums == pytest.approx(
            {
                "time_to_first_token_seconds": 0.5,
                "inter_token_latency_seconds": 2.0,
                "time_per_output_token_seconds": 2.0,
                "e2e_request_latency_seconds": 2.5,
                "request_queue_time_seconds": 0.1,
                "request_prefill_time_seconds": 0.4,
                "request_decode_time_seconds": 2.0,
            }
        )
        assert found[f"{prefix}:inter_token_latency_seconds_count", ()] == tokens - 1
        assert found[f"{prefix}:request_params_max_tokens_sum", ()] == 64
        assert found[f"{prefix}:request_params_n_sum", ()] == 2


def test_gaps_that_were_measured_are_taken_as_they_are(results):
    meter = meter_of()
    meter.finished(finish_of(results[0], gaps=(0.25, 0.75)))
    found = read(meter)
    assert found["vllm:inter_token_latency_seconds_count", ()] == 2
    assert found["vllm:inter_token_latency_seconds_sum", ()] == 1.0


def test_what_the_constraint_did_is_counted_from_the_trace(results):
    meter = meter_of()
    for result in results:
        meter.finished(finish_of(result, constraint="json_schema"))
    found = read(meter)
    label = (("constraint", "json_schema"),)
    steps = [step for result in results for step in result.trace.steps]
    assert found["espalier:removed_mass_count", label] == len(steps)
    assert found["espalier:removed_mass_sum", label] == pytest.approx(sum(s.removed_mass for s in steps))
    assert found["espalier:tax_nats_count", label] == 2
    assert found["espalier:tax_nats_sum", label] == pytest.approx(sum(r.trace.total_tax_nats for r in results))
    wanted = sum(r.trace.changed_steps for r in results)
    assert wanted > 0
    assert found["espalier:rejected_tokens_total", (("constraint", "json_schema"), ("kind", "top_choice"))] == wanted
    assert ("espalier:invalid_outputs_total", label) not in found


def test_invalid_failed_and_cancelled_outputs_are_told_apart():
    meter = meter_of()
    cut = SimpleNamespace(
        finish_reason="length",
        usage=SimpleNamespace(prompt_tokens=1, completion_tokens=1),
        trace=None,
        verdict=SimpleNamespace(valid=False),
        mask_seconds=None,
        others=(),
        drafting=None,
        breaches=(),
    )
    meter.finished(finish_of(cut, constraint="regex"))
    meter.finished(finish_of(None, error="cancelled"))
    meter.finished(finish_of(None, error="bad_logits"))
    found = read(meter)
    reasons = {labels[0][1]: v for (name, labels), v in found.items() if name == "vllm:request_success_total" and v}
    assert reasons == {"length": 1, "abort": 1, "error": 1}
    assert found["espalier:invalid_outputs_total", (("constraint", "regex"),)] == 1
    assert found["vllm:inter_token_latency_seconds_count", ()] == 0


def test_answers_refusals_and_compiling_are_counted():
    meter = meter_of()
    meter.answered(route="/v1/models", status=401)
    meter.refused(route="/v1/chat/completions", code="overloaded")
    meter.compiled(constraint="regex", seconds=0.02)
    found = read(meter)
    assert found["espalier:http_responses_total", (("code", "401"), ("route", "/v1/models"))] == 1
    assert found["espalier:refused_requests_total", (("error", "overloaded"), ("route", "/v1/chat/completions"))] == 1
    assert found["espalier:constraint_compile_seconds_sum", (("constraint", "regex"),)] == 0.02


def test_a_clock_that_stands_still_or_steps_back_raises_nothing(results):
    meter = meter_of()
    meter.finished(finish_of(results[0], queued=1.0, to_first_token=0.5, total=0.0))
    assert read(meter)["vllm:request_prefill_time_seconds_sum", ()] == 0


def test_many_at_once_count_as_one_by_one():
    values = [0.0, 0.5, 1.0, 1.0, 1.5, 2.0, 99.0, -1.0]
    registries = [prometheus.CollectorRegistry() for _ in range(2)]
    plain, fast = (prometheus.Histogram("x", "x", buckets=(0.5, 1, 2), registry=registry) for registry in registries)
    for value in values:
        plain.observe(max(0.0, value))
    observe_all([fast], values)
    observe_all([fast], [])
    texts = [
        [line for line in prometheus.generate_latest(registry).decode().splitlines() if "_created" not in line]
        for registry in registries
    ]
    assert texts[0] == texts[1]
    assert 'x_bucket{le="1.0"} 5.0' in texts[1]


def test_each_app_has_its_own():
    one, two = meter_of(), meter_of()
    one.compiled(constraint="regex", seconds=1.0)
    assert ("espalier:constraint_compile_seconds_sum", (("constraint", "regex"),)) not in read(two)
    assert b"espalier:" not in prometheus.generate_latest()


def test_buckets_of_sizes_end_at_the_context():
    assert up_to(100) == (1, 2, 5, 10, 20, 50, 100)
    assert up_to(64) == (1, 2, 5, 10, 20, 50)


WORKER = """
import os, sys
from espalier.engines.base import Load
from espalier.server.observe.metrics import make_meter
running, mode = int(sys.argv[1]), sys.argv[2]
load = Load(running=running, waiting=1, tokens_held=running, capacity=10, reused=running)
meter = make_meter(model="m", load=lambda: load, queue_size=4)
meter.compiled(constraint="regex", seconds=1.0)
meter.answered(route="/x", status=200)
if mode == "wait":
    print("ready", flush=True)
    sys.stdin.read()
else:
    sys.stdout.write(meter.text().decode())
meter.close()
"""


@pytest.mark.slow
def test_workers_are_read_together_and_dead_ones_count_no_longer_as_running(tmp_path):
    source = os.path.dirname(os.path.dirname(espalier.__file__))
    env = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path), "PYTHONPATH": source}

    def start(running: int, mode: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", WORKER, str(running), mode],
            env=env,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    for name in ("counter", "gauge_livesum"):  # of a worker that has just begun
        (tmp_path / f"{name}_{os.getpid()}.db").touch()
    other = start(5, "wait")
    assert other.stdout.readline() == "ready\n"
    together, _ = start(2, "show").communicate(timeout=60)
    other.communicate(timeout=60)
    alone, _ = start(2, "show").communicate(timeout=60)

    def value(text: str, name: str) -> float:
        return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))

    assert value(together, "vllm:num_requests_running") == 7
    assert value(together, "vllm:num_requests_waiting") == 2
    assert value(together, "espalier:queue_size") == 8
    assert value(together, "vllm:kv_cache_usage_perc") == 0.5
    assert value(together, "espalier:prefix_reused_tokens_total") == 7
    assert value(together, "espalier:http_responses_total") == 2
    assert value(alone, "vllm:num_requests_running") == 2
    assert value(alone, "espalier:http_responses_total") == 3
    assert value(alone, "espalier:constraint_compile_seconds_count") == 3


def test_the_time_of_masks_is_counted_by_constraint(results):
    meter = meter_of()
    timed = replace(results[0], mask_seconds=0.5)
    meter.finished(finish_of(timed, constraint="json_schema"))
    meter.finished(finish_of(replace(timed, mask_seconds=None), constraint="json_schema"))
    found = read(meter)
    assert found["espalier:mask_seconds_count", (("constraint", "json_schema"),)] == 1
    mean = found["espalier:mask_seconds_sum", (("constraint", "json_schema"),)]
    assert mean == pytest.approx(0.5 / len(timed.token_ids))
