"""What constraints cost over time: the list, as JSON for programs and as a page for browsers, and the paths of one.

A caller sees the sums of its own answers only, unless its key is an admin's. `store/costs/` has the sums.
"""

from __future__ import annotations

import json
import time
from functools import cache
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import InputError
from espalier.server.http.errors import NotFound, documented
from espalier.server.http.query import number_of, parameter, query_of
from espalier.server.http.wire import JsonResponse
from espalier.server.ports import Caller, TraceStore
from espalier.server.routes.stored import PRIVATE, from_trace_store, page_reply
from espalier.store.costs.window import DAY, CostWindow
from espalier.trace import costs_page

STATUSES = (400, 401, 404, 429, 500, 503)
USUAL_SECONDS = 7.0 * DAY
WINDOW_PARAMETERS = query_of(
    parameter("since", "Unix seconds; 7 days before `until` if not given.", kind="number"),
    parameter("until", "Unix seconds; now if not given.", kind="number"),
    parameter("model", "Answers of this model alone.", kind="string"),
)
TWO_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The list as JSON; for browsers a page.", "content": {"application/json": {}, "text/html": {}}}
}
router = APIRouter(tags=["traces"])


@router.get("/costs", responses={**TWO_REPLIES, **documented(*STATUSES)}, openapi_extra=WINDOW_PARAMETERS)
async def list_costs(request: Request) -> Response:
    """What each constraint cost the caller's answers, the one with the greatest tax first; free text has no
    fingerprint."""
    if "text/html" in request.headers.get("accept", ""):
        return page_reply(request, *_rendered())
    since, until, model = _window(request)

    def work(store: TraceStore, caller: Caller) -> dict[str, Any]:
        window = CostWindow(since=since, until=until, caller=caller.sees, model=model)
        rows = [row.to_json() for row in store.costs(window)]
        return {"object": "list", "data": rows, "since": since, "until": until}

    return JsonResponse(await from_trace_store(request, work), headers={**PRIVATE, "vary": "accept"})


@router.get("/costs/{fingerprint}", responses=documented(*STATUSES), openapi_extra=WINDOW_PARAMETERS)
async def get_costs(request: Request, fingerprint: str) -> Response:
    """The costs of one constraint by path, the dearest first, and what the model wanted there."""
    since, until, model = _window(request)

    def work(store: TraceStore, caller: Caller) -> dict[str, Any]:
        known = store.cost_constraint(fingerprint, caller=caller.sees)
        if known is None:
            raise NotFound(f"no answer of the constraint {fingerprint[:64]!r} is in the sums")
        window = CostWindow(since=since, until=until, caller=caller.sees, model=model)
        paths = store.cost_paths(window, fingerprint)
        total = sum(path.tax for path in paths)
        spec = known["spec"]
        return {
            "object": "constraint_paths",
            "fingerprint": fingerprint,
            "kind": known["kind"],
            "title": known["title"],
            "constraint": None if spec is None else json.loads(spec),
            "paths": [path.to_json(total) for path in paths],
            "since": since,
            "until": until,
        }

    return JsonResponse(await from_trace_store(request, work), headers=PRIVATE)


def _window(request: Request) -> tuple[float, float, str | None]:
    """`since`, `until` and `model`. Raises InputError for a window that ends before it begins."""
    until = number_of(request, "until")
    until = time.time() if until is None else until
    since = number_of(request, "since")
    since = max(0.0, until - USUAL_SECONDS) if since is None else since
    if since >= until:
        raise InputError("until must be after since", field="until")
    return since, until, request.query_params.get("model") or None


@cache
def _rendered() -> tuple[str, str]:
    """The page and its policy."""
    return costs_page.render()
