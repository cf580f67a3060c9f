"""Routes of text-generation-inference (TGI): `POST /generate`, `/generate_stream` and `/`, `GET /info`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import EspalierError
from espalier.server.answering.ollama.card import model_file
from espalier.server.answering.replies import text_head
from espalier.server.answering.route import Dialect, answer
from espalier.server.answering.tgi import TgiChunks, tgi_error, whole_tgi
from espalier.server.asking.sampling import MAX_STOPS
from espalier.server.asking.tgi import ask_tgi
from espalier.server.bodies.openapi import STREAM
from espalier.server.bodies.tgi import TgiBody, TgiErrorReply, TgiReply
from espalier.server.http.body import read_object
from espalier.server.http.errors import (
    GENERATION_ERRORS,
    READING_ERRORS,
    ErrorShape,
    documented,
    error_headers,
    shape_where,
)
from espalier.server.http.wire import JsonResponse
from espalier.server.process.deps import cheap_caller_of, process_of
from espalier.server.settings import ServerSettings
from espalier.version import __version__

Json = dict[str, Any]
TGI = Dialect(
    route="/generate",
    operation="text_completion",
    body=TgiBody,
    ask=ask_tgi,
    head=text_head,
    whole=whole_tgi,
    chunks=TgiChunks,
    done=b"",
)
ROUTES = ("/generate", "/generate_stream", "/info")
BODY = {"requestBody": {"$ref": "#/components/requestBodies/TgiBody"}}
ERRORS = documented(*GENERATION_ERRORS, schema=TgiErrorReply.__name__)
REPLY: dict[int | str, dict[str, Any]] = {200: {"model": TgiReply, "content": dict(STREAM)}}
EVENTS: dict[int | str, dict[str, Any]] = {200: {"description": "An event for each token.", "content": dict(STREAM)}}
router = APIRouter(tags=["tgi"])


@router.post("/generate", responses={**REPLY, **ERRORS}, openapi_extra=BODY)
async def generate(request: Request) -> Response:
    """Continue a text, under a `grammar`, whole; with `stream` as `/generate_stream`."""
    return await answer(request, TGI)


@router.post("/generate_stream", responses={**EVENTS, **ERRORS}, openapi_extra=BODY)
async def generate_stream(request: Request) -> Response:
    """Continue a text, under a `grammar`, as a stream; the last event has the whole text."""

    async def read(http: Request, settings: ServerSettings) -> Json:
        return {**await read_object(http, settings), "stream": True}

    return await answer(request, replace(TGI, route="/generate_stream", read=read))


@router.post("/", include_in_schema=False)
async def generate_compat(request: Request) -> Response:
    """As `/generate`; a whole reply is in a list. Hugging Face's client sends text here."""
    return await answer(request, replace(TGI, finish=lambda reply, _: [reply]))


@router.get("/info", responses=documented(*READING_ERRORS, schema=TgiErrorReply.__name__))
async def info(request: Request) -> Response:
    """The model and the limits."""
    process, caller = process_of(request), cheap_caller_of(request)
    settings, longest = process.settings, process.engine.capabilities.max_context

    def work() -> Mapping[str, Any]:  # it may read the header of a model's file
        return {
            "model_id": process.names[0],
            "model_sha": process.fingerprint,
            "model_dtype": model_file(process).quantization or "unknown",
            "model_pipeline_tag": "text-generation",
            "max_concurrent_requests": settings.queue_size,
            "max_best_of": 1,
            "max_stop_sequences": MAX_STOPS,
            "max_input_tokens": max(longest - 1, 0),
            "max_total_tokens": longest,
            "max_client_batch_size": 1,
            "router": "espalier",
            "version": __version__,
        }

    return JsonResponse(dict(await process.pools.replies.run(work, owner=caller.name)))


def tgi_shape(other: ErrorShape) -> ErrorShape:
    """Errors as TGI writes them on its routes, and in the other shape elsewhere."""
    return shape_where(
        lambda path, request: path in ROUTES or (path == "/" and request.method == "POST"), _error_reply, other
    )


def _error_reply(error: EspalierError, _: Request) -> Response:
    return JsonResponse(tgi_error(error), status_code=error.http_status, headers=error_headers(error))
