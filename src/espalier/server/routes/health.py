"""`GET /health`, `/ready`, `/version` and `/metrics`. They generate nothing, and reply while the model is loading.

The first three are public, as orchestrators need them; `/metrics` needs a key that may read it, unless
METRICS_PUBLIC=true.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from espalier.errors import Forbidden, Unavailable
from espalier.server.observe.batch_items import batch_metrics
from espalier.server.observe.merged import merged
from espalier.server.observe.metrics import CONTENT_TYPE
from espalier.server.process.deps import cheap_caller_of, count_public, process_of
from espalier.server.process.state import Process
from espalier.version import __version__

router = APIRouter(tags=["health"])
LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
"""llama-server's body, unchanged."""
OK = {"status": "ok"}
MODULES = {"llama_model": "llamacpp"}
"""Engine names of modules that have another name."""


@router.head("/health", include_in_schema=False)
@router.get(
    "/health",
    summary="Whether the server is alive",
    responses={
        503: {"description": "The model is still loading.", "content": {"application/json": {"example": LOADING}}}
    },
)
async def health(request: Request) -> Response:
    """llama-server's reply: 200 `{"status": "ok"}`, or 503 while the model is loading."""
    return JSONResponse(OK) if _find_process(request) is not None else JSONResponse(LOADING, status_code=503)


@router.head("/ready", include_in_schema=False)
@router.get(
    "/ready",
    summary="Whether the server takes requests",
    responses={503: {"description": "Loading, closing, or full.", "content": {"application/json": {}}}},
)
async def ready(request: Request) -> Response:
    """200 if a request would be taken now. 503 while loading or closing, while the queue is full, and until the word
    lists of PREBUILD_LANGS are compiled; lists that failed to compile are named."""
    process = _find_process(request)
    if process is None:
        return JSONResponse(LOADING, status_code=503)
    load = process.scheduler.load()
    state = (
        "closing" if is_closing(request) else "full" if load.waiting >= max(1, process.settings.queue_size) else "ok"
    )
    body: dict[str, Any] = {"status": state, "running": load.running, "waiting": load.waiting}
    if process.prebuild is not None:
        body["prebuild"] = process.prebuild.to_json()
        if state == "ok" and not process.prebuild.is_done:
            body["status"] = state = "prebuilding"
    return JSONResponse(body, status_code=200 if state == "ok" else 503)


@router.get("/version", summary="Versions of server and model")
async def version(request: Request) -> dict[str, Any]:
    """vLLM's field `version`, and the names of the engine and the model."""
    count_public(request)
    process = _find_process(request)
    if process is None:
        return {"version": __version__, "engine": None, "model": None}
    engine = process.engine.engine
    module = type(getattr(engine, "model", engine)).__module__.rpartition(".")[2]
    name = process.engine.kind or module if module == "engine" else MODULES.get(module, module)
    return {"version": __version__, "engine": name, "model": process.names[0]}


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {}}},
        401: {"description": "A key is required."},
        403: {"description": "This key may not read them."},
        503: {"description": "The model is still loading."},
    },
)
async def metrics(request: Request) -> Response:
    """Metrics in Prometheus' text format 0.0.4; on a cluster those of all replicas, with the label `replica`."""
    process = process_of(request)
    if process.settings.metrics_public:
        count_public(request)
    elif not cheap_caller_of(request).may_read_metrics:
        raise Forbidden("this key may not read the metrics", hint="may_read_metrics = true in the key file")

    gathered = None if process.replicas is None else await process.replicas.metrics()

    def text() -> bytes:
        own = process.meter.text() if gathered is None else merged(gathered)
        return own + (b"" if process.batches is None else batch_metrics(process.batches))

    # In a thread, since files are read with several workers; one at a time, however many ask.
    return Response(await process.pools.replies.run(text, owner=""), headers={"content-type": CONTENT_TYPE})


def _find_process(request: Request) -> Process | None:
    """None until the model is loaded."""
    try:
        return process_of(request)
    except Unavailable:
        return None


def is_closing(request: Request) -> bool:
    """Whether the server is shutting down."""
    return bool(getattr(request.app.state, "closing", False))
