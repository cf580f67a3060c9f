"""Requests to a vLLM that are traced, and what is added to them: log probabilities and ids of tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from espalier.upstream.xray.wire.request import ClientRequest, Dialect, UntracedRequest, read_generation

PATHS: Mapping[str, Dialect] = {"/v1/completions": "text", "/v1/chat/completions": "chat"}
OWN = "espalier"
"""Of `vllm_xargs`: what our processor inside vLLM is asked for."""
CONSTRAINTS = ("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "json_schema")
UNTRACEABLE = ("echo", "use_beam_search")
"""A prompt that comes back moves the tokens; what a beam dropped has no place in a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRequest(ClientRequest):
    """has_logprobs: whether the client wanted log probabilities; `top` is then how many of each token, beside its own.
    is_ours: whether our processor inside vLLM is asked for the constraint."""

    has_logprobs: bool
    is_ours: bool = False


def read_request(path: str, body: bytes) -> VllmRequest:
    """Raises UntracedRequest for a request that is not traced."""
    dialect, data = read_generation(PATHS, path, body)
    is_ours = isinstance(data.get("vllm_xargs"), Mapping) and bool(data["vllm_xargs"].get(OWN))
    if not is_ours and not _is_constrained(data):
        raise UntracedRequest("nothing constrains it")
    wanted, top = data.get("logprobs"), data.get("top_logprobs")
    listed = top if dialect == "chat" else wanted
    copies = data.get("n")
    request = VllmRequest(
        dialect=dialect,
        body=data,
        is_stream=data.get("stream") is True,
        top=listed if type(listed) is int and listed > 0 else 0,
        has_logprobs=wanted is True if dialect == "chat" else type(wanted) is int,
        has_tokens=data.get("return_token_ids") is True,
        has_timings=False,
        seed=None,
        copies=copies if type(copies) is int and copies > 0 else 1,
        is_ours=is_ours,
    )
    for name in UNTRACEABLE:
        if data.get(name):
            raise UntracedRequest(f"it asks for {name}", request)
    if data.get("include_reasoning") is False:
        raise UntracedRequest("it asks for no reasoning, and vLLM then tells no tokens of it", request)
    return request


def _is_constrained(data: Mapping[str, Any]) -> bool:
    if any(data.get(name) for name in CONSTRAINTS):
        return True
    form = data.get("response_format")
    if isinstance(form, Mapping) and form.get("type") not in (None, "text"):
        return True
    return bool(data.get("tools")) and data.get("tool_choice") != "none"


def rewritten(request: VllmRequest, count: int, *, as_ids: bool) -> bytes:
    """The body for the server. count: how many probabilities of each token are wanted. as_ids: whether the tokens are
    to be named by their ids where the client sees no log probabilities."""
    data: dict[str, Any] = {**request.body, "return_token_ids": True}
    count = max(count, request.top)
    data |= {"logprobs": True, "top_logprobs": count} if request.dialect == "chat" else {"logprobs": count}
    if as_ids and not request.has_logprobs:
        data["return_tokens_as_token_ids"] = True
    return json.dumps(data).encode("ascii")
