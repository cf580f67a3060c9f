"""Requests that are traced, and what is added to them: probabilities, token ids, a seed, the effective settings.

A request that asks for something in a way that could not be taken apart again is not traced, and its reason is kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from espalier.upstream.xray.sampler.settings import RANDOM_SEED

Dialect = Literal["completion", "chat", "text"]
PATHS: Mapping[str, Dialect] = {
    "/completion": "completion",
    "/completions": "completion",
    "/v1/completions": "text",
    "/chat/completions": "chat",
    "/v1/chat/completions": "chat",
}
CONSTRAINTS = ("grammar", "json_schema", "response_format", "tools")
VERBOSE = ["tokens", "generation_settings", "prompt", "tokens_evaluated", "stop_type", "tokens_predicted"]
DEFAULT_TOP = 20
"""What llama-server gives for `"logprobs": true`."""
PROMPT_SHOWN = 4000
MOST_COPIES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A request as the client sent it. top: how many probabilities of each token the client wanted. has_tokens,
    has_timings: whether it asked for token ids, and for timings in each chunk. seed: None if it left that to the
    server. copies: how many outputs of each prompt. body: all of it."""

    dialect: Dialect
    body: Mapping[str, Any]
    is_stream: bool
    top: int
    has_tokens: bool
    has_timings: bool
    seed: int | None
    copies: int = 1

    @property
    def prompts(self) -> Sequence[Any]:
        """Each prompt; of a chat its messages."""
        prompt = self.body.get("prompt")
        return prompt if isinstance(prompt, list) and _has_several(prompt) else (prompt,)

    @property
    def outputs(self) -> int:
        """How many outputs the reply has: those of the first prompt, then those of the second."""
        return self.copies * len(self.prompts)

    @property
    def schema(self) -> Any:
        """The JSON Schema in the request, None without one."""
        if self.body.get("json_schema") is not None and not self.body.get("grammar"):
            return self.body["json_schema"]
        wanted = self.body.get("response_format")
        if not isinstance(wanted, Mapping):
            return None
        inner = wanted.get("json_schema")
        return inner.get("schema") if isinstance(inner, Mapping) else wanted.get("schema")

    def last_said(self, index: int) -> str:
        """The last text of a person before this output, for lists of traces."""
        messages = self.body.get("messages")
        if not isinstance(messages, list):
            prompt = self.prompt_of(index)
            return prompt[:PROMPT_SHOWN] if isinstance(prompt, str) else ""
        for message in reversed(messages):
            if (
                isinstance(message, Mapping)
                and message.get("role") == "user"
                and isinstance(message.get("content"), str)
            ):
                return str(message["content"])[:PROMPT_SHOWN]
        return ""

    def prompt_of(self, index: int) -> Any:
        """The prompt of this output; None for one that there is not."""
        place = index // self.copies
        return self.prompts[place] if 0 <= place < len(self.prompts) else None

    def seed_of(self, first: int, index: int) -> int:
        """The seed of this output, as the server counts on from that of the first; prompts begin anew."""
        return (first + index % self.copies) % 2**32


class UntracedRequest(Exception):  # it never leaves the proxy
    """This request is passed on as it is; the message says why. asked: what it asked for, where something constrains
    it, so that its trace says that nothing could be traced."""

    def __init__(self, why: str, client_request: ClientRequest | None = None) -> None:
        super().__init__(why)
        self.asked = client_request


def read_generation(paths: Mapping[str, Dialect], path: str, body: bytes) -> tuple[Dialect, dict[str, Any]]:
    """The dialect and the body of a request for text. paths: those of such requests. Raises UntracedRequest for any
    other."""
    dialect = paths.get(path)
    if dialect is None:
        raise UntracedRequest("no generation")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        raise UntracedRequest("the body is no JSON") from None
    if not isinstance(data, dict):
        raise UntracedRequest("the body is no object")
    return dialect, data


def read_request(path: str, body: bytes) -> ClientRequest:
    """Raises UntracedRequest for a request that is not traced."""
    dialect, data = read_generation(PATHS, path, body)
    if not any(data.get(name) for name in CONSTRAINTS):
        raise UntracedRequest("nothing constrains it")
    seed = data.get("seed")
    is_seed = type(seed) is int and 0 <= seed < RANDOM_SEED
    client_request = ClientRequest(
        dialect=dialect,
        body=data,
        is_stream=data.get("stream") is True,
        top=_top(dialect, data),
        has_tokens=data.get("return_tokens") is True,
        has_timings=data.get("timings_per_token") is True,
        seed=seed if is_seed else None,
        copies=_copies(data) or 1,
    )
    if (why := _untraceable(data)) is not None:
        raise UntracedRequest(why, client_request)
    if not is_seed and seed not in (None, -1, RANDOM_SEED):
        raise UntracedRequest("its seed is no whole number below 2**32", client_request)
    return client_request


def _untraceable(data: Mapping[str, Any]) -> str | None:
    """Why a reply could not be taken apart again, None if it can."""
    for name in ("verbose", "response_fields", "post_sampling_probs", "multimodal_data"):
        if data.get(name):
            return f"it asks for {name}"
    if _copies(data) is None:
        return f"its n is no whole number from 1 to {MOST_COPIES}"
    prompt = data.get("prompt")
    if any(isinstance(prompt_part, Mapping) for prompt_part in (prompt, *(prompt if isinstance(prompt, list) else ()))):
        return "its prompt is an object"
    return None


def _copies(data: Mapping[str, Any]) -> int | None:
    """How many outputs of each prompt, by the server's own name first; None for what is no number of them."""
    given = data.get("n_cmpl")
    given = data.get("n") if given is None else given
    if given is None:
        return 1
    return given if type(given) is int and 0 < given <= MOST_COPIES else None


def _has_several(prompt: list[Any]) -> bool:
    """A list with a number in it is one prompt, of tokens and texts."""
    return bool(prompt) and not any(type(token) is int for token in prompt)


def _top(dialect: Dialect, data: Mapping[str, Any]) -> int:
    """How many probabilities the server would give, by its own rules."""
    wanted = data.get("logprobs")
    if dialect == "chat" and wanted is True:
        given = data.get("top_logprobs")
        return given if type(given) is int else DEFAULT_TOP
    for value in (data.get("n_probs"), wanted):
        if type(value) is int:
            return max(0, value)
        if type(value) is bool and dialect != "chat":
            return int(value)
    return 0


def rewritten(client_request: ClientRequest, count: int, new_seed: Callable[[], int]) -> tuple[bytes, int]:
    """The body for the server, and the seed in it. count: probabilities of each token that are wanted."""
    data = dict(client_request.body)
    # The seeds of further outputs follow it, and none of them is the server's word for a random one.
    seed = min(new_seed(), RANDOM_SEED - client_request.copies) if client_request.seed is None else client_request.seed
    count = max(count, client_request.top)
    data["seed"] = seed
    if client_request.dialect == "chat" and data.get("logprobs") is True:
        data["top_logprobs"] = count
    else:
        data["n_probs"] = count
    data["return_tokens"] = True
    if client_request.dialect != "completion":
        data["verbose"], data["response_fields"] = True, VERBOSE
        if client_request.is_stream:
            data["timings_per_token"] = True
    return json.dumps(data).encode("ascii"), seed
