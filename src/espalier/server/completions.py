"""`POST /v1/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.server.answering import Kind, answer
from espalier.server.convert import ask_completion
from espalier.server.errors import GENERATION_ERRORS, documented
from espalier.server.openapi import generating_route
from espalier.server.replies import TextChunks, text_head, whole_text
from espalier.server.schemas import CompletionBody
from espalier.server.schemas_replies import TextCompletion

ROUTE = "/v1/completions"
TEXT = Kind(
    route=ROUTE,
    operation="text_completion",
    body=CompletionBody,
    ask=ask_completion,
    head=text_head,
    whole=whole_text,
    chunks=TextChunks,
)
router = APIRouter(tags=["openai"])


@router.post(ROUTE, responses={**generating_route(TextCompletion), **documented(*GENERATION_ERRORS)},
             openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/CompletionBody"}})  # fmt: skip
async def create_completion(request: Request) -> Response:
    """Go on with a text as it is, under a constraint, whole or as a stream."""
    return await answer(request, TEXT)
