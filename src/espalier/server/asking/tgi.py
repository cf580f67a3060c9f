"""Reads a body of TGI's `/generate` as one of `/v1/completions`, which asks the engine. It runs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from espalier.server.asking.adapted import TranslatedRequest, ask_adapted
from espalier.server.asking.openai import ask_completion
from espalier.server.bodies.openai import CompletionBody
from espalier.server.bodies.tgi import TgiBody, TgiGrammar, TgiParameters
from espalier.server.http.errors import BadRequest, UnsupportedParameter
from espalier.server.process.state import Process

Json = dict[str, Any]
NEW_TOKENS = 100
"""TGI's default of `max_new_tokens`."""
SAME = ("temperature", "top_k", "top_p", "typical_p", "repetition_penalty", "frequency_penalty", "seed", "stop")
SAMPLES = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "typical_p": 1.0}
"""Parameters that ask for sampling, unless they have this value."""
PLACES = {
    "prompt": "inputs",
    "max_tokens": "parameters.max_new_tokens",
    "logprobs": "parameters.top_n_tokens",
    "structured_outputs": "parameters.grammar",
    "structured_outputs.json": "parameters.grammar.value",
    "structured_outputs.regex": "parameters.grammar.value",
    **{name: f"parameters.{name}" for name in SAME},
}
"""From the beginning of a path in the body of completions to that of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTgiRequest(TranslatedRequest):
    """has_details: whether a whole reply has `details`."""

    has_details: bool = False


def ask_tgi(body: TgiBody, process: Process) -> ParsedTgiRequest:
    """Read a body. Raises InputError and its kin, each naming the field."""
    parameters = body.parameters or TgiParameters()
    _refuse(parameters)
    can = process.engine.capabilities
    data: Json = {
        name: value
        for name in SAME
        if (value := getattr(parameters, name)) is not None and (name, value) != ("stop", [])
    }
    is_sampling = parameters.do_sample or any(data.get(name, idle) != idle for name, idle in SAMPLES.items())
    data.setdefault("temperature", 1.0 if is_sampling else 0.0)
    data |= {"prompt": body.inputs, "max_tokens": parameters.max_new_tokens or NEW_TOKENS, "stream": bool(body.stream)}
    if body.model is not None:
        data["model"] = body.model
    if parameters.return_full_text:
        data["echo"] = True
    if parameters.top_n_tokens or ((body.stream or parameters.details) and (can.logits or can.logprobs)):
        data["logprobs"] = parameters.top_n_tokens or 0
    if parameters.grammar is not None:
        data["structured_outputs"] = _constraint(parameters.grammar)
    warnings: tuple[str, ...] = ()
    if parameters.decoder_input_details:
        warnings = ("parameters.decoder_input_details has no effect here: `prefill` is empty",)

    def make(**given: Any) -> ParsedTgiRequest:
        return ParsedTgiRequest(
            **given | {"warnings": (*given["warnings"], *body.told.warnings, *warnings)},
            has_details=bool(parameters.details),
            input_limit=parameters.truncate,
        )

    ask: Callable[..., ParsedTgiRequest] = ask_completion
    return ask_adapted(data, process, make, places=PLACES, body=CompletionBody, ask=ask)


def _refuse(parameters: TgiParameters) -> None:
    """Raises UnsupportedParameter for what cannot be had."""
    why = {
        "best_of": (parameters.best_of or 1) > 1 and "`/v1/completions` has `n`",
        "watermark": parameters.watermark and "nothing is watermarked",
        "adapter_id": parameters.adapter_id is not None and "there are no adapters",
    }
    for name, hint in why.items():
        if hint:
            raise UnsupportedParameter(f"{name} is not supported here", hint=hint, field=f"parameters.{name}")


def _constraint(grammar: TgiGrammar) -> Json:
    value = grammar.value
    if grammar.type == "regex":
        if not isinstance(value, str):
            raise BadRequest("the value of a regex is a text", field="parameters.grammar.value")
        return {"regex": value}
    if grammar.type == "json_schema" and isinstance(value, dict):
        value = value.get("schema", value)
    return {"json": value}
