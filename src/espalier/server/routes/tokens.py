"""`POST /tokenize`, `/detokenize` and `/apply-template`, as in llama-server; the first two also as in vLLM, with its
`GET /tokenizer_info`.

A body's fields decide between the two servers. Nothing is generated; threads encode and render.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.engines.protocols import Engine
from espalier.errors import EspalierError, LimitExceeded
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.openai import ask_chat
from espalier.server.asking.token_ids import bytes_of, check_ids, known_vocab, text_of
from espalier.server.bodies.base import read_body
from espalier.server.bodies.llama import DetokenizeBody, TokenizeBody
from espalier.server.bodies.openai import ChatBody
from espalier.server.http.body import in_thread_if_large, read_object
from espalier.server.http.errors import GENERATION_ERRORS, BadRequest, TooCostly, UnsupportedParameter, documented
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse, to_bytes_by_parts
from espalier.server.process.deps import admitted, cheap_caller_of, process_of, while_connected
from espalier.server.process.state import Process
from espalier.time_limit import time_limit
from espalier.tokens.vocab import Vocab

Json = dict[str, Any]
T = TypeVar("T")
LLAMA_FIELDS = ("add_special", "parse_special", "with_pieces")
CHAT_FIELDS = ("tools", "add_generation_prompt", "continue_final_message", "chat_template_kwargs")
VLLM_FIELDS = ("add_special_tokens", "return_token_strs", *CHAT_FIELDS)
IDLE = (("add_generation_prompt", True), ("continue_final_message", False))
"""Values that ask for nothing, which clients send with a prompt too."""
router = APIRouter(tags=["tokens"], responses=documented(*GENERATION_ERRORS))


@dataclass(frozen=True, slots=True)
class ReadBody(Generic[T]):
    """A parsed body, and the warnings about it."""

    body: T
    lines: Sequence[str] = ()


def _body(name: str) -> dict[str, Any]:
    return {"requestBody": {"$ref": f"#/components/requestBodies/{name}"}}


@router.post("/tokenize", openapi_extra=_body("TokenizeBody"))
async def tokenize(request: Request) -> Response:
    """The tokens of `content` (llama-server), or of `prompt` or `messages` (vLLM)."""
    return await _work_and_reply(request, _read_tokenize, _tokenize_prompt)


@router.post("/detokenize", openapi_extra=_body("DetokenizeBody"))
async def detokenize(request: Request) -> Response:
    """The text of `tokens`, special tokens included, as llama-server's `content` and vLLM's `prompt`."""
    return await _work_and_reply(request, _read_detokenize, _detokenize_ids)


@router.get("/tokenizer_info")
async def tokenizer_info(request: Request) -> Response:
    """What vLLM says of the tokenizer: the texts of its special tokens, the chat template, the longest text."""
    process = process_of(request)
    cheap_caller_of(request)
    engine = process.engine.engine
    template, vocab = engine.template, known_vocab(engine, "model")
    return JsonResponse(
        {
            "tokenizer_class": engine.name,
            "model_max_length": engine.capabilities.max_context or None,
            "vocab_size": vocab.width,
            "bos_token": None if template is None else template.bos_token or None,
            "eos_token": vocab.text_of(vocab.eos_ids[0]),
            "pad_token": None,
            "additional_special_tokens": list(vocab.special_texts.values()),
            "chat_template": None if template is None else template.source,
        }
    )


@router.post("/apply-template", openapi_extra=_body("ChatBody"))
async def apply_template(request: Request) -> Response:
    """The prompt that the chat template renders for a chat request."""
    return await _work_and_reply(request, _parse_chat, _render_prompt)


async def _work_and_reply(
    request: Request, read: Callable[[Json, Process], ReadBody[T]], work: Callable[[T, Process], Json]
) -> Response:
    """The reply: the body is read and the work done in threads, within the caller's limits, while the client waits."""
    async with admitted(request) as (process, caller):
        data = await read_object(request, process.settings)
        body_read = await in_thread_if_large(request, lambda: read(data, process))

        def make() -> bytes:
            with time_limit(process.settings.compile_seconds, what="this"):
                return to_bytes_by_parts(work(body_read.body, process))

        try:
            working = process.pools.tokens.run(make, owner=caller.name)
            return JsonResponse(await while_connected(request, working), headers=warning_header(body_read.lines))
        except LimitExceeded as error:
            raise TooCostly(error.message, hint=error.hint, field=error.field) from error


def _parse_chat(data: Json, process: Process) -> ReadBody[ParsedRequest]:
    parsed: ParsedRequest = ask_chat(read_body(ChatBody, data, strict=process.settings.strict_fields), process)
    return ReadBody(parsed, parsed.lines)


def _read_detokenize(data: Json, process: Process) -> ReadBody[DetokenizeBody]:
    body = read_body(DetokenizeBody, data, strict=process.settings.strict_fields)
    return ReadBody(body, body.told.lines())


def _read_tokenize(data: Json, process: Process) -> ReadBody[tuple[TokenizeBody, ParsedRequest | None]]:
    """The body, and for messages the chat request that they make."""
    body = read_body(TokenizeBody, data, strict=process.settings.strict_fields)
    given = [name for name in ("content", "prompt", "messages") if getattr(body, name) is not None]
    if len(given) != 1:
        raise BadRequest(
            f"there is {' and '.join(given) or 'nothing to tokenize'}",
            hint="one of content, prompt, messages",
            field=given[1] if given else "content",
        )
    unfit = {"content": VLLM_FIELDS, "prompt": (*LLAMA_FIELDS, *CHAT_FIELDS), "messages": LLAMA_FIELDS}
    for name in unfit[given[0]]:
        if getattr(body, name) is not None and (name, getattr(body, name)) not in IDLE:
            raise BadRequest(f"{name} does not go with {given[0]}", field=name)
    if body.messages is None:
        return ReadBody((body, None), body.told.lines())
    if body.add_special_tokens:
        raise UnsupportedParameter(
            "the chat template adds its own special tokens", hint="leave it out", field="add_special_tokens"
        )
    chat = body.model_dump(exclude_unset=True, include={"messages", *CHAT_FIELDS})
    parsed: ParsedRequest = ask_chat(read_body(ChatBody, chat, strict=process.settings.strict_fields), process)
    return ReadBody((body, parsed), (*body.told.lines(), *parsed.lines))


def _tokenize_prompt(read: tuple[TokenizeBody, ParsedRequest | None], process: Process) -> Json:
    engine, (body, asked) = process.engine.engine, read
    vocab = known_vocab(engine)
    return _tokens(body, engine, vocab) if body.content is not None else _write_vllm_reply(body, asked, engine, vocab)


def _detokenize_ids(body: DetokenizeBody, process: Process) -> Json:
    vocab = known_vocab(process.engine.engine)
    text = text_of(check_ids(body.tokens, vocab, "tokens"), vocab)
    # vLLM's clients may leave the model out, as lm-eval does.
    return {"content": text, "prompt": text} if body.model is None else {"prompt": text}


def _render_prompt(parsed: ParsedRequest, process: Process) -> Json:
    try:
        return {"prompt": process.engine.engine.prompt_text(parsed.requests[0])}
    except EspalierError as error:
        raise parsed.named(error) from None


def _tokens(body: TokenizeBody, engine: Engine, vocab: Vocab) -> Json:
    """llama-server's reply."""
    text = body.content or ""
    if body.parse_special is False:
        if body.add_special:
            raise UnsupportedParameter(
                "add_special needs parse_special", hint="leave one of the two out", field="parse_special"
            )
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


def _write_vllm_reply(body: TokenizeBody, parsed: ParsedRequest | None, engine: Engine, vocab: Vocab) -> Json:
    """vLLM's reply. A prompt gets the special tokens of the tokenizer unless refused; a chat template has its own."""
    if parsed is None:
        ids = engine.encode(body.prompt or "", add_special=body.add_special_tokens is not False)
    else:
        try:
            ids = engine.prompt_ids(parsed.requests[0])
        except EspalierError as error:
            raise parsed.named(error) from None
    reply: Json = {"count": len(ids), "max_model_len": engine.capabilities.max_context, "tokens": ids}
    strings = [vocab.text_of(token) for token in ids] if body.return_token_strs else None
    return {**reply, "token_strs": strings}
