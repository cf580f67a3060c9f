"""`GET /v1/models` and `/v1/models/{model}`: the model of this server, under each of its names."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.server.answering.models import write_model, write_models
from espalier.server.asking.assemble import unknown_model
from espalier.server.bodies.replies import Model, ModelList
from espalier.server.http.errors import READING_ERRORS, documented
from espalier.server.http.query import BETA, parameter, query_of
from espalier.server.http.wire import JsonResponse
from espalier.server.process.deps import cheap_caller_of, process_of
from espalier.server.routes.wordlist_server import wordlist_models

PAGE_PARAMETERS = (
    *(parameter(name, "Has no effect: the list is one page.") for name in ("limit", "after_id", "before_id", "reload")),
    BETA,
)
router = APIRouter(tags=["openai"], responses=documented(*READING_ERRORS))


@router.get("/v1/models", responses={200: {"model": ModelList}}, openapi_extra=query_of(*PAGE_PARAMETERS))
async def list_models(request: Request) -> Response:
    """The model names that a request may use, with the model's context and what it can do."""
    process, caller = process_of(request), cheap_caller_of(request)
    if process.settings.wordlist_server_compat:
        return JsonResponse(wordlist_models(process))
    return JsonResponse(await process.pools.replies.run(lambda: write_models(process), owner=caller.name))


# Names of the hub have slashes.
@router.get("/v1/models/{model:path}", responses={200: {"model": Model}}, openapi_extra=query_of(BETA))
async def get_model(request: Request, model: str) -> Response:
    """One model name."""
    process, caller = process_of(request), cheap_caller_of(request)
    if model not in process.names:
        raise unknown_model(model, process)
    return JsonResponse(await process.pools.replies.run(lambda: write_model(model, process), owner=caller.name))
