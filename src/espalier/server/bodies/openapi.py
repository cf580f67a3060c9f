"""Builds the OpenAPI document, and serves it with its page (`api_page.py`). It knows no behaviour of any route.

Routes read bodies themselves (`http/body.py`), so this module adds the schemas of the bodies.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import HTMLResponse, Response

from espalier.server.bodies.api_page import METHODS, api_page, policy
from espalier.server.bodies.batches import BatchBody, CompleteBody, PriorityBody, UploadBody
from espalier.server.bodies.embeddings import EmbeddingsBody, PoolingBody, ScoreBody
from espalier.server.bodies.feedback import FeedbackBody
from espalier.server.bodies.llama import DetokenizeBody, InfillBody, LlamaBody, TokenizeBody
from espalier.server.bodies.messages import MessageBatchesBody, MessagesBody
from espalier.server.bodies.ollama import (
    OllamaChatBody,
    OllamaEmbedBody,
    OllamaEmbeddingsBody,
    OllamaErrorReply,
    OllamaGenerateBody,
    OllamaModelBody,
)
from espalier.server.bodies.openai import ChatBody, CompletionBody, ErrorReply
from espalier.server.bodies.responses import CompactBody, ResponsesBody
from espalier.server.bodies.tgi import TgiBody, TgiErrorReply
from espalier.server.http.wire import JsonResponse, to_bytes

BODIES: tuple[type[BaseModel], ...] = (
    ChatBody,
    CompletionBody,
    LlamaBody,
    TokenizeBody,
    DetokenizeBody,
    BatchBody,
    PriorityBody,
    UploadBody,
    CompleteBody,
    FeedbackBody,
    ResponsesBody,
    CompactBody,
    MessagesBody,
    MessageBatchesBody,
    EmbeddingsBody,
    PoolingBody,
    ScoreBody,
    InfillBody,
    OllamaChatBody,
    OllamaGenerateBody,
    OllamaEmbedBody,
    OllamaEmbeddingsBody,
    OllamaModelBody,
    TgiBody,
)
REF = "#/components/schemas/{model}"
HOST = re.compile(r"[\w.:\[\]-]{1,255}", re.ASCII)
FASTAPIS_422 = "Validation Error"
"""What FastAPI says of a 422 that it adds by itself: such errors are 400 here, but where a route declares its own."""
STREAM = {"text/event-stream": {"schema": {"description": "With `stream`: chunks, then [DONE]."}}}


def generating_route(reply: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a generating route: the reply, whole or as a stream."""
    return {200: {"model": reply, "description": "The completion.", "content": dict(STREAM)}}


def describe(app: FastAPI, bodies: tuple[type[BaseModel], ...] = BODIES) -> Callable[[], dict[str, Any]]:
    """A replacement for `app.openapi` that builds the document once. bodies: the types that routes read themselves."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            openapi = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
                servers=[{"url": app.root_path}] if app.root_path else None,
            )
            parts = openapi.setdefault("components", {})
            kinds: list[tuple[type[BaseModel], Literal["validation", "serialization"]]]
            named: tuple[type[BaseModel], ...] = (*bodies, ErrorReply, OllamaErrorReply, TgiErrorReply)
            kinds = [(model, "validation") for model in named]
            _, definitions = models_json_schema(kinds, ref_template=REF)
            parts.setdefault("schemas", {}).update(definitions["$defs"])
            parts["requestBodies"] = {body.__name__: _request_body(body) for body in bodies}
            parts["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
            for item in openapi["paths"].values():
                for method in METHODS:
                    replies = item.get(method, {}).get("responses", {})
                    if replies.get("422", {}).get("description") == FASTAPIS_422:
                        del replies["422"]
            openapi["security"] = [{}, {"bearer": []}]
            app.openapi_schema = openapi
        return app.openapi_schema

    return openapi


def add_routes(app: FastAPI, count: Callable[[Request], None]) -> None:
    """`/openapi.json` and `/docs`, each made once, for which streams do not wait. count: called with every request."""
    making = asyncio.Lock()

    @cache
    def document() -> bytes:
        return to_bytes(app.openapi())

    @lru_cache(maxsize=4)
    def page(root: str) -> str:
        return api_page(app.openapi(), root=root)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_json(request: Request) -> Response:
        count(request)
        async with making:
            return JsonResponse(await asyncio.to_thread(document))

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        count(request)
        headers = {
            "content-security-policy": policy(),
            "x-content-type-options": "nosniff",
            "referrer-policy": "no-referrer",
        }
        async with making:
            text = await asyncio.to_thread(page, _address(request) + app.root_path)
        return HTMLResponse(text, headers=headers)


def _address(request: Request) -> str:
    """The server as the reader reached it, for commands that the reader copies."""
    host = request.headers.get("host", "")
    if not HOST.fullmatch(host):
        host = "localhost"  # nothing that a shell could read as more than a name
    return f"https://{host}" if request.url.scheme == "https" else host


def _request_body(cls: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": REF.format(model=cls.__name__)}
    return {"required": True, "content": {"application/json": {"schema": schema}}}
