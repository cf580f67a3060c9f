"""`POST /v1/completions`."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.server.answering.generation import with_timings
from espalier.server.answering.replies import TextChunks, text_head, whole_text
from espalier.server.answering.route import Dialect, answer
from espalier.server.asking.openai import ask_completion
from espalier.server.bodies.openai import CompletionBody
from espalier.server.bodies.openapi import generating_route
from espalier.server.bodies.replies import TextCompletion
from espalier.server.http.errors import GENERATION_ERRORS, documented

ROUTE = "/v1/completions"
TEXT = Dialect(
    route=ROUTE,
    operation="text_completion",
    body=CompletionBody,
    ask=ask_completion,
    head=text_head,
    whole=whole_text,
    chunks=TextChunks,
    finish=with_timings,
)
router = APIRouter(tags=["openai"])


@router.post(
    ROUTE,
    responses={**generating_route(TextCompletion), **documented(*GENERATION_ERRORS)},
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/CompletionBody"}},
)
async def create_completion(request: Request) -> Response:
    """Continue a text, under a constraint, whole or as a stream."""
    return await answer(request, TEXT)
