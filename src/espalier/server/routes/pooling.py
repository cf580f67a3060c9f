"""vLLM's `POST /pooling` and `/v1/score`: pooled states of texts, and how similar pairs of texts are."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.engines.embedding import L2, Vectors, reader_of
from espalier.errors import NotHere
from espalier.server.asgi import new_id
from espalier.server.asking.adapted import moving
from espalier.server.asking.embeddings import EmbeddingsRequest, ask_embeddings
from espalier.server.bodies.base import read_body
from espalier.server.bodies.embeddings import EmbeddingsBody, PoolingBody, ScoreBody
from espalier.server.http.errors import GENERATION_ERRORS, BadRequest, documented
from espalier.server.process.state import Process
from espalier.server.routes.embeddings import answer_vectors, forward_body, forwarding_of, show_vector

Json = dict[str, Any]
ERRORS = documented(*GENERATION_ERRORS)
OBJECT: dict[int | str, dict[str, Any]] = {
    200: {"description": "vLLM's list.", "content": {"application/json": {"schema": {"type": "object"}}}}
}
router = APIRouter(tags=["embeddings"])


def _body(name: str) -> Json:
    return {"requestBody": {"$ref": f"#/components/requestBodies/{name}"}}


@router.post("/pooling", responses={**OBJECT, **ERRORS}, openapi_extra=_body("PoolingBody"))
async def pool(request: Request) -> Response:
    """The states of texts, pooled as the model says; one vector for each token where nothing says how. In front of
    another server, here and below, that server's own reply."""
    if (engine := forwarding_of(request)) is not None:
        return await forward_body(request, engine, "/pooling")
    return await answer_vectors(request, _ask_pooling, _write_pooling)


def _ask_pooling(data: Json, process: Process) -> EmbeddingsRequest:
    body = read_body(PoolingBody, data, strict=process.settings.strict_fields)
    asked = ask_embeddings(body, process, tokenwise=body.task != "embed")
    return replace(asked, how=replace(asked.how, pooling=None)) if body.task == "token_embed" else asked


def _write_pooling(asked: EmbeddingsRequest, vectors: list[Vectors]) -> Json:
    data = [
        {"index": index, "object": "pooling", "data": show_vector(asked, vector)}
        for index, vector in enumerate(vectors)
    ]
    return _list("pool", asked, data)


@router.post("/v1/score", responses={**OBJECT, **ERRORS}, openapi_extra=_body("ScoreBody"))
async def score(request: Request) -> Response:
    """How similar two texts are, or one text to each of several: the cosine of their vectors."""
    if (engine := forwarding_of(request)) is not None:
        return await forward_body(request, engine, "/v1/score")
    return await answer_vectors(request, _ask_score, _write_scores)


def _ask_score(data: Json, process: Process) -> EmbeddingsRequest:
    """The first texts, then as many second ones."""
    body = read_body(ScoreBody, data, strict=process.settings.strict_fields)
    reader = reader_of(process.engine.engine, process.engine.name)
    if reader.pooling is None and process.settings.embedding_pooling is None:
        raise NotHere(
            "this model generates text; it scores no pairs of texts",
            hint="EMBEDDING_POOLING=mean compares the means of their tokens",
            field="model",
        )
    first, second = _texts(body, "text_1", "queries"), _texts(body, "text_2", "documents")
    if len(first) not in (1, len(second)):
        raise BadRequest("there is one first text, or as many as second ones", field="text_1")
    texts: list[Any] = [*(first * len(second) if len(first) == 1 else first), *second]
    own = EmbeddingsBody(input=texts, model=body.model)
    with moving({"input": "text_2"}):
        asked = ask_embeddings(own, process, tokenwise=False)
    return replace(asked, how=replace(asked.how, norm=L2), warnings=(*body.told.lines(), *asked.warnings))


def _texts(body: ScoreBody, name: str, other: str) -> list[str]:
    value = getattr(body, name) if getattr(body, name) is not None else getattr(body, other)
    if not value:
        raise BadRequest(f"{name} is missing", field=name)
    return [value] if isinstance(value, str) else list(value)


def _write_scores(asked: EmbeddingsRequest, vectors: list[Vectors]) -> Json:
    half = len(vectors) // 2
    pairs = zip(vectors[:half], vectors[half:], strict=True)
    data = [{"index": i, "object": "score", "score": float(np.dot(a, b))} for i, (a, b) in enumerate(pairs)]
    return _list("score", asked, data)


def _list(kind: str, asked: EmbeddingsRequest, data: Sequence[Json]) -> Json:
    usage = {"prompt_tokens": asked.tokens, "total_tokens": asked.tokens, "completion_tokens": 0}
    head = {"id": new_id(f"{kind}-"), "object": "list", "created": int(time.time()), "model": asked.model}
    return {**head, "data": list(data), "usage": usage}
