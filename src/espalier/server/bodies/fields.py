"""Tables of other servers' fields that have no effect here (ACCEPTED) or are not supported (REFUSED).

ACCEPTED fields are checked for their JSON type (TYPES) and dropped. REFUSED fields are refused unless their value asks
for nothing. A field that is in neither table nor in the body's class is unknown, and refused with a hint.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.server.http.errors import BadRequest, UnknownParameter, UnsupportedParameter

ACCEPTED: Mapping[str, str] = {
    "user": "a label for OpenAI's abuse checks",
    "safety_identifier": "a label for OpenAI's abuse checks",
    "metadata": "labels of stored completions, which are not stored by label here",
    "prompt_cache_key": "the prefix cache needs no key",
    "prompt_cache_retention": "the prefix cache keeps prefixes as long as there is room",
    "prompt_cache_options": "the prefix cache keeps prefixes as long as there is room",
    "prediction": "a hint for speed that never changes the reply",
    "service_tier": "there is one tier",
    "cache_prompt": "the prefix cache changes no reply",
    "auth_token": "the logging server's, for downloads, of which there are none",
    "custom_id": "a label of the client's own",
}


TYPES: Mapping[str, type] = {
    "metadata": dict, "prompt_cache_options": dict, "prediction": dict, "cache_prompt": bool,
}  # fmt: skip
"""The types of accepted fields; the others are strings."""
_KINDS = {dict: "an object", bool: "true or false", str: "a text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """idle: values that ask for nothing, besides null. why: the hint, such as what to use instead."""

    idle: tuple[Any, ...] = ()
    why: str = "leave it out"


_BEST_OF = 'use `n` with `use_beam_search`, or "espalier": {"strategy": "best_of", "particles": ...}'
_OLD = "an old field of OpenAI's: "
_ROUTES = "only /v1/chat/completions and /v1/completions have beam search"
_ROUTE = "only llama-server's route /completion has it"
REFUSED: Mapping[str, Refusal] = {
    # OpenAI
    "audio": Refusal(why="there is text only"),
    "modalities": Refusal(idle=(["text"],), why='there is text only: ["text"]'),
    "functions": Refusal(idle=([],), why=f"{_OLD}use `tools`"),
    "function_call": Refusal(why=f"{_OLD}use `tool_choice`"),
    "store": Refusal(idle=(False,), why="completions are not stored by request"),
    "moderation": Refusal(why="there is no moderation here"),
    "web_search_options": Refusal(why="there is no web search"),
    "reasoning_effort": Refusal(idle=("none",), why="use `espalier.reasoning` and `espalier.max_reasoning`"),
    "verbosity": Refusal(idle=("medium",), why="ask for it in a message"),
    "suffix": Refusal(idle=("",), why="text cannot be inserted before a suffix"),
    # vLLM and the word-list server
    "best_of": Refusal(idle=(1,), why=_BEST_OF),
    "use_beam_search": Refusal(idle=(False,), why=_ROUTES),
    "num_beams": Refusal(idle=(1,), why=_ROUTES),
    "length_penalty": Refusal(idle=(1, 0), why=_ROUTES),
    "early_stopping": Refusal(idle=(False,), why=_ROUTES),
    "prompt_logprobs": Refusal(idle=(0,), why="only generated tokens have log probabilities"),
    "logprob_token_ids": Refusal(idle=([],), why="use `top_logprobs`"),
    "return_tokens_as_token_ids": Refusal(idle=(False,), why="use `return_token_ids`"),
    "continue_final_message": Refusal(idle=(False,), why="the template always begins a new turn"),
    "add_generation_prompt": Refusal(idle=(True,), why="the template always begins a new turn"),
    "chat_template_kwargs": Refusal(idle=({},), why="a plain prompt has no chat template"),
    "chat_template": Refusal(why="the model's own template is used"),
    "documents": Refusal(idle=([],), why="put them into a message"),
    "mm_processor_kwargs": Refusal(idle=({},), why="there is text only"),
    "add_special_tokens": Refusal(idle=(False,), why="the chat template has them"),
    "skip_special_tokens": Refusal(idle=(True,), why="special tokens are never shown"),
    "spaces_between_special_tokens": Refusal(idle=(True,), why="special tokens are never shown"),
    "include_stop_str_in_output": Refusal(idle=(False,), why="the output never includes the stop text"),
    "detokenize": Refusal(idle=(True,), why="the output is text"),
    "truncate_prompt_tokens": Refusal(why="the server setting MAX_INPUT_TOKENS does this"),
    "include_reasoning": Refusal(idle=(True,), why="reasoning is always separate from the content"),
    "thinking_token_budget": Refusal(why="use `espalier.max_reasoning`"),
    "priority": Refusal(idle=(0,), why="callers always take turns"),
    "request_id": Refusal(why="send it as the header x-request-id"),
    "cache_salt": Refusal(why="the prefix cache has no salt"),
    "guided_decoding_backend": Refusal(idle=("auto",), why="there is one backend"),
    "guided_whitespace_pattern": Refusal(why="use `espalier.constraint` with its `whitespace`"),
    # llama-server
    "id_slot": Refusal(idle=(-1,), why=_ROUTE),
    "n_keep": Refusal(idle=(0,), why="a prompt is never shifted"),
    "n_discard": Refusal(idle=(0,), why="a prompt is never shifted"),
    "n_probs": Refusal(idle=(0,), why="use `logprobs` and `top_logprobs`"),
    "post_sampling_probs": Refusal(idle=(False,), why=_ROUTE),
    "return_tokens": Refusal(idle=(False,), why="use `return_token_ids`"),
    "return_progress": Refusal(idle=(False,), why=_ROUTE),
    "timings_per_token": Refusal(idle=(False,), why=_ROUTE),
    "response_fields": Refusal(idle=([],), why=_ROUTE),
    "t_max_predict_ms": Refusal(idle=(0, -1), why="use `max_tokens` or `n_predict`"),
    "lora": Refusal(idle=([],), why="there are no adapters"),
    "reasoning_format": Refusal(idle=("auto", "deepseek"), why="reasoning is always separate from the content"),
    "reasoning_in_content": Refusal(idle=(False,), why="reasoning is always separate from the content"),
    "thinking_forced_open": Refusal(idle=(False,), why="use `espalier.reasoning`"),
    "parse_tool_calls": Refusal(idle=(True,), why="tool calls are always parsed"),
}


def without_idle(body: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The fields of a body without those that have no effect. known: fields of the body's class, also if REFUSED has
    them.

    Raises UnsupportedParameter for a refused field that asks for something, UnknownParameter for an unknown field.
    """
    found: dict[str, Any] = {}
    for name, value in body.items():
        if name in known:
            found[name] = value
        elif name in REFUSED:
            refusal = REFUSED[name]
            if value is not None and not any(_same(value, idle) for idle in refusal.idle):
                raise UnsupportedParameter(f"{name} is not supported here", hint=refusal.why, field=name)
        elif name not in ACCEPTED:
            raise unknown(name, known)
        elif value is not None and not isinstance(value, kind := TYPES.get(name, str)):
            raise BadRequest(f"{name} should be {_KINDS[kind]}", field=name)
    return found


def unknown(name: str, known: Collection[str], *, within: str = "") -> UnknownParameter:
    """The error for an unknown field, with the nearest known name as a hint. within: the path of its object."""
    near = difflib.get_close_matches(name[:100], sorted({*known, *(() if within else (*ACCEPTED, *REFUSED))}), n=1)
    path = f"{within}.{name}" if within else name
    hint = f"did you mean {near[0]!r}?" if near else None
    return UnknownParameter(f"there is no field {path[:200]!r}", hint=hint, field=path[:200])


def _same(value: Any, idle: Any) -> bool:
    """Equal as JSON values: 1 equals 1.0 but not true."""
    return isinstance(value, bool) == isinstance(idle, bool) and bool(value == idle)
