"""Writes requests as bodies of `/v1/chat/completions` and `/v1/completions`; vLLM's fields only for vLLM. What is left
out is noted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from espalier.chat.tools import Tool
from espalier.constraints.spec import Gbnf, JsonObject, Spec
from espalier.constraints.to_gbnf import NO_COUNTING, refused
from espalier.engines.base import Request
from espalier.engines.local.turns import as_messages
from espalier.errors import CapabilityError, SamplingError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import OPENAI_FIELDS, OPENAI_ORDER, to_openai

PLAIN = frozenset(
    ("temperature", "top_p", "max_tokens", "seed", "stop", "frequency_penalty", "presence_penalty", "logit_bias")
)
"""Sampling fields of OpenAI's own; the others are vLLM's."""
DEFAULTS = SamplingConfig()
PENALTY = ("repetition_penalty", "repetition_window", "frequency_penalty", "presence_penalty")
MOST_LISTED = 20
"""Candidates of a step that OpenAI's servers list at most."""


PLAIN_KINDS: Mapping[str, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        "json_schema": lambda spec: {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "output", "schema": spec.explicit().schema, "strict": True},
            }
        },
        "json_object": lambda spec: {"response_format": {"type": "json_object"}},
    }
)
"""What a plain server may enforce: kind -> fields of the body."""
Server: TypeAlias = Literal["plain", "vllm", "old-vllm"]
"""old-vllm: before 0.11, which ignores `structured_outputs`."""
VLLM_ONLY = MappingProxyType(
    {"chat_template_kwargs": "template_variables", "add_generation_prompt": "continue_final_message"}
)
"""A field of chats that only vLLM has -> the field that asks for it."""


def _grammar_fields(spec: Gbnf) -> dict[str, Any]:
    """Raises CapabilityError for limits of tokens, which a grammar sent as text has none of."""
    if spec.token_limits:
        raise refused(spec, NO_COUNTING, "leave the limit of the rule out, or count characters, such as {0,40}")
    return {"structured_outputs": {"grammar": spec.grammar}}


VLLM_KINDS: Mapping[str, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        "json_schema": lambda spec: {"structured_outputs": {"json": spec.explicit().schema}},
        "json_object": lambda spec: {"structured_outputs": {"json_object": True}},
        "regex": lambda spec: {"structured_outputs": {"regex": spec.pattern}},
        "choice": lambda spec: {"structured_outputs": {"choice": list(spec.options)}},
        "gbnf": _grammar_fields,
    }
)


GUIDED = MappingProxyType(
    {"json": "guided_json", "regex": "guided_regex", "choice": "guided_choice", "grammar": "guided_grammar"}
)
"""A key of `structured_outputs` -> the field of vLLM before 0.11. `json_object` went as `response_format`."""


def processor_fields(spec: Spec) -> dict[str, Any]:
    """The fields that ask our own processor inside vLLM, which can hold any kind."""
    return {"vllm_xargs": {"espalier": json.dumps({"constraint": spec.to_json()})}}


def kinds_of(server: Server) -> Mapping[str, Callable[[Any], dict[str, Any]]]:
    """The kinds of constraints that a server is asked to hold, and the fields that ask it."""
    return PLAIN_KINDS if server == "plain" else VLLM_KINDS


def body_of(
    request: Request,
    *,
    model: str,
    seed: int,
    server: Server,
    cache_salt: str | None = None,
    by_processor: bool = False,
    strict_tools: bool = False,
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body of a streamed request, and notes on what is the server's own. cache_salt: only requests with the same
    one share vLLM's prefix cache. by_processor: whether our processor inside vLLM holds the constraint. strict_tools:
    whether calls that must come are asked for as strict, without which vLLM holds them to no schema. Raises
    SamplingError and CapabilityError naming the field that such a server does not have."""
    config = replace(request.sampling, n=1, seed=seed)
    fields, notes = _preset_sampling(config, request.preset_fields, is_vllm=server != "plain")
    body = fields | {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    body |= _prompt(request, server)
    if strict_tools and request.tool_choice.mode == "required":
        for tool in body.get("tools", ()):
            tool["function"].setdefault("strict", True)
    if cache_salt is not None and server == "vllm":  # older ones may refuse the field
        body["cache_salt"] = cache_salt
    if request.constraint is not None and by_processor:
        return body | processor_fields(request.constraint), notes
    if isinstance(request.constraint, JsonObject) and request.constraint.kinds != ("object",):
        raise CapabilityError(
            "OpenAI's servers write objects only", hint="use JsonSchema for other values", field="constraint"
        )
    if request.constraint is not None:
        if request.raw and server == "plain":
            raise CapabilityError(
                "text completions of such servers hold no constraint", hint="leave `raw` out", field="constraint"
            )
        asked = kinds_of(server)[request.constraint.kind](request.constraint)
        body |= _guide_output(asked) if server == "old-vllm" else asked
    return body, notes


def _prompt(request: Request, server: Server) -> dict[str, Any]:
    """The prompt or the messages, with tools and the template's variables."""
    if request.raw:
        return {"prompt": request.prompt if request.prompt_ids is None else list(request.prompt_ids)}
    body: dict[str, Any] = {"messages": [dict(message) for message in as_messages(request)]}
    if request.tools:
        allowed, choice = request.tool_choice.allowed(request.tools), request.tool_choice
        body["tools"] = [_offer_tool(tool) for tool in allowed]
        named = {"type": "function", "function": {"name": allowed[0].name}}
        body["tool_choice"] = named if choice.single and len(allowed) == 1 else choice.mode
        if choice.single or request.max_calls == 1:
            body["parallel_tool_calls"] = False
    variables = dict(request.template_variables)
    if request.enable_thinking is not None:
        variables["enable_thinking"] = request.enable_thinking
    if variables:
        body["chat_template_kwargs"] = variables
    if request.turn == "continue":
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    elif request.turn == "none":
        body["add_generation_prompt"] = False
    for name, field in VLLM_ONLY.items():
        if name in body and server == "plain":
            if name == "chat_template_kwargs" and not request.template_variables:
                field = "enable_thinking"
            raise CapabilityError(
                f"OpenAI's servers have no {name}", hint=f"leave `{field}` out; vLLM has it", field=field
            )
    return body


def _offer_tool(tool: Tool) -> dict[str, Any]:
    """A tool as it is sent. Its schema says that arguments are an object, which is so for every tool of ours, and which
    a server that enforces schemas, such as vLLM, enforces where they say it."""
    shown = tool.to_json()
    shown["function"].pop("formats", None)
    parameters = shown["function"]["parameters"]
    if "object" in (parameters.get("type"), *_listed(parameters.get("type"))) or "type" not in parameters:
        shown["function"]["parameters"] = {**parameters, "type": "object"}
    return shown


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _guide_output(asked: dict[str, Any]) -> dict[str, Any]:
    (key, value), *_ = asked["structured_outputs"].items()
    if key == "json_object":
        return {"response_format": {"type": "json_object"}}
    return {GUIDED[key]: value}


def _preset_sampling(
    config: SamplingConfig, preset_fields: frozenset[str], *, is_vllm: bool
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The sampling fields, without those of a preset that such a server does not have."""
    left: dict[str, None] = {}
    while True:
        try:
            fields, notes = _sampling(config, is_vllm=is_vllm)
        except (CapabilityError, SamplingError) as error:
            # What penalties and the order mean depends on other fields of the same preset.
            names = PENALTY if error.field in PENALTY else (error.field,)
            mine = [name for name in names if name in preset_fields and name not in left]
            if not mine:
                raise
            left |= dict.fromkeys(mine)
            config = replace(config, **{name: getattr(DEFAULTS, name) for name in mine})
            continue
        gone = [name for name in left if OPENAI_FIELDS.get(name, name) not in fields]
        return fields, (*notes, f"of the preset, such a server lacks: {', '.join(gone)}") if gone else notes


def _sampling(config: SamplingConfig, *, is_vllm: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    if config.sampler_order == DEFAULTS.sampler_order:  # nobody asked for an order; samplers it lacks are refused
        config = replace(config, sampler_order=OPENAI_ORDER)
    left: tuple[str, ...] = ()
    if all(getattr(config, name) == getattr(DEFAULTS, name) for name in PENALTY):  # our default, which nobody asked for
        left, config = ("repetition_penalty",), replace(config, repetition_penalty=1.0, repetition_window=-1)
    fields = to_openai(config) | {"temperature": config.temperature, "max_tokens": config.max_tokens}
    ours = {theirs: name for name, theirs in OPENAI_FIELDS.items()}
    others = [] if is_vllm else sorted(fields.keys() - PLAIN)
    for name in others:
        field = ours.get(name, name)
        if getattr(config, field) != getattr(DEFAULTS, field):
            raise CapabilityError(
                f"OpenAI's servers have no {field}",
                hint=f"leave `{field}` out; vLLM and llama-server have it",
                field=field,
            )
    left = (*left, *others)
    kept = {name: value for name, value in fields.items() if name not in others}
    return kept, (f"{', '.join(left)}: the server's own",) if left else ()
