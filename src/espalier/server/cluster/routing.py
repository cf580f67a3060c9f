"""Which replica a proxy asks: one with few requests, or, for requests of one session, always the same.

Ray Serve's router that compares prompts (`ray.serve.llm.request_router.PrefixCacheAffinityRouter`) reads them from the
arguments of a call. A proxy hands an ASGI application the head of a request and streams the body behind it, so no
router sees the prompt here. What it sees is the session that a client names in a header (`x-session-id`; Ray's variable
RAY_SERVE_SESSION_ID_HEADER_KEY says another): requests of one session meet the prefixes that the replica has kept.
"""

from __future__ import annotations

from espalier.server.cluster.sessions import ranked

try:
    import ray.serve  # noqa: F401  # first: its parts import one another
    from ray.serve._private.request_router.pow_2_router import PowerOfTwoChoicesRequestRouter  # Ray's own default
    from ray.serve.request_router import PendingRequest, RunningReplica
except ModuleNotFoundError as error:
    from espalier.errors import MissingDependency

    raise MissingDependency(error.name or "ray", extra="ray") from error


class SessionRouter(PowerOfTwoChoicesRequestRouter):
    """Ray's own router for requests without a session."""

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        session = "" if pending_request is None else pending_request.metadata.session_id
        if not session:
            found: list[list[RunningReplica]] = await super().choose_replicas(candidate_replicas, pending_request)
            return found
        by_name = {one.replica_id.unique_id: one for one in candidate_replicas}
        # The second is asked where the first is full, and so on.
        return [[by_name[name]] for name in ranked(session, by_name)]
