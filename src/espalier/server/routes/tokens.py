"""`POST /tokenize`, `/detokenize` and `/apply-template`, as in llama-server; the first two also as in vLLM.

A body's fields decide between the two servers. Nothing is generated; threads encode and render.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.api import make_request
from espalier.chat.messages import check_messages
from espalier.engines.base import Request as Asked
from espalier.engines.protocols import Engine
from espalier.errors import EspalierError
from espalier.server.asking.openai import ask_chat
from espalier.server.asking.token_ids import bytes_of, check_ids, known_vocab, text_of
from espalier.server.bodies.base import read_body
from espalier.server.bodies.llama import DetokenizeBody, TokenizeBody
from espalier.server.bodies.openai import ChatBody
from espalier.server.http.body import in_thread_if_large, read_object
from espalier.server.http.errors import GENERATION_ERRORS, BadRequest, UnsupportedParameter, documented
from espalier.server.http.wire import JsonResponse
from espalier.server.process.deps import caller_of, process_of
from espalier.tokens.vocab import Vocab

Json = dict[str, Any]
LLAMA_FIELDS = ("add_special", "parse_special", "with_pieces")
VLLM_FIELDS = ("add_special_tokens", "add_generation_prompt", "return_token_strs", "tools")
router = APIRouter(tags=["tokens"], responses=documented(*GENERATION_ERRORS))


def _body(name: str) -> dict[str, Any]:
    return {"requestBody": {"$ref": f"#/components/requestBodies/{name}"}}


@router.post("/tokenize", openapi_extra=_body("TokenizeBody"))
async def tokenize(request: Request) -> Response:
    """The tokens of `content` (llama-server), or of `prompt` or `messages` (vLLM)."""
    engine = _engine(request)
    vocab = known_vocab(engine)
    body = read_body(TokenizeBody, await read_object(request, process_of(request).settings))
    given = [name for name in ("content", "prompt", "messages") if getattr(body, name) is not None]
    if len(given) != 1:
        raise BadRequest(
            f"there is {' and '.join(given) or 'nothing to tokenize'}", hint="one of content, prompt, messages",
            field=given[1] if given else "content",
        )  # fmt: skip
    for name in VLLM_FIELDS if given == ["content"] else LLAMA_FIELDS:
        if getattr(body, name) is not None:
            raise BadRequest(f"{name} does not go with {given[0]}", field=name)
    work = _tokens if given == ["content"] else _counted
    return JsonResponse(await _in_thread(request, lambda: work(body, engine, vocab)))


@router.post("/detokenize", openapi_extra=_body("DetokenizeBody"))
async def detokenize(request: Request) -> Response:
    """The text of `tokens`, special tokens included, as `content`; with `model`, as vLLM's `prompt`."""
    vocab = known_vocab(_engine(request))
    data = await read_object(request, process_of(request).settings)
    body = await in_thread_if_large(request, lambda: read_body(DetokenizeBody, data))
    text = await in_thread_if_large(request, lambda: text_of(check_ids(body.tokens, vocab, "tokens"), vocab))
    return JsonResponse({"content": text} if body.model is None else {"prompt": text})


@router.post("/apply-template", openapi_extra=_body("ChatBody"))
async def apply_template(request: Request) -> Response:
    """The prompt that the chat template renders for a chat request."""
    engine, process = _engine(request), process_of(request)
    data = await read_object(request, process.settings)
    asked = await in_thread_if_large(request, lambda: ask_chat(read_body(ChatBody, data), process))
    try:
        text = await _in_thread(request, lambda: engine.prompt_text(asked.requests[0]))
    except EspalierError as error:
        raise asked.named(error) from None
    return JsonResponse({"prompt": text})


def _engine(request: Request) -> Engine:
    """The engine. Raises Unauthorized, Unavailable."""
    process = process_of(request)
    caller_of(request)
    return process.engine.engine


async def _in_thread(request: Request, work: Callable[[], Any]) -> Any:
    owner = caller_of(request).name
    return await process_of(request).workers.run(work, abandoned=lambda _: None, owner=owner)


def _tokens(body: TokenizeBody, engine: Engine, vocab: Vocab) -> Json:
    """llama-server's reply."""
    text = body.content or ""
    if body.parse_special is False:
        if body.add_special:
            raise UnsupportedParameter(
                "add_special needs parse_special", hint="leave one of the two out",
                field="parse_special",
            )  # fmt: skip
        if vocab.encoder is None:
            raise UnsupportedParameter(f"{engine.name} always reads special tokens", field="parse_special")
        ids = vocab.encoder(text)
    else:
        ids = engine.encode(text, add_special=bool(body.add_special))
    if not body.with_pieces:
        return {"tokens": ids}
    return {"tokens": [{"id": token, "piece": _piece(token, vocab)} for token in ids]}


def _piece(token: int, vocab: Vocab) -> str | list[int]:
    """The token's text, or its bytes if they are not UTF-8."""
    raw = bytes_of(token, vocab)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


def _counted(body: TokenizeBody, engine: Engine, vocab: Vocab) -> Json:
    """vLLM's reply. A prompt gets the special tokens of the tokenizer unless refused; a chat template has its own."""
    if body.messages is not None:
        if body.add_special_tokens:
            raise UnsupportedParameter(
                "the chat template adds its own special tokens", hint="leave it out", field="add_special_tokens"
            )
        asked: Asked = make_request(check_messages(body.messages), tools=body.tools)
        ids = engine.prompt_ids(asked)
    else:
        if body.tools:
            raise BadRequest("tools need messages", field="tools")
        ids = engine.encode(body.prompt or "", add_special=body.add_special_tokens is not False)
    found: Json = {"count": len(ids), "max_model_len": engine.capabilities.max_context, "tokens": ids}
    strings = [vocab.text_of(token) for token in ids] if body.return_token_strs else None
    return {**found, "token_strs": strings}
