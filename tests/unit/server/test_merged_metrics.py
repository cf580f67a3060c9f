"""Metrics of several replicas as one body: parsed by Prometheus' own parser, each sample is one of a replica's."""

from __future__ import annotations

from collections import Counter as Counts
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client", reason="the extra [server] is not installed")

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from espalier.server.apps import create_app
from espalier.server.observe.merged import merged
from espalier.server.ports import ReplicaMetrics
from espalier.server.settings import settings_of
from tests.examples import examples
from tests.server_app import fake_engine

VALUES = st.text('ab{}\\" \n,=\u2028é', max_size=6)


def samples(text: bytes) -> list[tuple[str, str, frozenset[tuple[str, str]], float]]:
    """Family, name, labels, value."""
    return [
        (family.name, one.name, frozenset(one.labels.items()), one.value)
        for family in text_string_to_metric_families(text.decode())
        for one in family.samples
    ]


def exposed(counts: dict[str, int], gauge: float, times: list[float]) -> bytes:
    registry = CollectorRegistry()
    counter = Counter("espalier:c", 'A "counter".', ("which",), registry=registry)
    for which, count in counts.items():
        counter.labels(which).inc(count)
    Gauge("vllm:g", "A gauge {of} one.", registry=registry).set(gauge)
    histogram = Histogram("espalier:h", "Times.", buckets=(1, 2), registry=registry)
    for one in times:
        histogram.observe(one)
    return generate_latest(registry)


BODIES = st.builds(
    exposed, st.dictionaries(VALUES, st.integers(0, 9), max_size=3), st.floats(0, 9), st.lists(st.floats(0, 3))
)


@given(st.dictionaries(st.text('ab"\\\n#{} ', min_size=1, max_size=4), BODIES, max_size=3), st.integers(0, 2))
@settings(max_examples=examples(60), deadline=None)
def test_each_sample_of_each_replica_is_there_once_with_its_name(texts: dict[str, bytes], lost: int) -> None:
    found = samples(merged(ReplicaMetrics(texts=texts, lost=lost)))
    expected = [
        (family, name, labels | {("replica", replica)}, value)
        for replica, text in texts.items()
        for family, name, labels, value in samples(text)
    ]
    own = "espalier:replicas"
    expected += [
        (own, own, frozenset({("state", state)}), value) for state, value in (("answered", len(texts)), ("lost", lost))
    ]
    assert Counts(found) == Counts(expected)


def test_a_family_is_described_once() -> None:
    text = merged(ReplicaMetrics(texts={name: exposed({"x": 1}, 1, []) for name in "abc"})).decode()
    assert text.count("# TYPE espalier:c_total counter") == 1
    assert text.index('vllm:g{replica="c"}') < text.index("# HELP espalier:h")


def test_metrics_of_a_replica_are_those_of_all(tmp_path: Path) -> None:
    class Two:
        async def metrics(self) -> ReplicaMetrics:
            return ReplicaMetrics(texts={"r1": exposed({"x": 1}, 0, []), "r2": exposed({"x": 2}, 0, [])}, lost=1)

    config = settings_of({"DATABASE_URL": f"sqlite:///{tmp_path}/e.db"})
    with TestClient(create_app(config, engine=fake_engine(), replicas=Two())) as client:
        found = samples(client.get("/metrics").content)
    counted = {dict(labels)["replica"]: value for _, name, labels, value in found if name == "espalier:c_total"}
    assert counted == {"r1": 1, "r2": 2}
    # What the shared database says has no replica: any of them would say the same.
    assert all("replica" not in dict(labels) for family, _, labels, _ in found if family == "espalier:batch_items")
