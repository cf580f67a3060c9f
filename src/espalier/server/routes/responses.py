"""OpenAI's `/v1/responses`: create a response, whole or as a stream."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.server.answering.responses.reply import ResponsesChunks, responses_head, whole_response
from espalier.server.answering.route import Dialect, answer
from espalier.server.asking.responses.ask import adapt_responses, ask_responses
from espalier.server.bodies.openapi import STREAM
from espalier.server.bodies.responses import ResponsesBody
from espalier.server.http.body import read_object
from espalier.server.http.errors import GENERATION_ERRORS, documented
from espalier.server.settings import ServerSettings

ROUTE = "/v1/responses"
REPLY: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "OpenAI's response object.",
        "content": {"application/json": {"schema": {"type": "object"}}, **STREAM},
    }
}


async def read_responses(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """The body without fields that have no effect. Raises what `read_object` raises, and UnsupportedParameter."""
    return adapt_responses(await read_object(request, settings))


RESPONSES = Dialect(
    route=ROUTE, operation="chat", body=ResponsesBody, ask=ask_responses, head=responses_head, whole=whole_response,
    chunks=ResponsesChunks, read=read_responses, adapt=lambda data, _: adapt_responses(data), done=b"",
)  # fmt: skip
router = APIRouter(tags=["openai"])


@router.post(ROUTE, responses={**REPLY, **documented(*GENERATION_ERRORS)},
             openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/ResponsesBody"}})  # fmt: skip
async def create_response(request: Request) -> Response:
    """Reply to items of a conversation, under a format, with functions and custom tools, whole or as a stream."""
    return await answer(request, RESPONSES)
