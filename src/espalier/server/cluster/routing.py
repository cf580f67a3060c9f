"""Which replica a proxy asks: for requests of one session always the same, for a prompt whose beginning a replica has
answered that one, otherwise one with few requests.

What a proxy sees is the head of a request: the session that a client names in a header (`x-session-id`; Ray's variable
RAY_SERVE_SESSION_ID_HEADER_KEY says another), or the digests of the prompt that the edge puts in its place
(`prefixes.py`).
"""

from __future__ import annotations

from typing import Any

from espalier.optional import optional_imports
from espalier.server.cluster.prefixes import SLACK, Prefixes, read_marks
from espalier.server.cluster.sessions import ranked

with optional_imports("ray"):
    import ray.serve  # noqa: F401  # first: its parts import one another
    from ray.serve._private.replica_result import ReplicaResult
    from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter  # Ray's own default
    from ray.serve.request_router import (
        LocalityMixin,
        MultiplexMixin,
        PendingRequest,
        ReplicaID,
        RequestRouter,
        RunningReplica,
    )


POWER_OF_TWO: Any = PowerOfTwoChoicesRequestRouter.choose_replicas
"""Ray's own choice, a method that its prefix router borrows in the same way."""


class EspalierRouter(LocalityMixin, MultiplexMixin, RequestRouter):
    """Ray's own choice for requests with neither. Not a subclass of Ray's default router: that one is FIFO, and gives
    the replica that was chosen for one request to another that has waited longer."""

    def initialize_state(self, **kwargs: object) -> None:
        self._prefixes = Prefixes()

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        session = "" if pending_request is None else pending_request.metadata.session_id
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        digests = read_marks(session)
        if session and digests is None:
            # The second is asked where the first is full, and so on.
            return [[by_name[name]] for name in ranked(session, by_name)]
        power_of_two: list[list[RunningReplica]] = await POWER_OF_TWO(self, candidate_replicas, pending_request)
        if digests and (kept := self._best([by_name[holder] for holder in self._prefixes.holders(digests, by_name)])):
            return [[kept], *power_of_two]
        return power_of_two

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: ReplicaResult) -> None:
        if digests := read_marks(pending_request.metadata.session_id):
            self._prefixes.keep(digests, replica_id.unique_id)

    def _best(self, holders: list[RunningReplica]) -> RunningReplica | None:
        """The idlest of them; None where another replica has much less to do."""
        if not holders:
            return None
        best = min(holders, key=self._ongoing)
        idlest = min(self._ongoing(replica) for replica in self.curr_replicas.values())
        return best if self._ongoing(best) - idlest < SLACK else None

    def _ongoing(self, replica: RunningReplica) -> int:
        """Requests that it has, as far as this proxy knows."""
        return self.replica_queue_len_cache.get(replica.replica_id) or 0
