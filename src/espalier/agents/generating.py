"""The verbs that generate: `generate`, `generate_structured`, `generate_tool_call`, `explain`.

Each turns its arguments into a `Question`. Everything that an argument names holds, by the one rule of
`constraints/joining/rule.py`. Nothing is run here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from espalier.agents.arguments import (
    CLOSED,
    DECODING,
    FORMS,
    PRESET,
    PROMPT,
    REASONING,
    SAFETY,
    SAMPLING,
    SCHEMA,
    SENT_ON,
    SYSTEM,
    TRACE,
)
from espalier.agents.verb import Answer, Arguments, Desk, Question, Verb
from espalier.api.explaining import explained
from espalier.constraints.filters.matcher import schema_spec
from espalier.constraints.joining.named import READERS
from espalier.constraints.joining.rule import together
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.spec import Spec
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import Result
from espalier.errors import EspalierError, GenerationError, InputError

SHARED = {**PRESET, **SAFETY, **SAMPLING, **DECODING, **TRACE}
SHOWN = 400
"""Characters of a text in an error."""

ANSWER: Mapping[str, Any] = {
    "text": {"type": "string", "description": "Everything that was generated."},
    "content": {"type": "string", "description": "The text without reasoning and tool calls."},
    "reasoning": {"type": ["string", "null"]},
    "token_count": {"type": "integer"},
    "prompt_tokens": {"type": "integer"},
    "finish_reason": {"enum": ["stop", "length", "tool_calls"]},
    "stop_reason": {"type": ["string", "integer", "null"], "description": "The stop text or id that ended it."},
    "seed": {"type": "integer"},
    "parsed": {"description": "The JSON value of the text, where a constraint makes it JSON."},
    "valid": {"type": ["boolean", "null"], "description": "The verdict of an independent validator; null: not judged."},
    "breaks": {
        "enum": ["enforced", "checked", "cut", None],
        "description": "What an invalid text breaks: what was enforced (then the call fails), what is only checked, or "
        "nothing, for it was cut.",
    },
    "errors": {"type": "array", "items": {"type": "string"}, "description": "What the validator found."},
    "notes": {
        "type": "array",
        "items": {"type": "string"},
        "description": "What was replaced, and what is not enforced.",
    },
    "trace_id": {"type": ["string", "null"], "description": "Of the stored trace: explain_trace, trace://{id}."},
}
ALWAYS = (
    "text",
    "content",
    "token_count",
    "prompt_tokens",
    "finish_reason",
    "stop_reason",
    "seed",
    "valid",
    "errors",
    "notes",
    "trace_id",
)
FINDING = {
    "type": "object",
    "properties": {"severity": {"type": "string"}, "message": {"type": "string"}},
    "required": ["severity", "message"],
}
EXPLANATION: Mapping[str, Any] = {
    "text": {"type": "string"},
    "finish_reason": {"type": "string"},
    "model": {"type": "string"},
    "verdict": {"type": ["object", "null"]},
    "cost": {"type": "object", "description": "Tokens, nats of tax, rejected, changed and forced steps, by path."},
    "findings": {"type": "array", "items": FINDING, "description": "Why it was expensive, and what to do."},
}


def _generate(arguments: Arguments, desk: Desk) -> Question:
    return _question(arguments, desk, answer)


def _generate_structured(arguments: Arguments, desk: Desk) -> Question:
    defaults, notes = _structured_defaults(arguments, desk)

    def read(result: Result, trace_id: str | None) -> Answer:
        data = answer(result, trace_id)
        data["notes"] += notes
        _check_whole(result)
        try:
            data["json"] = json.loads(result.content)
        except (ValueError, RecursionError) as error:
            raise GenerationError(f"the answer is not JSON: {error}; it is {_shorten(result.content)}") from error
        return data

    return _question({**defaults, **arguments}, desk, read)


def _structured_defaults(arguments: Arguments, desk: Desk) -> tuple[dict[str, Any], list[str]]:
    """What `generate_structured` asks for where the arguments say nothing of it, and notes on what the engine or the
    schema does not allow."""
    defaults: dict[str, Any] = {}
    notes: list[str] = []
    if "on_budget" not in arguments and desk.engine.capabilities.logits:
        defaults["on_budget"] = "close"
    elif "on_budget" not in arguments:
        notes.append(f"{desk.engine.name} {NO_PLAN}")
    if "closed" not in arguments:
        defaults["closed"] = closes = _can_close(arguments["json_schema"])
        if not closes:
            notes.append(NOT_CLOSED)
    return defaults, notes


NO_PLAN = "cannot lead a text to its end within max_tokens (on_budget): a longer one is cut off, which is an error"
NOT_CLOSED = "the schema is not closed: no value satisfies it without names beyond the declared ones"


def _can_close(schema: Any) -> bool:
    """Whether a closed schema has a value, if the schema has one. What is wrong with the schema itself is told when it
    is read for the request."""
    try:
        LoweredSchema(schema_spec(schema, closed=True)).expansion  # noqa: B018  # computed here
    except EspalierError:
        try:
            LoweredSchema(schema_spec(schema)).expansion  # noqa: B018
        except EspalierError:
            return True
        return False
    return True


def _generate_tool_call(arguments: Arguments, desk: Desk) -> Question:
    if not arguments["available_tools"]:
        raise InputError("there is no tool", hint="name at least one", field="available_tools")

    def read(result: Result, trace_id: str | None) -> Answer:
        call = result.tool_calls[0] if result.tool_calls else None
        if call is None or call.parsed is None:
            raise GenerationError(
                f"the call was not finished within the limit; the text is {_shorten(result.text)}",
                hint="a larger max_tokens",
                field="max_tokens",
            )
        made = {"name": call.name, "arguments": call.parsed}
        return answer(result, trace_id) | {"tool_call": made, "raw_text": result.text}

    with blaming("available_tools"):
        return _question(arguments, desk, read, tools=arguments["available_tools"], tool_choice="required", max_calls=1)


def explain_question(arguments: Arguments, desk: Desk) -> Question:
    """The generation that is explained. Raises InputError where no constraint is named."""
    if not any(name in arguments for name in (*FORMS, "safety", "preset")):
        raise InputError("there is no constraint to explain", hint="json_schema, regex, ...", field="json_schema")

    def read(result: Result, trace_id: str | None) -> Answer:
        if result.trace is None:
            raise AssertionError("a trace was asked for")
        return explained(result.trace, "tool", seed=result.seed) | {"trace_id": trace_id}

    return _question(arguments, desk, read, level="steps")


def _question(arguments: Arguments, desk: Desk, read: Any, *, level: str | None = None, **more: Any) -> Question:
    keeps = bool(arguments.get("trace"))
    options: dict[str, Any] = {name: arguments[name] for name in SENT_ON if name in arguments and name not in FORMS}
    options.pop("safety", None)
    if isinstance(stop := options.get("stop"), str):
        options["stop"] = [stop]
    if (spec := constraint_of(arguments)) is not None:
        options["constraint"] = spec
    if "system_prompt" in arguments:
        options["system"] = arguments["system_prompt"]
    options |= {"default_order": desk.order, "default_reasoning": desk.reasoning}
    if "strategy" in arguments:
        with blaming("strategy"):
            STRATEGIES.require(arguments["strategy"])
    if "preset" in arguments:
        with blaming("preset"):
            options["preset"] = desk.presets.get(arguments["preset"])
    level = level or ("steps" if keeps else "summary")
    return Question(prompt=arguments["prompt"], options=options | {"trace": level} | more, read=read, keeps_trace=keeps)


def constraint_of(arguments: Arguments) -> Spec | None:
    """All that the arguments name, joined. Raises InputError and its subclasses, naming the argument."""
    specs: list[Spec | None] = []
    for name, read in {**READERS, "constraint": Spec.from_json, "choices": READERS["choice"]}.items():
        if name in arguments:
            with blaming(name):
                specs.append(read(arguments[name]))
    return together(*specs)


@contextmanager
def blaming(field: str) -> Iterator[None]:
    """Errors inside are about this argument."""
    try:
        yield
    except EspalierError as error:
        error.field = field
        raise


def answer(result: Result, trace_id: str | None) -> Answer:
    """What every generation tells. Raises GenerationError for a text that breaks what was called enforced."""
    if result.breach is not None:
        raise GenerationError(f"{result.breach.told}; the text is {_shorten(result.text)}")
    verdict = result.verdict
    return {
        "text": result.text,
        "content": result.content,
        "reasoning": result.reasoning,
        "token_count": result.usage.completion_tokens,
        "prompt_tokens": result.usage.prompt_tokens,
        "finish_reason": result.finish_reason,
        "stop_reason": result.stop_reason,
        "seed": result.seed,
        "parsed": result.parsed,
        "valid": None if verdict is None else verdict.valid,
        "breaks": None if verdict is None else verdict.breaks,
        "errors": [] if verdict is None else list(verdict.errors),
        "notes": list(result.notes),
        "trace_id": trace_id,
    }


def _check_whole(result: Result) -> None:
    """Raises GenerationError for an answer that was cut off, or is not valid; the text is in the message."""
    if result.finish_reason == "length" and not result.closed_by_budget:
        raise GenerationError(
            f"the answer was cut off: {_shorten(result.text)}", hint="a larger max_tokens", field="max_tokens"
        )
    if result.verdict is not None and result.verdict.valid is False:
        raise GenerationError(
            f"the answer is not valid: {'; '.join(result.verdict.errors)[:SHOWN]}; it is {_shorten(result.text)}",
            field="json_schema",
        )


def _shorten(text: str) -> str:
    return repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


GENERATE = Verb(
    name="generate",
    title="Generate",
    about="Generate text with the local model, under any constraints: a preset, a JSON Schema, a grammar, a regular "
    "expression, choices, a safety filter. All that are given hold together, at every token.",
    properties={**PROMPT, **SYSTEM, **FORMS, **CLOSED, **SHARED, **REASONING},
    required=("prompt",),
    output=ANSWER,
    always=ALWAYS,
    asks=_generate,
    is_read_only=False,
)
STRUCTURED = Verb(
    name="generate_structured",
    title="Generate JSON",
    about="Generate a JSON document that is valid under a JSON Schema. The schema is enforced at every token, its "
    "objects have no names beyond their `properties` unless closed is false, and the document is ended within "
    "max_tokens.",
    properties={**PROMPT, **SCHEMA, **CLOSED, **SYSTEM, **SHARED, **REASONING},
    required=("prompt", "json_schema"),
    output={**ANSWER, "json": {"description": "The document."}},
    always=(*ALWAYS, "json"),
    asks=_generate_structured,
    is_read_only=False,
)
TOOL_CALL = Verb(
    name="generate_tool_call",
    title="Generate a tool call",
    about="Let the model call one of the given tools: the call parses, names one of them, and its arguments are valid "
    "under that tool's schema.",
    properties={
        **PROMPT,
        "available_tools": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "description": {"type": "string"},
                    "parameters": {"type": "object"},
                },
            },
            "minItems": 1,
            "description": "What may be called: name, description and parameters (a JSON Schema) of each.",
        },
        **SYSTEM,
        **SHARED,
        **REASONING,
    },
    required=("prompt", "available_tools"),
    output={
        **ANSWER,
        "tool_call": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "arguments": {"type": "object"}},
            "required": ["name", "arguments"],
        },
        "raw_text": {"type": "string"},
    },
    always=(*ALWAYS, "tool_call", "raw_text"),
    asks=_generate_tool_call,
    is_read_only=False,
)
EXPLAIN = Verb(
    name="explain",
    title="Explain a constraint",
    about="Generate once, and explain what the constraint cost: the tax in nats, where, why, and what to do about it.",
    properties={**PROMPT, **SYSTEM, **FORMS, **CLOSED, **SHARED, **REASONING},
    required=("prompt",),
    output={**EXPLANATION, "seed": {"type": "integer"}, "trace_id": {"type": ["string", "null"]}},
    always=(*EXPLANATION, "seed", "trace_id"),
    asks=explain_question,
    is_read_only=False,
)
