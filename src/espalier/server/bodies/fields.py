"""The fields of other servers' requests in three classes: what does something, what is a hint, what is refused.

A field of a body's class does something. A field in HINTS has no effect here and cannot change the answer: it is taken,
and the reply says so. A field in REFUSED would change the answer: it is refused by name, unless its value asks for
nothing. Every other field is unknown: a warning names it with the nearest known one; it is refused where the request or
the server is strict. An unknown field that looks like a constraint is always refused, unless its value is empty.
`null` is always "not given".

`docs/fields.md` is printed from these tables.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.decoding.options import OPTIONS as DECODING
from espalier.engines.request_options import OF_SCHEMAS
from espalier.nearest import MISSPELT, nearest
from espalier.server.http.errors import BadRequest, UnknownParameter, UnsupportedParameter


@dataclass(frozen=True, slots=True)
class Hint:
    """why: why it has no effect. kind: the JSON type that it is checked for; None for any value."""

    why: str
    kind: type | tuple[type, ...] | None = str


NUMBER = (int, float)
_LABEL = "a label for OpenAI's abuse checks"
_PREFIX = "the prefix cache keeps prefixes as long as there is room"
_TEMPLATE = "a plain prompt has no chat template"
_ONE_BACKEND = "there is one backend"
HINTS: Mapping[str, Hint] = {
    # OpenAI
    "user": Hint(_LABEL),
    "safety_identifier": Hint(_LABEL),
    "metadata": Hint("labels of stored completions, and none are stored by label", dict),
    "store": Hint("completions are not stored by request", bool),
    "prompt_cache_key": Hint("the prefix cache needs no key"),
    "prompt_cache_retention": Hint(_PREFIX),
    "prompt_cache_options": Hint(_PREFIX, dict),
    "prediction": Hint("a hint for speed that never changes the reply", dict),
    "reasoning_effort": Hint(_TEMPLATE),
    "service_tier": Hint("there is one tier"),
    "verbosity": Hint("no template has levels of it; ask for it in a message"),
    "stream_options.include_obfuscation": Hint("nothing is obfuscated", bool),
    "stream_options.continuous_usage_stats": Hint("the usage comes once, at the end", bool),
    # vLLM and SGLang
    "guided_decoding_backend": Hint(_ONE_BACKEND),
    "structured_outputs.backend": Hint(_ONE_BACKEND),
    "structured_outputs.disable_fallback": Hint("there is no fallback", bool),
    "priority": Hint("callers always take turns", NUMBER),
    "request_id": Hint("the header x-request-id names a request"),
    "rid": Hint("the header x-request-id names a request"),
    "cache_salt": Hint("each key has a prefix cache of its own"),
    "mm_processor_kwargs": Hint("there is text only", dict),
    "spaces_between_special_tokens": Hint("special tokens are never shown", bool),
    # llama-server
    "cache_prompt": Hint("the prefix cache changes no reply", bool),
    "id_slot": Hint("there are no slots", int),
    "slot_id": Hint("there are no slots", int),
    "n_keep": Hint("a prompt is never shifted", int),
    "n_discard": Hint("a prompt is never shifted", int),
    "preserved_tokens": Hint("special tokens are never shown", list),
    "n_cache_reuse": Hint("the prefix cache changes no reply", int),
    "tfs_z": Hint("llama.cpp has this sampler no more, and ignores it", NUMBER),
    "penalize_nl": Hint("llama.cpp has this switch no more, and ignores it", bool),
    "t_max_predict_ms": Hint("only llama-server's routes end a text at a late new line", NUMBER),
    "t_max_prompt_ms": Hint("REQUEST_SECONDS limits the time", NUMBER),
    "timings_per_token": Hint("only llama-server's routes, chat and completions have timings in each chunk", bool),
    "return_progress": Hint("only llama-server's route /completion tells how far the prompt is", bool),
    "include_reasoning": Hint("the text behind a plain prompt is shown whole", bool),
    # Ollama
    "options.num_keep": Hint("a prompt is never shifted", int),
    **{
        f"options.{name}": Hint("it is set when the model is opened", None)
        for name in (
            "num_batch",
            "num_gpu",
            "main_gpu",
            "low_vram",
            "f16_kv",
            "logits_all",
            "vocab_only",
            "use_mmap",
            "use_mlock",
            "num_thread",
            "numa",
            "draft_num_predict",
        )
    },
    "options.tfs_z": Hint("llama.cpp has this sampler no more, and ignores it", NUMBER),
    "options.penalize_newline": Hint("llama.cpp has this switch no more, and ignores it", bool),
    # Open WebUI, KoboldCpp
    "function_calling": Hint("whether the front end calls the functions itself"),
    "grammar_retain_state": Hint("a grammar begins with each reply", bool),
    # the word-list server, the logging server
    "auth_token": Hint("the logging server's, for downloads, of which there are none"),
    "custom_id": Hint("a label of the client's own"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedField:
    """idle: values that ask for nothing, besides null. why: the hint, such as what to use instead."""

    idle: tuple[Any, ...] = ()
    why: str = "leave it out"


_BEST_OF = 'use `n` with `use_beam_search`, or "espalier": {"strategy": "best_of", "particles": ...}'
_WHOLE_TEXT = "the text behind a plain prompt is shown whole; /v1/chat/completions splits reasoning off"
_ROUTES = "only /v1/chat/completions and /v1/completions have beam search"
_ROUTE = "only llama-server's route /completion has it"
_FORMAT = 'use `response_format`: {"type": "json_schema", "json_schema": {"schema": {...}}}'
REFUSED: Mapping[str, UnsupportedField] = {
    # OpenAI
    "audio": UnsupportedField(why="there is text only"),
    "modalities": UnsupportedField(idle=(["text"],), why='there is text only: ["text"]'),
    "functions": UnsupportedField(idle=([],), why="only /v1/chat/completions has functions"),
    "function_call": UnsupportedField(idle=("none", "auto"), why="only /v1/chat/completions has functions"),
    "moderation": UnsupportedField(why="there is no moderation here"),
    "web_search_options": UnsupportedField(why="there is no web search"),
    "suffix": UnsupportedField(idle=("",), why="only /v1/completions has it"),
    "text": UnsupportedField(why=_FORMAT),
    # vLLM, SGLang and the word-list server
    "best_of": UnsupportedField(idle=(1,), why=_BEST_OF),
    "use_beam_search": UnsupportedField(idle=(False,), why=_ROUTES),
    **{option.openai: UnsupportedField(idle=option.idle, why=_ROUTES) for option in DECODING.values() if option.openai},
    "prompt_logprobs": UnsupportedField(idle=(0,), why="only /v1/chat/completions and /v1/completions have it"),
    "logprob_token_ids": UnsupportedField(idle=([],), why="use `top_logprobs`"),
    "return_tokens_as_token_ids": UnsupportedField(idle=(False,), why="use `return_token_ids`"),
    "continue_final_message": UnsupportedField(idle=(False,), why="a plain prompt has no messages"),
    "add_generation_prompt": UnsupportedField(idle=(True,), why="a plain prompt has no messages"),
    "chat_template_kwargs": UnsupportedField(idle=({},), why=_TEMPLATE),
    "chat_template": UnsupportedField(why="the model's own template is used"),
    "documents": UnsupportedField(idle=([],), why="put them into a message"),
    "add_special_tokens": UnsupportedField(idle=(False,), why="the chat template has them"),
    "skip_special_tokens": UnsupportedField(idle=(True,), why="special tokens are never shown"),
    "include_stop_str_in_output": UnsupportedField(idle=(False,), why="the output never includes the stop text"),
    "no_stop_trim": UnsupportedField(idle=(False,), why="the output never includes the stop text"),
    "detokenize": UnsupportedField(idle=(True,), why="the output is text"),
    "truncate_prompt_tokens": UnsupportedField(why="the server setting MAX_INPUT_TOKENS does this"),
    "separate_reasoning": UnsupportedField(idle=(True, False), why=_WHOLE_TEXT),
    "thinking_token_budget": UnsupportedField(why=_TEMPLATE),
    "guided_whitespace_pattern": UnsupportedField(why="use `espalier.constraint` with its `whitespace`"),
    "images": UnsupportedField(idle=([],), why="this model reads text only"),
    "image_data": UnsupportedField(idle=([],), why="this model reads text only"),
    "extra_body": UnsupportedField(idle=({},), why="a field of the Python SDK: its contents belong at the top level"),
    # Ollama, Anthropic, TGI
    "format": UnsupportedField(idle=("",), why=_FORMAT),
    "output_format": UnsupportedField(why=_FORMAT),
    "output_config": UnsupportedField(why=_FORMAT),
    # llama-server
    "n_probs": UnsupportedField(idle=(0,), why="use `logprobs` and `top_logprobs`"),
    "post_sampling_probs": UnsupportedField(idle=(False,), why=_ROUTE),
    "return_tokens": UnsupportedField(idle=(False,), why="use `return_token_ids`"),
    "response_fields": UnsupportedField(idle=([],), why=_ROUTE),
    "lora": UnsupportedField(idle=([],), why="there are no adapters"),
    "reasoning_format": UnsupportedField(idle=("auto", "none", "raw", "deepseek", "deepseek-legacy"), why=_WHOLE_TEXT),
    "reasoning_in_content": UnsupportedField(idle=(True, False), why=_WHOLE_TEXT),
    "thinking_forced_open": UnsupportedField(idle=(False,), why="use `espalier.reasoning`"),
    "parse_tool_calls": UnsupportedField(idle=(True,), why="tool calls are always parsed"),
}
CONSTRAINTS = frozenset(
    {
        "response_format",
        "structured_outputs",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "choice",
        "regex",
        "ebnf",
        "structural_tag",
        "grammar",
        "json_schema",
        "safety",
        "tools",
        "tool_choice",
        *(option.name for option in OF_SCHEMAS),
        "functions",
        "function_call",
        "vocab_lang",
        "vocab_n_words",
        "bad_words",
        "allowed_token_ids",
        "logit_bias",
        "espalier",
        "output_format",
        "output_config",
        "format",
        "guided_whitespace_pattern",
        "extra_body",
    }
)
"""Fields that hold the answer to something. A misspelt one among the unknown fields is refused: to take it would be to
drop what the client holds for enforced."""
LOOKS_LIKE = re.compile(
    r"grammar|schema|regex|guided|structured|constrain|json|ebnf|lark|gbnf|choices|bann?ed|allow(ed)?_", re.IGNORECASE
)
"""Words by which an unknown field looks like a constraint."""
_KINDS = {
    dict: "an object",
    list: "a list",
    bool: "true or false",
    str: "a text",
    int: "a whole number",
    NUMBER: "a number",
}
EMPTY: tuple[Any, ...] = (None, False, 0, "", [], {})
"""Values with which an unknown field asks for nothing."""
MOST_HINTED = 16
"""Unknown fields whose warning says the nearest name, which takes time to look for."""
MOST_UNKNOWN = 256
"""Unknown fields of a body; more are refused, since each takes time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedFields:
    """fields: those that do something. hints: names of fields that have no effect. unknown: a warning for each unknown
    field."""

    fields: dict[str, Any]
    hints: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def sort_fields(
    body: Mapping[str, Any], known: Collection[str], *, strict: bool, within: str = "", ours: Collection[str] = ()
) -> SortedFields:
    """The fields of a body, or of an object in it, by class. known: fields of the body's class, whatever the tables
    say of them. within: the path of the object. ours: fields of the body's `espalier`.

    Raises UnsupportedParameter for a refused field that asks for something, BadRequest for a hint of another type, and
    UnknownParameter for an unknown field that looks like a constraint and is not empty, for one too many, or if strict,
    for any.
    """
    kept_fields: dict[str, Any] = {}
    hints: list[str] = []
    told: list[str] = []
    # A front end sends one grammar under the names of several servers: nothing is lost where one of them is known.
    constraints = [body[name] for name in CONSTRAINTS.intersection(known, body)]
    for name, value in body.items():
        path = f"{within}.{name}" if within else name
        if name in known:
            if value is not None:
                kept_fields[name] = value
        elif path in HINTS:
            if value is not None:
                _check_kind(path, value, HINTS[path].kind)
                hints.append(path)
        elif path in REFUSED:
            refusal = REFUSED[path]
            if value is not None and not any(same(value, idle) for idle in refusal.idle):
                raise UnsupportedParameter(f"{path} is not supported here", hint=refusal.why, field=path)
        elif value is not None:
            asks = not any(same(value, idle) for idle in (*EMPTY, *constraints))
            if strict or len(told) >= MOST_UNKNOWN or (asks and looks_like_constraint(name)):
                raise unknown(name, known, within=within, ours=ours)
            has_hint = len(told) < MOST_HINTED
            told.append(str(unknown(name, known, within=within, ours=ours)) if has_hint else absent(path))
    return SortedFields(fields=kept_fields, hints=tuple(hints), unknown=tuple(told))


def unknown(name: str, known: Collection[str], *, within: str = "", ours: Collection[str] = ()) -> UnknownParameter:
    """The error for an unknown field, with the nearest known name as a hint. within: the path of its object. ours:
    fields of the body's `espalier`, where they belong."""
    elsewhere = {pair: f"espalier.{pair}" for pair in ours if pair not in known}
    every = known if within else ({*_every(known)} - {name}) | elsewhere.keys()
    near = nearest(name, every, most=1)
    path = f"{within}.{name}" if within else name
    hint = f"did you mean {elsewhere.get(near[0], near[0])!r}?" if near else None
    return UnknownParameter(absent(path), hint=hint, field=path[:200])


def absent(path: str) -> str:
    """What the reply says of an unknown field."""
    return f"there is no field {path[:200]!r}"


def looks_like_constraint(name: str) -> bool:
    """Whether an unknown field may be meant to hold the answer to something."""
    return LOOKS_LIKE.search(name[:200]) is not None or bool(nearest(name, CONSTRAINTS, most=1, share=MISSPELT))


def _every(known: Collection[str]) -> set[str]:
    return {*known, *HINTS, *REFUSED, *CONSTRAINTS}


def _check_kind(path: str, value: Any, kind: type | tuple[type, ...] | None) -> None:
    if kind is None:
        return
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise BadRequest(f"{path} should be {_KINDS[kind]}", field=path)


def same(value: Any, idle: Any) -> bool:
    """Equal as JSON values: 1 equals 1.0 but not true."""
    return isinstance(value, bool) == isinstance(idle, bool) and bool(value == idle)
