"""Reads bodies of `/api/chat` and `/api/generate` as bodies of OpenAI's routes, which ask the engine. It runs nothing.

A prompt that the chat template renders is a body of `/v1/chat/completions`; one that is raw, has a template of its own,
a suffix or a context is one of `/v1/completions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from espalier.errors import PromptTooLong
from espalier.sampling.config_names import UNLIMITED
from espalier.server.asking.adapted import TranslatedRequest, ask_adapted, shared_fields
from espalier.server.asking.fim import without_start
from espalier.server.asking.ollama.messages import talk_of
from espalier.server.asking.ollama.template import render_template
from espalier.server.asking.openai import ask_completion
from espalier.server.asking.thinking import can_reason
from espalier.server.asking.token_ids import check_ids, known_vocab
from espalier.server.asking.truncate import room_for_prompt
from espalier.server.bodies.ollama import OllamaBody, OllamaChatBody, OllamaGenerateBody
from espalier.server.bodies.openai import CompletionBody
from espalier.server.http.errors import BadRequest
from espalier.server.process.state import Process

Json = dict[str, Any]
LATEST = ":latest"
"""What Ollama's clients put behind a name that has no tag."""
BETWEEN = "\n\n"
"""What stands between system message and prompt for a model without a chat template."""
DEFAULTS: Mapping[str, float] = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
"""Ollama's defaults, where they are not the neutral values."""
PLACES = {
    **dict.fromkeys(("response_format", "response_format.json_schema", "response_format.json_schema.schema"), "format"),
    **dict.fromkeys(("chat_template_kwargs", "espalier.reasoning", "enable_thinking", "reasoning_effort"), "think"),
    "n_predict": "options.num_predict",
    "max_tokens": "options.num_predict",
}
"""From the beginning of a path in OpenAI's body to that of this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedOllamaRequest(TranslatedRequest):
    """A request of `/api/chat` or `/api/generate`."""

    #: Whether the reply has a `message`, not a `response`.
    has_message: bool
    #: Whether the text is split into thinking, content and calls.
    has_turn: bool
    #: Whether the reply has the tokens with which another request can go on from it.
    has_context: bool


def ask_ollama_chat(body: OllamaChatBody, process: Process) -> ParsedOllamaRequest:
    """Read a body of `/api/chat`. Raises InputError and its kin, each naming the field."""
    talk = talk_of(body.messages)
    warnings = [*talk.warnings]
    data = _shared(body, process, warnings) | _turn_fields(body, process, warnings) | {"messages": talk.messages}
    if body.tools:
        data["tools"] = [{"type": "function", **tool} for tool in body.tools]
    for name in ("tool_choice", "parallel_tool_calls"):
        if getattr(body, name) is not None:
            data[name] = getattr(body, name)
    places = _places(body) | talk.places
    return ask_adapted(data, process, _make(body, process, warnings, has_message=True), places=places)


def ask_ollama_generate(body: OllamaGenerateBody, process: Process) -> ParsedOllamaRequest:
    """Read a body of `/api/generate`. Raises InputError and its kin, each naming the field."""
    if body.raw:
        for name in ("system", "template", "context"):
            if getattr(body, name):
                raise BadRequest(f"a raw prompt has no {name}", hint="leave one of the two out", field=name)
    warnings: list[str] = []
    data = _shared(body, process, warnings)
    has_template = process.engine.capabilities.chat_template
    if has_template and not (body.raw or body.suffix or body.context or body.template):
        messages = [{"role": "system", "content": body.system}] if body.system else []
        data |= _turn_fields(body, process, warnings)
        data["messages"] = [*messages, {"role": "user", "content": body.prompt}]
        places = _places(body) | {"messages": "prompt", f"messages[{len(messages)}]": "prompt"}
        if messages:
            places |= {"messages[0]": "system"}
        make = _make(body, process, warnings, has_context=True)
        return ask_adapted(data, process, make, places=places)
    return _ask_text(body, process, data, warnings)


def _ask_text(body: OllamaGenerateBody, process: Process, data: Json, warnings: list[str]) -> ParsedOllamaRequest:
    """Ask for the continuation of a text, or of tokens."""
    if body.think:
        warnings.append("think has no effect on a prompt that the chat template does not render")
    if body.logprobs:
        data["logprobs"] = body.top_logprobs or 0
    has_gap = bool(body.suffix) and not body.template
    if has_gap and body.context:
        raise BadRequest("context does not go with suffix", hint="leave one of the two out", field="context")
    if has_gap and body.system:
        warnings.append("system has no effect: a model that fills a gap gets the two texts alone")
    data["prompt"] = _tokens(body, process) if body.context else _text(body)
    if has_gap:
        data["suffix"] = body.suffix
    make = _make(body, process, warnings, has_turn=False, has_context=not body.raw and not has_gap, is_cut=not has_gap)
    ask: Callable[..., ParsedOllamaRequest] = partial(ask_completion, default_tokens=UNLIMITED)
    return ask_adapted(data, process, make, places=_places(body), body=CompletionBody, ask=ask)


def _text(body: OllamaGenerateBody) -> str:
    if not body.template:
        return f"{body.system}{BETWEEN}{body.prompt}" if body.system and not body.suffix else body.prompt
    values = {"System": body.system or "", "Prompt": body.prompt, "Suffix": body.suffix or ""}
    return render_template(body.template, values)


def _tokens(body: OllamaGenerateBody, process: Process) -> list[int]:
    """The context and behind it the new turn, without what begins a text."""
    engine = process.engine.engine
    vocab = known_vocab(engine, "context")
    before = check_ids(body.context or (), vocab, "context")
    most = engine.capabilities.max_context
    if body.truncate is False and most and len(before) > most:
        raise PromptTooLong.over(most, tokens=len(before))
    if body.template or engine.template is None:
        ids = engine.encode(_text(body), add_special=False)
    else:
        messages = [{"role": "system", "content": body.system}] if body.system else []
        text = engine.template.render([*messages, {"role": "user", "content": body.prompt}])
        ids = engine.encode(text, add_special=False)
    return [*before, *without_start(engine, ids)]


def _shared(body: OllamaBody, process: Process, warnings: list[str]) -> Json:
    """The fields that OpenAI's two bodies share."""
    data = shared_fields(body)
    data |= {"stream": body.stream is not False, "model": own_name(body.model, process)}
    given = {} if body.options is None else body.options.model_dump(exclude_unset=True, exclude_none=True)
    context, num_ctx = process.engine.capabilities.max_context, given.pop("num_ctx", None)
    if context and num_ctx is not None and num_ctx > context:
        warnings.append(f"options.num_ctx is {num_ctx}, but the context of this model has {context} tokens")
    if "num_predict" in given:
        given["n_predict"] = max(given.pop("num_predict"), -1)
    for name, value in given.items():
        if data.setdefault(name, value) != value:
            raise BadRequest(
                f"options.{name} contradicts {name}", hint="leave one of the two out", field=f"options.{name}"
            )
    ours = body.espalier
    is_open = ours is None or (ours.preset is None and getattr(ours, "strategy", None) is None)
    if is_open and process.engine.capabilities.logits:  # elsewhere the other server's defaults hold
        data = {**DEFAULTS, **data}
    return data | _format_fields(body)


def _format_fields(body: OllamaBody) -> Json:
    if body.format is None or body.format == "":
        return {}
    if body.format == "json":
        return {"response_format": {"type": "json_object"}}
    if isinstance(body.format, str):
        raise BadRequest(f"format: {body.format[:60]!r} is no format", hint='"json", or a JSON schema', field="format")
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": body.format}}}


def _turn_fields(body: OllamaBody, process: Process, warnings: list[str]) -> Json:
    """The fields that only a chat has."""
    fields: Json = {}
    if body.logprobs:
        fields |= {"logprobs": True, "top_logprobs": body.top_logprobs or 0}
    engine = process.engine.engine
    if body.think is None:
        return fields
    if body.think is False:
        return {**fields, "enable_thinking": False}
    if not can_reason(engine):
        warnings.append("think has no effect: the model shows no reasoning markers")
        return fields
    if isinstance(body.think, str):
        fields["reasoning_effort"] = body.think
    return {**fields, "enable_thinking": True}


def _places(body: OllamaBody) -> dict[str, str]:
    options = () if body.options is None else body.options.model_fields_set
    return {name: f"options.{name}" for name in options} | PLACES


def _make(
    body: OllamaBody,
    process: Process,
    warnings: list[str],
    *,
    has_message: bool = False,
    has_turn: bool = True,
    has_context: bool = False,
    is_cut: bool = True,
) -> Callable[..., ParsedOllamaRequest]:
    """What makes the parsed request. is_cut: whether a prompt that is too long may be cut."""

    def make(**given: Any) -> ParsedOllamaRequest:
        limit = None
        if is_cut and body.truncate is not False and process.engine.engine.vocab is not None:
            sampling = given["requests"][0].sampling
            reply = None if sampling.max_tokens >= UNLIMITED else sampling.max_tokens
            limit = room_for_prompt(process.engine.capabilities.max_context, reply=reply)
        return ParsedOllamaRequest(
            **given
            | {
                "model": body.model if body.model == given["model"] + LATEST else given["model"],
                "warnings": (*given["warnings"], *warnings),
                "hints": tuple(PLACES.get(name, name) for name in given["hints"]),
                "report": body.espalier is not None,
                "input_limit": limit,
            },
            has_message=has_message,
            has_turn=has_turn,
            has_context=has_context and process.engine.capabilities.logits,
        )

    return make


def own_name(asked: str | None, process: Process) -> str | None:
    """The name of this server's that a client means: with `:latest` or without it."""
    if asked is not None and asked not in process.names and asked.removesuffix(LATEST) in process.names:
        return asked.removesuffix(LATEST)
    return asked
