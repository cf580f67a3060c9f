"""What one replica asks all others: their metrics, through the handle of their deployment."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from espalier.server.ports import ReplicaMetrics

METHOD = "own_metrics"
"""The deployment's method that returns the name of the replica and the text of its metrics."""
SECONDS = 5.0
"""Prometheus waits for ten."""
log = logging.getLogger(__name__)


class Siblings:
    """The replicas of this deployment, this one among them. Made inside a replica. own: what METHOD answers here."""

    def __init__(self, own: Callable[[], Awaitable[tuple[str, bytes]]]) -> None:
        self._own = own
        self._handle: Any = None

    async def metrics(self) -> ReplicaMetrics:
        """Where one of them is silent for SECONDS, this one's alone, and a line in the log."""
        context = serve.get_replica_context()
        try:
            if self._handle is None:
                self._handle = serve.get_deployment_handle(context.deployment, context.app_name)
            asked = self._handle.broadcast(METHOD)
            replies = await asked.results_async(timeout_s=SECONDS, return_exceptions=True)
        except (TimeoutError, RuntimeError, RayError, RayServeException) as error:
            log.warning("the metrics of the other replicas could not be had: %s", error)
            return ReplicaMetrics(texts=dict([await self._own()]), lost=max(1, context.world_size - 1))
        texts = dict(reply for reply in replies if not isinstance(reply, BaseException))
        for answer in replies:
            if isinstance(answer, BaseException):
                log.warning("a replica did not tell its metrics: %s", answer)
        return ReplicaMetrics(texts=dict(sorted(texts.items())), lost=len(replies) - len(texts))
