"""`POST /v1/embeddings` as OpenAI's, `/embedding` as llama-server's; rerankers, which are not here.

`asking/embeddings.py` reads a body, `engines/embedding.py` makes vectors.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import numpy as np
from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.engines.embedding import Vectors, embedding
from espalier.engines.protocols import Forwarding
from espalier.errors import DeadlineExceeded, NotHere, UpstreamError
from espalier.server.asking.embeddings import EmbeddingsRequest, ask_embeddings
from espalier.server.bodies.base import read_body
from espalier.server.bodies.embeddings import EmbeddingList, EmbeddingsBody, TokenVectors
from espalier.server.http.body import read_object
from espalier.server.http.errors import GENERATION_ERRORS, documented
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse, to_bytes_by_parts
from espalier.server.process.deps import admitted, cheap_caller_of, process_of, while_connected
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings
from espalier.time_limit import check, time_limit

Json = dict[str, Any]
Ask: TypeAlias = Callable[[Json, Process], EmbeddingsRequest]
R = TypeVar("R")
Read: TypeAlias = Callable[[Request, ServerSettings], Awaitable[Json]]
BODY = {"requestBody": {"$ref": "#/components/requestBodies/EmbeddingsBody"}}
ERRORS = documented(*GENERATION_ERRORS)
router = APIRouter(tags=["embeddings"])


@router.post("/v1/embeddings", responses={200: {"model": EmbeddingList}, **ERRORS}, openapi_extra=BODY)
async def embeddings(request: Request) -> Response:
    """One vector for each text, pooled as EMBEDDING_POOLING or the model says, else the mean; normalised. In front of
    another server, here and below, that server's own reply."""
    return await openai_vectors(request, read_object)


@router.post("/embedding", responses={200: {"model": list[TokenVectors]}, **ERRORS}, openapi_extra=BODY)
async def llama_embedding(request: Request) -> Response:
    """As llama-server: a list of vectors for each text, and one for each token where nothing says how to pool them."""
    return await llama_vectors(request, read_object)


async def openai_vectors(request: Request, read: Read) -> Response:
    """The reply in OpenAI's shape. read: reads the body as JSON."""
    if (engine := forwarding_of(request)) is not None:
        return await forward_body(request, engine, "/v1/embeddings", read)
    return await answer_vectors(request, parse_embeddings, _openai, read=read)


async def llama_vectors(request: Request, read: Read) -> Response:
    """The reply in llama-server's shape. read: reads the body as JSON."""
    if (engine := forwarding_of(request)) is not None:
        return await forward_body(request, engine, "/embedding", read)
    return await answer_vectors(request, _ask(tokenwise=True), _llama, read=read)


def parse_embeddings(data: Json, process: Process) -> EmbeddingsRequest:
    """What a body of `/v1/embeddings` asks for. Raises what the route raises."""
    return _ask(tokenwise=False)(data, process)


def _ask(*, tokenwise: bool) -> Ask:
    def ask(data: Json, process: Process) -> EmbeddingsRequest:
        body = read_body(EmbeddingsBody, data, strict=process.settings.strict_fields)
        return ask_embeddings(body, process, tokenwise=tokenwise)

    return ask


async def answer_vectors(
    request: Request, ask: Ask, write: Callable[[EmbeddingsRequest, list[Vectors]], Any], *, read: Read = read_object
) -> Response:
    """The reply with the vectors of a body's texts, which is made in a thread. read: reads the body as JSON. ask: what
    it asks for. write: the reply."""
    async with admitted(request) as (process, caller):
        data = await read(request, process.settings)

        def make() -> tuple[bytes, tuple[str, ...]]:
            asked, reply = _make_reply(
                data, process, ask, lambda asked, vectors: to_bytes_by_parts(write(asked, vectors))
            )
            return reply, (*asked.warnings, *asked.notes)

        reply, warnings = await while_connected(request, process.pools.tokens.run(make, owner=caller.name))
        return JsonResponse(reply, headers=warning_header(warnings))


def forwarding_of(request: Request) -> Forwarding | None:
    """The engine, where it is in front of a server that is asked itself."""
    engine = process_of(request).engine.engine
    return engine if isinstance(engine, Forwarding) else None


async def forward_body(
    request: Request,
    engine: Forwarding,
    path: str,
    read: Read = read_object,
    *,
    check_reply: Callable[[Any], None] | None = None,
) -> Response:
    """The other server's reply to this body. read: reads it as JSON. check_reply: raises for a reply that lacks what
    was asked for. Raises what `Forwarding.forward` raises."""
    async with admitted(request) as (process, caller):
        data = await read(request, process.settings)

        def make() -> bytes:
            reply = engine.forward(path, data)
            if check_reply is not None:
                check_reply(reply)
            return to_bytes_by_parts(reply)

        return JsonResponse(await while_connected(request, process.pools.tokens.run(make, owner=caller.name)))


def read_vectors(reply: Any, count: int) -> tuple[list[list[float]], int]:
    """The vectors of `count` texts and their count of tokens, from another server's reply to `/v1/embeddings`. Raises
    UpstreamError for a reply of another shape."""
    try:
        items = sorted(reply["data"], key=lambda item: int(item["index"]))
        vectors = [[float(number) for number in item["embedding"]] for item in items]
        tokens = int((reply.get("usage") or {}).get("prompt_tokens") or 0)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UpstreamError("the server's reply to /v1/embeddings has no list of vectors") from error
    if len(vectors) != count:
        raise UpstreamError(f"the server's reply to /v1/embeddings has {len(vectors)} vectors for {count} texts")
    return vectors, tokens


def embed_body(data: Json, process: Process) -> tuple[EmbeddingsRequest, Json]:
    """What a body of `/v1/embeddings` asks for, and the reply. Blocks. Raises what the route raises."""
    return _make_reply(data, process, parse_embeddings, _openai)


def _make_reply(
    data: Json, process: Process, ask: Ask, write: Callable[[EmbeddingsRequest, list[Vectors]], R]
) -> tuple[EmbeddingsRequest, R]:
    """What a body asks for, and its reply, each within its limit of time."""
    ends = time.monotonic() + process.settings.request_seconds
    with time_limit(process.settings.compile_seconds, what="reading this"):
        asked = ask(data, process)
    with time_limit(process.settings.request_seconds, what="this"):
        return asked, write(asked, [_vector(asked, text, ends) for text in asked.texts])


def _vector(parsed: EmbeddingsRequest, text: tuple[int, ...], ends: float) -> Vectors:
    check()  # whether anybody still waits
    if time.monotonic() > ends:
        raise DeadlineExceeded
    return embedding(parsed.reader.read(text), parsed.how)


def show_vector(parsed: EmbeddingsRequest, vector: Vectors) -> Any:
    """The numbers, or these as base64 of little-endian float32."""
    if not parsed.base64:
        return vector.tolist()
    return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")


def _openai(parsed: EmbeddingsRequest, vectors: list[Vectors]) -> Json:
    data: list[Json] = []
    for index, vector in enumerate(vectors):
        item: Json = {"object": "embedding", "index": index, "embedding": show_vector(parsed, vector)}
        data.append({**item, "encoding_format": "base64"} if parsed.base64 else item)
    usage = {"prompt_tokens": parsed.tokens, "total_tokens": parsed.tokens}
    notes = {"espalier": {"warnings": list(parsed.notes)}} if parsed.notes else {}
    return {"object": "list", "data": data, "model": parsed.model, "usage": usage, **notes}


def _llama(_parsed: EmbeddingsRequest, vectors: list[Vectors]) -> list[Json]:
    return [{"index": index, "embedding": np.atleast_2d(vector).tolist()} for index, vector in enumerate(vectors)]


@router.post("/v1/rerank", responses=ERRORS)
async def rerank(request: Request) -> Response:
    """501 with the reason: a model that generates text ranks nothing."""
    if (engine := forwarding_of(request)) is not None:
        return await forward_body(request, engine, "/v1/rerank")
    cheap_caller_of(request)
    raise NotHere("this model generates text; it is no reranker", hint="compare embeddings", field="model")
