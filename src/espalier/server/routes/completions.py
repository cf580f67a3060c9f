"""`POST /v1/completions`. In front of another server, a body that only measures its prompt gets that server's reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import CapabilityError
from espalier.server.answering.generation import with_timings
from espalier.server.answering.replies import TextChunks, text_head, whole_text
from espalier.server.answering.route import Dialect, answer, as_read, read_ahead
from espalier.server.asking.openai import ask_completion
from espalier.server.bodies.openai import CompletionBody
from espalier.server.bodies.openapi import generating_route
from espalier.server.bodies.replies import TextCompletion
from espalier.server.http.body import read_object
from espalier.server.http.errors import GENERATION_ERRORS, documented
from espalier.server.routes.embeddings import forward_body, forwarding_of

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
MEASURING = frozenset({"model", "prompt", "echo", "logprobs", "max_tokens", "temperature", "top_p", "seed", "user"})
"""Fields of a body that only measures its prompt, as evaluation harnesses send it."""
router = APIRouter(tags=["openai"])


@router.post(
    ROUTE,
    responses={**generating_route(TextCompletion), **documented(*GENERATION_ERRORS)},
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/CompletionBody"}},
)
async def create_completion(request: Request) -> Response:
    """Continue a text, under a constraint, whole or as a stream."""
    if forwarding_of(request) is None:
        return await answer(request, TEXT)
    return await answer_completion(request, await read_ahead(request, ROUTE, read_object))


async def answer_completion(request: Request, data: dict[str, Any]) -> Response:
    """The reply to a body that has been read."""
    engine = forwarding_of(request)
    if engine is not None and _only_measures(data):
        return await forward_body(request, engine, ROUTE, as_read(data), check_reply=partial(_check_measured, data))
    return await answer(request, replace(TEXT, read=as_read(data)))


def _only_measures(data: Mapping[str, Any]) -> bool:
    """Whether a body asks for the log probabilities of its prompt, and for one token at most."""
    fields = {name for name, value in data.items() if value not in (None, False)}
    few = data.get("max_tokens") in (0, 1)
    return few and data.get("echo") is True and "logprobs" in fields and fields <= MEASURING


def _check_measured(data: Mapping[str, Any], reply: Any) -> None:
    """Raises CapabilityError for a reply that lacks the prompts' tokens."""
    prompts = data["prompt"]
    if isinstance(prompts, str) or (isinstance(prompts, list) and prompts and isinstance(prompts[0], int)):
        prompts = [prompts]
    choices = reply.get("choices") if isinstance(reply, dict) else None
    shown = sorted(choices, key=lambda choice: choice.get("index", 0)) if isinstance(choices, list) else []
    if len(shown) != len(prompts) or not all(map(_has_prompt, shown, prompts)):
        raise CapabilityError(
            "the server behind this one gives no log probabilities of a prompt",
            hint="use an engine that runs the model itself, or a server such as vLLM",
            field="echo",
        )


def _has_prompt(choice: Mapping[str, Any], prompt: str | list[int]) -> bool:
    logprobs = choice.get("logprobs")
    measured = logprobs.get("token_logprobs") if isinstance(logprobs, dict) else None
    if not isinstance(measured, list) or not measured:
        return False
    return str(choice.get("text")).startswith(prompt) if isinstance(prompt, str) else len(measured) >= len(prompt)
