"""Other addresses of routes: OpenAI's without `/v1`, as llama-server has them, and names of other servers.

`/completions` and `/embeddings` are llama-server's routes with its replies, and what an OpenAI client with a base URL
without `/v1` asks. Which of the two a body is meant for is seen in its fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from espalier.server.answering.route import answer, as_read, read_ahead
from espalier.server.asking.llama import adapt_prompt
from espalier.server.bodies.base import names_of
from espalier.server.bodies.llama import LlamaBody
from espalier.server.bodies.openai import CompletionBody
from espalier.server.http.body import read_object
from espalier.server.routes.completions import answer_completion
from espalier.server.routes.embeddings import llama_vectors, openai_vectors
from espalier.server.routes.llama import LLAMA

Json = dict[str, Any]
ALIASES: Mapping[str, str] = {
    "/chat/completions": "/v1/chat/completions",
    "/responses": "/v1/responses",
    "/models": "/v1/models",
    "/files": "/v1/files",
    "/uploads": "/v1/uploads",
    "/batches": "/v1/batches",
    "/rerank": "/v1/rerank",
    "/reranking": "/v1/rerank",
    "/v1/reranking": "/v1/rerank",
    "/score": "/v1/score",
    "/v1/health": "/health",
}
"""From another address to that of the route. What is below the route is below the other address too."""
ONLY_LLAMA = (names_of(LlamaBody) - names_of(CompletionBody)) | {"n_predict"}
"""Fields of `/completion` that OpenAI's route does not have, and the one that it has under another name."""
LLAMA_EMBEDDINGS = ("content", "embd_normalize")
"""Fields of `/embedding` that OpenAI's route does not have."""


def aliases_of(routers: Iterable[APIRouter]) -> APIRouter:
    """The routes of `ALIASES` whose own routes are among those of the routers."""
    aliases = APIRouter(include_in_schema=False)
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    for address, path in ALIASES.items():
        for route in routes:
            if route.path == path or route.path.startswith(path + "/"):
                aliases.add_api_route(
                    address + route.path[len(path) :],
                    route.endpoint,
                    methods=list(route.methods or ()),
                    openapi_extra=route.openapi_extra,
                )
    return aliases


router = APIRouter(include_in_schema=False)


@router.post("/completions")
async def complete(request: Request) -> Response:
    """As `/v1/completions` for a body of OpenAI's, otherwise as `/completion`."""
    data = await read_ahead(request, LLAMA.route, read_object)
    if _is_openai(data, ONLY_LLAMA):
        return await answer_completion(request, data)
    return await answer(request, replace(LLAMA, read=as_read(await adapt_prompt(request, data))))


@router.post("/embeddings")
async def embed(request: Request) -> Response:
    """As `/v1/embeddings` for a body of OpenAI's, otherwise as `/embedding`."""
    data = await read_ahead(request, "/embedding", read_object)
    vectors = openai_vectors if _is_openai(data, LLAMA_EMBEDDINGS) else llama_vectors
    return await vectors(request, as_read(data))


def _is_openai(data: Json, llama: Collection[str]) -> bool:
    """Whether a body names a model, which OpenAI's clients must, and has no field of llama-server's alone."""
    return isinstance(data.get("model"), str) and not any(name in data for name in llama)
