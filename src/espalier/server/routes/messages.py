"""Anthropic's `/v1/messages` and `/v1/messages/count_tokens`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import EspalierError
from espalier.server.answering.messages.errors import messages_error
from espalier.server.answering.messages.reply import MessagesChunks, messages_head, whole_message
from espalier.server.answering.route import Dialect, answer
from espalier.server.asking.messages.ask import ask_messages
from espalier.server.bodies.messages import MessagesBody
from espalier.server.bodies.openapi import STREAM
from espalier.server.http.errors import GENERATION_ERRORS, ErrorShape, documented, error_headers, shape_where
from espalier.server.http.wire import JsonResponse
from espalier.server.routes.counting import COUNTED, answer_count

ROUTE = "/v1/messages"
COUNT = f"{ROUTE}/count_tokens"
REPLY: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Anthropic's message object.",
        "content": {"application/json": {"schema": {"type": "object"}}, **STREAM},
    }
}
BODY = {"requestBody": {"$ref": "#/components/requestBodies/MessagesBody"}}
router = APIRouter(tags=["anthropic"])


MESSAGES = Dialect(
    route=ROUTE,
    operation="chat",
    body=MessagesBody,
    ask=ask_messages,
    head=messages_head,
    whole=whole_message,
    chunks=MessagesChunks,
    done=b"",
)


@router.post(ROUTE, responses={**REPLY, **documented(*GENERATION_ERRORS)}, openapi_extra=BODY)
async def create_message(request: Request) -> Response:
    """Reply to a conversation of content blocks, with tools, thinking and a format, whole or as a stream."""
    return await answer(request, MESSAGES)


@router.post(COUNT, responses={**COUNTED, **documented(*GENERATION_ERRORS)}, openapi_extra=BODY)
async def count_tokens(request: Request) -> Response:
    """How many tokens the prompt of a message has. Nothing is generated."""
    return await answer_count(request, replace(MESSAGES, ask=partial(ask_messages, counts=True)))


def messages_shape(other: ErrorShape) -> ErrorShape:
    """Errors as Anthropic writes them on its routes, and in the other shape elsewhere."""
    return shape_where(lambda path, _: path == ROUTE or path.startswith(f"{ROUTE}/"), _error_reply, other)


def _error_reply(error: EspalierError, request: Request) -> Response:
    request_id = request.scope.get("state", {}).get("request_id")
    return JsonResponse(messages_error(error, request_id), status_code=error.http_status, headers=error_headers(error))
