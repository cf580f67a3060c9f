"""Builds the OpenAPI document and an HTML page of it that works offline. It knows no behaviour of any route.

Routes read bodies themselves (`http/body.py`), so this module adds the schemas of the bodies.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from html import escape
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.responses import HTMLResponse, Response

from espalier.server.bodies.batches import BatchBody, PriorityBody
from espalier.server.bodies.embeddings import EmbeddingsBody
from espalier.server.bodies.llama import DetokenizeBody, InfillBody, LlamaBody, TokenizeBody
from espalier.server.bodies.messages import MessagesBody
from espalier.server.bodies.openai import ChatBody, CompletionBody, ErrorReply
from espalier.server.bodies.responses import ResponsesBody
from espalier.server.http.wire import JsonResponse, to_bytes

BODIES: tuple[type[BaseModel], ...] = (
    ChatBody,
    CompletionBody,
    LlamaBody,
    TokenizeBody,
    DetokenizeBody,
    BatchBody,
    PriorityBody,
    ResponsesBody,
    MessagesBody,
    EmbeddingsBody,
    InfillBody,
)
REF = "#/components/schemas/{model}"
STREAM = {"text/event-stream": {"schema": {"description": "With `stream`: chunks, then [DONE]."}}}
METHODS = ("get", "put", "post", "delete", "options", "head", "patch")


def generating_route(reply: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a generating route: the reply, whole or as a stream."""
    return {200: {"model": reply, "description": "The completion.", "content": dict(STREAM)}}


def describe(app: FastAPI, bodies: tuple[type[BaseModel], ...] = BODIES) -> Callable[[], dict[str, Any]]:
    """A replacement for `app.openapi` that builds the document once. bodies: the types that routes read themselves."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            made = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes,
                servers=[{"url": app.root_path}] if app.root_path else None,
            )  # fmt: skip
            parts = made.setdefault("components", {})
            kinds: list[tuple[type[BaseModel], Literal["validation", "serialization"]]]
            named: tuple[type[BaseModel], ...] = (*bodies, ErrorReply)
            kinds = [(one, "validation") for one in named]
            _, definitions = models_json_schema(kinds, ref_template=REF)
            parts.setdefault("schemas", {}).update(definitions["$defs"])
            parts["requestBodies"] = {one.__name__: _request_body(one) for one in bodies}
            parts["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
            for item in made["paths"].values():
                for method in METHODS:
                    item.get(method, {}).get("responses", {}).pop("422", None)  # validation errors are 400 here
            made["security"] = [{}, {"bearer": []}]
            app.openapi_schema = made
        return app.openapi_schema

    return openapi


def add_routes(app: FastAPI, count: Callable[[Request], None]) -> None:
    """`/openapi.json` and `/docs`, each made once. count: called with every request."""

    @cache
    def document() -> bytes:
        return to_bytes(app.openapi())

    @cache
    def page() -> bytes:
        return bytes(docs_page(app).body)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_json(request: Request) -> Response:
        count(request)
        return JsonResponse(document())

    @app.get("/docs", include_in_schema=False)
    async def docs(request: Request) -> Response:
        count(request)
        return HTMLResponse(page())


def _request_body(cls: type[BaseModel]) -> dict[str, Any]:
    schema = {"$ref": REF.format(model=cls.__name__)}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def docs_page(app: FastAPI) -> Response:
    """A page of all routes with their descriptions. FastAPI's own page loads from a CDN; this one works offline."""
    document = app.openapi()
    rows = []
    for path, item in document["paths"].items():
        for method, route in item.items():
            if method in METHODS:
                text = escape(route.get("description") or route.get("summary") or "")
                statuses = ", ".join(sorted(route.get("responses", {})))
                rows.append(
                    f"<tr><td>{method.upper()}</td><td><code>{escape(path)}</code></td><td>{text}</td>"
                    f"<td>{escape(statuses)}</td></tr>"
                )
    return HTMLResponse(PAGE.format(title=escape(app.title), version=escape(app.version), rows="\n".join(rows)))


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse;width:100%}}td,th{{border-bottom:1px solid #ccc;padding:.4rem;text-align:left;
vertical-align:top}}@media(prefers-color-scheme:dark){{body{{background:#111;color:#eee}}a{{color:#8cf}}}}</style></head>
<body><h1>{title} {version}</h1>
<p>The shapes of requests and replies: <a href="openapi.json">openapi.json</a></p>
<table><tr><th>Method</th><th>Address</th><th></th><th>Answers</th></tr>
{rows}
</table></body></html>
"""
