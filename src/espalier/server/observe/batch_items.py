"""The metric `espalier:batch_items`, read from the database at a scrape: all workers of a database share its items."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from espalier.errors import EspalierError
from espalier.store.batches.open import BatchStore

log = logging.getLogger(__name__)


class BatchItems(Collector):
    """Items of the batches that have not ended, by state."""

    def __init__(self, store: BatchStore) -> None:
        self._store = store

    def describe(self) -> list[Metric]:
        return []  # so that registering it asks no database

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "espalier:batch_items",
            "Items of the batches that have not ended, by state, in the whole database.",
            labels=["state"],
        )
        for state, count in self._store.batches.open_items().items():
            family.add_metric([str(state)], count)
        yield family


def batch_metrics(store: BatchStore) -> bytes:
    """Lines for the body of `/metrics`; none, and a line in the log, while the database does not answer. Blocks."""
    registry = CollectorRegistry()
    registry.register(BatchItems(store))
    try:
        return generate_latest(registry)
    except EspalierError as error:
        log.warning("the items of batches could not be counted: %s", error)
        return b""
