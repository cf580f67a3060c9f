"""Writes requests as bodies of `/v1/chat/completions`; vLLM's fields only for vLLM. What is left out is noted."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from espalier.constraints.spec import JsonObject
from espalier.engines.base import Request
from espalier.engines.local.turns import as_messages
from espalier.errors import CapabilityError
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
                "json_schema": {"name": "output", "schema": json.loads(spec.text), "strict": True},
            }
        },
        "json_object": lambda spec: {"response_format": {"type": "json_object"}},
    }
)
"""What a plain server may enforce: kind -> fields of the body."""
VLLM_KINDS: Mapping[str, Callable[[Any], dict[str, Any]]] = MappingProxyType(
    {
        "json_schema": lambda spec: {"structured_outputs": {"json": json.loads(spec.text)}},
        "json_object": lambda spec: {"structured_outputs": {"json_object": True}},
        "regex": lambda spec: {"structured_outputs": {"regex": spec.pattern}},
        "choice": lambda spec: {"structured_outputs": {"choice": list(spec.options)}},
        "gbnf": lambda spec: {"structured_outputs": {"grammar": spec.grammar}},
    }
)


def body_of(request: Request, *, model: str, seed: int, is_vllm: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The body of a streamed request, and notes on what is the server's own. Raises SamplingError and CapabilityError
    naming the field that such a server does not have."""
    fields, notes = _sampling(replace(request.sampling, n=1, seed=seed), is_vllm=is_vllm)
    messages = [dict(one) for one in as_messages(request)]
    body = fields | {"model": model, "messages": messages, "stream": True, "stream_options": {"include_usage": True}}
    if isinstance(request.constraint, JsonObject) and request.constraint.kinds != ("object",):
        raise CapabilityError(
            "OpenAI's servers write objects only", hint="use JsonSchema for other values", field="constraint"
        )
    if request.constraint is not None:
        kinds = VLLM_KINDS if is_vllm else PLAIN_KINDS
        body |= kinds[request.constraint.kind](request.constraint)
    return body, notes


def _sampling(config: SamplingConfig, *, is_vllm: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    if config.sampler_order == DEFAULTS.sampler_order:  # nobody asked for an order; samplers it lacks are refused
        config = replace(config, sampler_order=OPENAI_ORDER)
    left: tuple[str, ...] = ()
    if all(getattr(config, name) == getattr(DEFAULTS, name) for name in PENALTY):  # our default, which nobody asked for
        left, config = ("repetition_penalty",), replace(config, repetition_penalty=1.0, repetition_window=-1)
    found = to_openai(config) | {"temperature": config.temperature, "max_tokens": config.max_tokens}
    ours = {theirs: name for name, theirs in OPENAI_FIELDS.items()}
    others = [] if is_vllm else sorted(found.keys() - PLAIN)
    for name in others:
        field = ours.get(name, name)
        if getattr(config, field) != getattr(DEFAULTS, field):
            raise CapabilityError(
                f"OpenAI's servers have no {field}", hint=f"leave `{field}` out; vLLM and llama-server have it",
                field=field,
            )  # fmt: skip
    left = (*left, *others)
    kept = {name: value for name, value in found.items() if name not in others}
    return kept, (f"{', '.join(left)}: the server's own",) if left else ()
