"""The dashboard for Grafana in `deploy/`: each query asks for metrics and labels that a server has."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prometheus_client", reason="the extra [server] is not installed")

from espalier.engines.base import Load
from espalier.server.observe.metrics import PrometheusMeter

DASHBOARD = json.loads((Path(__file__).parents[3] / "deploy" / "grafana" / "espalier.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [(panel["title"], target["expr"], target["legendFormat"]) for panel in PANELS for target in panel["targets"]]
SUFFIXES = ("_bucket", "_sum", "_count", "_total", "")


@pytest.fixture(scope="module")
def labels() -> dict[str, set[str]]:
    """The labels of each metric, by the name that a query has."""
    meter = PrometheusMeter(model="m", load=Load, queue_size=4)
    metrics = {
        name: set(collector._labelnames) | ({"le"} if suffix == "_bucket" else set())
        for collector in set(meter._registry._collector_to_names)
        for suffix in SUFFIXES
        for name in [f"{collector._name}{suffix}"]
        if name in meter._registry._collector_to_names[collector]
    }
    meter.close()
    return metrics


@pytest.mark.parametrize(
    ("title", "query", "legend"), QUERIES, ids=[f"{title}: {legend}" for title, _, legend in QUERIES]
)
def test_a_query_asks_for_metrics_and_labels_that_there_are(
    labels: dict[str, set[str]], title: str, query: str, legend: str
) -> None:
    names = re.findall(r"espalier:\w+", query)
    assert names
    assert set(names) <= labels.keys()
    shared = set.union(*(labels[name] for name in names))
    asked = {label.strip() for found in re.findall(r"by \(([^)]*)\)", query) for label in found.split(",")}
    asked |= set(re.findall(r"[{,] *(\w+) *=~?", query)) | set(re.findall(r"{{(\w+)}}", legend))
    assert asked <= shared, title
    assert query.count("(") == query.count(")")
    assert query.count("{") == query.count("}")


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_every_panel_asks_the_chosen_data_source_and_says_its_unit() -> None:
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {"datasource", "model"}
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)
