"""Ollama's API: `/api/chat`, `/api/generate`, embeddings, and what clients ask about models."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.engines.embedding import Vectors
from espalier.engines.protocols import Forwarding
from espalier.errors import EspalierError, NotHere
from espalier.server.answering.ollama.card import describe_model, list_entries
from espalier.server.answering.ollama.errors import PREFIX, ollama_error
from espalier.server.answering.ollama.reply import (
    OllamaChunks,
    end_ollama,
    finish_ollama,
    nanoseconds,
    ollama_head,
    whole_ollama,
    written_now,
)
from espalier.server.answering.route import Dialect, answer, as_read, read_ahead
from espalier.server.asking.adapted import moving
from espalier.server.asking.assemble import model_name, unknown_model
from espalier.server.asking.embeddings import EmbeddingsRequest, ask_embeddings
from espalier.server.asking.ollama.ask import ask_ollama_chat, ask_ollama_generate, own_name
from espalier.server.bodies.base import Body, FieldWarnings, read_body
from espalier.server.bodies.embeddings import EmbeddingsBody
from espalier.server.bodies.ollama import (
    OllamaChatBody,
    OllamaEmbedBody,
    OllamaEmbeddingsBody,
    OllamaErrorReply,
    OllamaGenerateBody,
    OllamaModelBody,
)
from espalier.server.http.body import read_untyped
from espalier.server.http.errors import (
    GENERATION_ERRORS,
    READING_ERRORS,
    BadRequest,
    ErrorShape,
    documented,
    error_headers,
    shape_where,
)
from espalier.server.http.sse import LineStream
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse, to_bytes_by_parts
from espalier.server.process.deps import admitted, cheap_caller_of, count_public, process_of, while_connected
from espalier.server.process.state import Process
from espalier.server.routes.embeddings import answer_vectors, forwarding_of, read_vectors
from espalier.version import __version__

Json = dict[str, Any]
API_VERSION = "0.32.0"
"""The version of Ollama whose API this is: clients compare it with the least that they need."""
OBJECT = {"application/json": {"schema": {"type": "object"}}}
LINES = {"application/x-ndjson": {"schema": {"description": "Unless `stream` is false: objects, one a line."}}}
REPLY: dict[int | str, dict[str, Any]] = {200: {"description": "Ollama's object.", "content": {**OBJECT, **LINES}}}
ONE: dict[int | str, dict[str, Any]] = {200: {"description": "Ollama's object.", "content": OBJECT}}
ERRORS = documented(*GENERATION_ERRORS, schema=OllamaErrorReply.__name__)
READING = documented(*READING_ERRORS, schema=OllamaErrorReply.__name__)
router = APIRouter(tags=["ollama"])


def body_of(cls: type[Body]) -> Json:
    return {"requestBody": {"$ref": f"#/components/requestBodies/{cls.__name__}"}}


CHAT = Dialect(
    route="/api/chat",
    operation="chat",
    body=OllamaChatBody,
    ask=ask_ollama_chat,
    head=ollama_head,
    whole=whole_ollama,
    chunks=OllamaChunks,
    finish=finish_ollama,
    ended=end_ollama,
    done=b"",
    stream=LineStream,
)
GENERATE = Dialect(
    route="/api/generate",
    operation="text_completion",
    body=OllamaGenerateBody,
    ask=ask_ollama_generate,
    head=ollama_head,
    whole=whole_ollama,
    chunks=OllamaChunks,
    finish=finish_ollama,
    ended=end_ollama,
    done=b"",
    stream=LineStream,
)


@router.post(CHAT.route, responses={**REPLY, **ERRORS}, openapi_extra=body_of(OllamaChatBody))
async def chat(request: Request) -> Response:
    """Reply to messages, with tools, thinking and a format, as a stream of lines or whole."""
    return await _answer_unless_empty(request, CHAT, "messages", {"message": {"role": "assistant", "content": ""}})


@router.post(GENERATE.route, responses={**REPLY, **ERRORS}, openapi_extra=body_of(OllamaGenerateBody))
async def generate(request: Request) -> Response:
    """Reply to a prompt, or continue a raw one, as a stream of lines or whole."""
    return await _answer_unless_empty(request, GENERATE, "prompt", {"response": ""})


async def _answer_unless_empty(
    request: Request, dialect: Dialect[Any], asks: str, empty: Mapping[str, Any]
) -> Response:
    """A body that asks nothing loads the model, or with `"keep_alive": 0` unloads it; here it is loaded, and stays.
    asks: the field that asks something. empty: the part of the reply to a body without it."""
    process = process_of(request)
    data = await read_ahead(request, dialect.route, read_untyped)
    if not data.get(asks) and not data.get("suffix"):
        cheap_caller_of(request)
        body = read_body(dialect.body, data, strict=process.settings.strict_fields)
        name, warnings = _model(data, process)
        reason = "unload" if data.get("keep_alive") in (0, "0", "0s") else "load"
        return JsonResponse(
            {"model": name, "created_at": written_now(), **empty, "done": True, "done_reason": reason},
            headers=warning_header((*warnings, *body.told.lines())),
        )

    return await answer(request, replace(dialect, read=as_read(data)))


def _model(data: Mapping[str, Any], process: Process) -> tuple[str, tuple[str, ...]]:
    """The model's name as the client calls it, and a warning about another one. Raises UnknownModel."""
    asked = data.get("model")
    if not isinstance(asked, str | None):
        raise BadRequest("model is a name", field="model")
    name, warnings = model_name(own_name(asked, process), process)
    return (asked if asked is not None and not warnings else name), warnings


@router.post("/api/embed", responses={**ONE, **ERRORS}, openapi_extra=body_of(OllamaEmbedBody))
async def embed(request: Request) -> Response:
    """A vector for each text, of length 1."""
    began = time.monotonic()

    def show(model: str, vectors: Sequence[Sequence[float]], tokens: int) -> Json:
        return {
            "model": model,
            "embeddings": vectors,
            "total_duration": nanoseconds(time.monotonic() - began),
            "load_duration": nanoseconds(0),
            "prompt_eval_count": tokens,
        }

    if (engine := forwarding_of(request)) is not None:
        return await _forward_texts(request, engine, OllamaEmbedBody, show)

    def ask(data: Json, process: Process) -> EmbeddingsRequest:
        body = read_body(OllamaEmbedBody, data, strict=process.settings.strict_fields)
        return _ask_vectors(body, _openai_fields(body), process, is_cut=body.truncate is not False)

    def write(parsed: EmbeddingsRequest, vectors: list[Vectors]) -> Json:
        return show(parsed.model, [vector.tolist() for vector in vectors], parsed.tokens)

    return await answer_vectors(request, ask, write, read=read_untyped)


@router.post("/api/embeddings", responses={**ONE, **ERRORS}, openapi_extra=body_of(OllamaEmbeddingsBody))
async def embeddings(request: Request) -> Response:
    """The vector of one text: the older form of `/api/embed`."""

    def show(_model: str, vectors: Sequence[Sequence[float]], _tokens: int) -> Json:
        return {"embedding": vectors[0] if vectors else []}

    if (engine := forwarding_of(request)) is not None:
        return await _forward_texts(request, engine, OllamaEmbeddingsBody, show)

    def ask(data: Json, process: Process) -> EmbeddingsRequest:
        body = read_body(OllamaEmbeddingsBody, data, strict=process.settings.strict_fields)
        return _ask_vectors(body, _openai_fields(body), process, is_cut=True)

    def write(parsed: EmbeddingsRequest, vectors: list[Vectors]) -> Json:
        return show(parsed.model, [vector.tolist() for vector in vectors], parsed.tokens)

    return await answer_vectors(request, ask, write, read=read_untyped)


def _openai_fields(body: OllamaEmbedBody | OllamaEmbeddingsBody) -> Json:
    """The fields of a body of `/v1/embeddings`; none where there is no text."""
    if isinstance(body, OllamaEmbeddingsBody):
        return {"input": body.prompt} if body.prompt else {}
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not texts or not any(texts):
        return {}
    return {"input": texts} | ({} if body.dimensions is None else {"dimensions": body.dimensions})


async def _forward_texts(
    request: Request,
    engine: Forwarding,
    body_type: type[OllamaEmbedBody] | type[OllamaEmbeddingsBody],
    show: Callable[[str, Sequence[Sequence[float]], int], Json],
) -> Response:
    """The vectors of `/v1/embeddings` of the server behind the engine, in Ollama's shape. show: the reply with the
    model's name, the vectors and the count of tokens. Raises what `Forwarding.forward` raises."""
    async with admitted(request) as (process, caller):
        data = await read_untyped(request, process.settings)
        body = read_body(body_type, data, strict=process.settings.strict_fields)
        name, warnings = _model({"model": body.model}, process)
        fields = _openai_fields(body)

        def make() -> bytes:
            vectors: list[list[float]] = []
            tokens = 0
            if fields:
                reply = engine.forward("/v1/embeddings", fields)
                vectors, tokens = read_vectors(reply, 1 if isinstance(fields["input"], str) else len(fields["input"]))
            return to_bytes_by_parts(show(name, vectors, tokens))

        hints = [field for field in ("options", "keep_alive", "truncate") if getattr(body, field, None)]
        told = (body.told + FieldWarnings(hints=tuple(hints))).lines()
        reply = await while_connected(request, process.pools.tokens.run(make, owner=caller.name))
        return JsonResponse(reply, headers=warning_header((*told, *warnings)))


def _ask_vectors(
    body: OllamaEmbedBody | OllamaEmbeddingsBody, given: Json, process: Process, *, is_cut: bool
) -> EmbeddingsRequest:
    """given: fields of a body of `/v1/embeddings`; without any there is no text, and no vector."""
    name, warnings = _model({"model": body.model}, process)
    hints = [field for field in ("options", "keep_alive") if getattr(body, field) is not None]
    told = (body.told + FieldWarnings(hints=tuple(hints))).lines()
    asked = EmbeddingsBody.model_validate({**(given or {"input": [[0]]}), "model": own_name(body.model, process)})
    with moving({"input": "prompt"} if isinstance(body, OllamaEmbeddingsBody) else {}):
        parsed = ask_embeddings(asked, process, tokenwise=False, is_cut=is_cut)
    texts = parsed.texts if given else ()
    return replace(parsed, texts=texts, model=name, warnings=(*told, *warnings, *parsed.warnings))


@router.head("/api/tags", include_in_schema=False)
@router.get("/api/tags", responses={**ONE, **READING})
async def tags(request: Request) -> Response:
    """The model, under each of its names."""
    return await _answer_read(request, lambda process: {"models": list_entries(process)})


@router.get("/api/ps", responses={**ONE, **READING})
async def ps(request: Request) -> Response:
    """The model, which is always loaded."""
    return await _answer_read(request, lambda process: {"models": list_entries(process, is_running=True)})


@router.post("/api/show", responses={**ONE, **ERRORS}, openapi_extra=body_of(OllamaModelBody))
async def show(request: Request) -> Response:
    """What the model is: its template, the length of its context, what it can do."""
    process = process_of(request)
    await _known_model(request, process)
    return await _answer_read(request, describe_model)


@router.head("/api/version", include_in_schema=False)
@router.get("/api/version", responses={**ONE, **READING})
async def version(request: Request) -> Response:
    """The version of Ollama whose API this is, and ours."""
    count_public(request)
    return JsonResponse({"version": API_VERSION, "espalier": __version__})


@router.post("/api/pull", responses={**REPLY, **ERRORS}, openapi_extra=body_of(OllamaModelBody))
async def pull(request: Request) -> Response:
    """Success for the model that is here; another one cannot be fetched."""
    body = await _known_model(request, process_of(request))
    kind = "application/json" if body.stream is False else LineStream.media_type
    return Response(b'{"status":"success"}\n', media_type=kind)


async def not_here(request: Request) -> Response:
    """501: the server has the model that it was started with."""
    cheap_caller_of(request)
    raise NotHere(
        "models are neither made, changed nor deleted over HTTP",
        hint="the server has the model that it was started with",
        field="model",
    )


for path in ("/api/create", "/api/copy", "/api/push"):
    router.post(path, responses=ERRORS)(not_here)
router.delete("/api/delete", responses=ERRORS)(not_here)


async def _known_model(request: Request, process: Process) -> OllamaModelBody:
    """The body, which names a model of this server's. Raises UnknownModel for any other."""
    cheap_caller_of(request)
    data = await read_untyped(request, process.settings)
    body = read_body(OllamaModelBody, data, strict=process.settings.strict_fields)
    asked = body.model or body.name
    if asked is None:
        raise BadRequest("model is missing", field="model")
    if own_name(asked, process) not in process.names:
        error = unknown_model(asked, process)
        error.hint = f"{error.hint}; another model needs a server of its own"
        raise error
    return body


async def _answer_read(request: Request, make: Callable[[Process], Json]) -> Response:
    """What `make` says, in a thread: it may read the header of a model's file."""
    process, caller = process_of(request), cheap_caller_of(request)
    return JsonResponse(await process.pools.replies.run(partial(make, process), owner=caller.name))


def ollama_shape(other: ErrorShape) -> ErrorShape:
    """Errors as Ollama writes them on its routes, and in the other shape elsewhere."""
    return shape_where(lambda path, _: path.startswith(PREFIX), _error_reply, other)


def _error_reply(error: EspalierError, _: Request) -> Response:
    return JsonResponse(ollama_error(error), status_code=error.http_status, headers=error_headers(error))
