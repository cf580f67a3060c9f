"""Fields of OpenAI, vLLM and llama-server that change nothing here, or that cannot be had: one table each, no code path
for any of them. A field that is in neither table nor in `openai.py` is unknown and refused with a hint.

`ACCEPTED` fields are read, checked for their JSON type (`TYPES`), and dropped, since an answer with them is an answer
without them. `REFUSED` fields are refused unless their value asks for nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.server.http.errors import BadRequest, UnknownParameter, UnsupportedParameter

ACCEPTED: Mapping[str, str] = {
    "user": "a label of OpenAI's for its own abuse checks",
    "safety_identifier": "a label of OpenAI's for its own abuse checks",
    "metadata": "labels of stored completions; nothing is stored by it",
    "prompt_cache_key": "prefixes are found again without a name",
    "prompt_cache_retention": "a prefix is kept as long as there is room",
    "prompt_cache_options": "a prefix is kept as long as there is room",
    "prediction": "makes OpenAI's answers faster, and never another",
    "service_tier": "there is one tier, and replies do not name it",
    "cache_prompt": "a kept prefix changes no answer",
    "custom_id": "a label of the client's own",
}


TYPES: Mapping[str, type] = {
    "metadata": dict, "prompt_cache_options": dict, "prediction": dict, "cache_prompt": bool,
}  # fmt: skip
"""Of the fields that are accepted, those that are no texts."""
_KINDS = {dict: "an object", bool: "true or false", str: "a text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """idle: the values that ask for nothing, beside null. why: what to say, or to do instead."""

    idle: tuple[Any, ...] = ()
    why: str = "leave it out"


_BEST_OF = 'say `n` with `use_beam_search`, or "espalier": {"strategy": "best_of", "particles": ...}'
_OLD = "an old field of OpenAI's: "
_ROUTES = "only /v1/chat/completions and /v1/completions search"
_ROUTE = "only llama-server's own route /completion has it"
REFUSED: Mapping[str, Refusal] = {
    # OpenAI
    "audio": Refusal(why="there is text only"),
    "modalities": Refusal(idle=(["text"],), why='there is text only: ["text"]'),
    "functions": Refusal(idle=([],), why=f"{_OLD}write `tools`"),
    "function_call": Refusal(why=f"{_OLD}write `tool_choice`"),
    "store": Refusal(idle=(False,), why="completions are not stored by request"),
    "moderation": Refusal(why="nothing is moderated here"),
    "web_search_options": Refusal(why="there is no search"),
    "reasoning_effort": Refusal(idle=("none",), why="say `espalier.reasoning` and `espalier.max_reasoning`"),
    "verbosity": Refusal(idle=("medium",), why="ask for it in a message"),
    "suffix": Refusal(idle=("",), why="text cannot be inserted before another"),
    # vLLM and the word-list server
    "best_of": Refusal(idle=(1,), why=_BEST_OF),
    "use_beam_search": Refusal(idle=(False,), why=_ROUTES),
    "num_beams": Refusal(idle=(1,), why=_ROUTES),
    "length_penalty": Refusal(idle=(1, 0), why=_ROUTES),
    "early_stopping": Refusal(idle=(False,), why=_ROUTES),
    "prompt_logprobs": Refusal(idle=(0,), why="only generated tokens have log probabilities"),
    "logprob_token_ids": Refusal(idle=([],), why="say `top_logprobs`"),
    "return_tokens_as_token_ids": Refusal(idle=(False,), why="say `return_token_ids`"),
    "continue_final_message": Refusal(idle=(False,), why="the template always begins a new turn"),
    "add_generation_prompt": Refusal(idle=(True,), why="the template always begins a new turn"),
    "chat_template_kwargs": Refusal(idle=({},), why="a plain prompt meets no template"),
    "chat_template": Refusal(why="the model's own template is used"),
    "documents": Refusal(idle=([],), why="put them into a message"),
    "mm_processor_kwargs": Refusal(idle=({},), why="there is text only"),
    "add_special_tokens": Refusal(idle=(False,), why="the template says which there are"),
    "skip_special_tokens": Refusal(idle=(True,), why="special tokens are never shown"),
    "spaces_between_special_tokens": Refusal(idle=(True,), why="special tokens are never shown"),
    "include_stop_str_in_output": Refusal(idle=(False,), why="a stop text is no part of the output"),
    "detokenize": Refusal(idle=(True,), why="the output is text"),
    "truncate_prompt_tokens": Refusal(why="the server's MAX_INPUT_TOKENS says it"),
    "include_reasoning": Refusal(idle=(True,), why="reasoning comes apart from the content"),
    "thinking_token_budget": Refusal(why="say `espalier.max_reasoning`"),
    "priority": Refusal(idle=(0,), why="callers take turns"),
    "request_id": Refusal(why="send it as the header x-request-id"),
    "cache_salt": Refusal(why="kept prefixes cannot be set apart"),
    "guided_decoding_backend": Refusal(idle=("auto",), why="there is one"),
    "guided_whitespace_pattern": Refusal(why="say `espalier.constraint` with its `whitespace`"),
    # llama-server
    "id_slot": Refusal(idle=(-1,), why=_ROUTE),
    "n_keep": Refusal(idle=(0,), why="a prompt is never shifted"),
    "n_discard": Refusal(idle=(0,), why="a prompt is never shifted"),
    "n_probs": Refusal(idle=(0,), why="say `logprobs` and `top_logprobs`"),
    "post_sampling_probs": Refusal(idle=(False,), why=_ROUTE),
    "return_tokens": Refusal(idle=(False,), why="say `return_token_ids`"),
    "return_progress": Refusal(idle=(False,), why=_ROUTE),
    "timings_per_token": Refusal(idle=(False,), why=_ROUTE),
    "response_fields": Refusal(idle=([],), why=_ROUTE),
    "t_max_predict_ms": Refusal(idle=(0, -1), why="say `max_tokens` or `n_predict`"),
    "lora": Refusal(idle=([],), why="there are no adapters"),
    "reasoning_format": Refusal(idle=("auto", "deepseek"), why="reasoning comes apart from the content"),
    "reasoning_in_content": Refusal(idle=(False,), why="reasoning comes apart from the content"),
    "thinking_forced_open": Refusal(idle=(False,), why="say `espalier.reasoning`"),
    "parse_tool_calls": Refusal(idle=(True,), why="calls are always read"),
}


def without_idle(body: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The fields of a body that mean something. known: those that its schema has, which may open a refused one.

    Raises UnsupportedParameter for a refused field that asks for something, UnknownParameter for one that is nowhere.
    """
    found: dict[str, Any] = {}
    for name, value in body.items():
        if name in known:
            found[name] = value
        elif name in REFUSED:
            refusal = REFUSED[name]
            if value is not None and not any(_same(value, idle) for idle in refusal.idle):
                raise UnsupportedParameter(f"{name} cannot be had here", hint=refusal.why, field=name)
        elif name not in ACCEPTED:
            raise unknown(name, known)
        elif value is not None and not isinstance(value, kind := TYPES.get(name, str)):
            raise BadRequest(f"{name}: it should be {_KINDS[kind]}", field=name)
    return found


def unknown(name: str, known: Collection[str], *, within: str = "") -> UnknownParameter:
    """An error for a field that is nowhere. within: the path of the object it stands in."""
    near = difflib.get_close_matches(name[:100], sorted({*known, *(() if within else (*ACCEPTED, *REFUSED))}), n=1)
    path = f"{within}.{name}" if within else name
    hint = f"did you mean {near[0]!r}?" if near else None
    return UnknownParameter(f"there is no field {path[:200]!r}", hint=hint, field=path[:200])


def _same(value: Any, idle: Any) -> bool:
    """1 is 1.0, and is not true."""
    return isinstance(value, bool) == isinstance(idle, bool) and bool(value == idle)
