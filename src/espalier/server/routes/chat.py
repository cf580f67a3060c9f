"""`POST /v1/chat/completions`."""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.server.answering.generation import with_timings
from espalier.server.answering.replies import ChatChunks, chat_head, whole_chat
from espalier.server.answering.route import Dialect, answer
from espalier.server.asking.openai import ask_chat
from espalier.server.bodies.openai import ChatBody
from espalier.server.bodies.openapi import generating_route
from espalier.server.bodies.replies import ChatCompletion
from espalier.server.http.errors import GENERATION_ERRORS, documented
from espalier.server.process.deps import process_of
from espalier.server.routes.counting import COUNTED, answer_count
from espalier.server.routes.wordlist_server import (
    adapt_wordlist_chat,
    compat_remedy,
    read_wordlist_chat,
    whole_wordlist_chat,
)

ROUTE = "/v1/chat/completions"
CHAT = Dialect(
    route=ROUTE,
    operation="chat",
    body=ChatBody,
    ask=ask_chat,
    head=chat_head,
    whole=whole_chat,
    chunks=ChatChunks,
    finish=with_timings,
    remedy=compat_remedy,
)
WORDLIST_CHAT = replace(
    CHAT,
    read=read_wordlist_chat,
    adapt=lambda data, _: adapt_wordlist_chat(data),
    whole=whole_wordlist_chat,
    finish=None,
)
router = APIRouter(tags=["openai"])


@router.post(
    ROUTE,
    responses={**generating_route(ChatCompletion), **documented(*GENERATION_ERRORS)},
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/ChatBody"}},
)
async def create_chat_completion(request: Request) -> Response:
    """Reply to a conversation, under a constraint, with tools, whole or as a stream."""
    return await answer(request, _dialect(request))


@router.post(
    f"{ROUTE}/input_tokens",
    responses={**COUNTED, **documented(*GENERATION_ERRORS)},
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/ChatBody"}},
)
async def count_chat_tokens(request: Request) -> Response:
    """How many tokens the prompt of a chat has. Nothing is generated."""
    return await answer_count(request, _dialect(request), object="response.input_tokens")


def _dialect(request: Request) -> Dialect[ChatBody]:
    return WORDLIST_CHAT if process_of(request).settings.wordlist_server_compat else CHAT
