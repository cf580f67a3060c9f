"""Reads what a body says of reasoning, in the fields of every dialect: whether the model thinks, how much, and which
variables the chat template gets. It runs nothing.

OpenAI's `reasoning_effort` and `reasoning`, Anthropic's `thinking`, the `enable_thinking` of chat templates, and the
budgets of vLLM and llama-server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_args

from espalier.chat.reading.thoughts import find_reasoning
from espalier.chat.reasoning import REASONING, Reasoning
from espalier.engines.base import Request
from espalier.engines.protocols import Engine
from espalier.engines.request_options import REASONING as OPTION
from espalier.server.asking.draft import ReasoningPlace
from espalier.server.bodies.openai import ChatBody
from espalier.server.http.errors import BadRequest
from espalier.server.process.state import Process

SWITCH, EFFORT = "enable_thinking", "reasoning_effort"
"""Variables of chat templates."""
VARIABLES = "chat_template_kwargs"
MAX_VARIABLES = 1024
"""The most entries of `chat_template_kwargs`."""
EFFORT_TOKENS = {"minimal": 512, "low": 1024, "medium": 4096, "high": None, "xhigh": None, "max": None}
"""The most tokens of reasoning for an effort, where the template has no levels of it; None for no limit."""
NO_EFFECT = "has no effect: the model shows no reasoning markers"

IN_CONTENT = "the content begins with the reasoning where there is any; the constraint holds for what follows it"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingFields:
    """request: fields of a Request. options: arguments of `make_request`. names: from the field that an error names to
    the field of the body. hints: fields without effect. warnings: for the client."""

    request: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    hints: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def can_reason(engine: Engine, *, is_asked: bool = True) -> bool:
    """Whether the chat template or the vocabulary shows reasoning markers. is_asked: as in `find_reasoning`."""
    source = "" if engine.template is None else engine.template.source
    return _find_reasoning(source, engine.vocab, is_asked=is_asked) is not None


def may_reason(request: Request, engine: Engine) -> bool:
    """Whether the answer to a request of messages may have reasoning."""
    is_asked = request.reasoning is not None or request.max_reasoning is not None
    is_off = request.reasoning == "none" or request.enable_thinking is False
    if isinstance(request.reasoning, Reasoning):
        return True
    return not is_off and can_reason(engine, is_asked=is_asked)


def content_markers(request: Request, engine: Engine) -> Reasoning:
    """The markers of reasoning that a reply has in its content: those of the model. Where nothing shows them, and for
    gpt-oss, whose template refuses its own in a message, `<think>` stands for them."""
    if isinstance(request.reasoning, Reasoning):
        markers: Reasoning | None = request.reasoning
    else:
        markers = _find_reasoning(
            "" if engine.template is None else engine.template.source, engine.vocab, is_asked=True
        )
    return REASONING["think"] if markers is None or markers.in_channels else markers


_find_reasoning = lru_cache(maxsize=8)(find_reasoning)


def read_thinking(body: ChatBody, process: Process) -> ThinkingFields:
    """Raises BadRequest for fields that contradict each other, and for too many variables."""
    variables = dict(body.chat_template_kwargs or {})
    if len(variables) > MAX_VARIABLES:  # rendering takes time for each, whether the template reads it or not
        raise BadRequest(f"{VARIABLES} has {len(variables)} entries; the limit is {MAX_VARIABLES}", field=VARIABLES)
    engine = process.engine.engine
    has_markers, source = can_reason(engine), "" if engine.template is None else engine.template.source
    switched = _read_switch(body, variables)
    named, budget = _read_budget(body)
    effort_name, effort = _read_effort(body)
    hints: tuple[str, ...] = ()
    if effort is not None and EFFORT in source:
        if variables.setdefault(EFFORT, effort) != effort:
            raise BadRequest(f"{effort_name} is given twice", field=VARIABLES)
    elif effort is not None and effort != "none":
        if not has_markers or effort not in EFFORT_TOKENS:
            hints = (effort_name,)
        elif budget is None:
            named, budget = effort_name, EFFORT_TOKENS[effort]
    is_limited = budget is not None and has_markers
    if effort == "none":
        switched[effort_name] = False
    if is_limited and budget == 0:
        switched[named] = False
    _check_same(switched)
    if not switched:  # a limit alone asks for thinking; beside a switch it only holds where that says to think
        limits = {effort_name: effort is not None and not hints, named: is_limited}
        switched = {name: True for name, is_given in limits.items() if is_given}
    wanted = next(iter(switched.values()), None)
    request: dict[str, Any] = {"template_variables": variables} if variables else {}
    options: dict[str, Any] = {}
    warnings: list[str] = []
    if wanted is not None:
        request[SWITCH] = wanted
    if wanted and not has_markers:
        warnings.append(f"{next(iter(switched))} {NO_EFFECT}")
    elif wanted or (wanted is None and has_markers and _wants_reasoning_apart(body) and not _default_of(process)):
        options["reasoning"] = "auto"
    is_counted = engine.capabilities.logits or engine.capabilities.thought_limits
    if budget and wanted and has_markers and not is_counted:
        warnings.append(f"{named} is not held: the server behind this one does not count the tokens of its reasoning")
    elif budget and wanted and has_markers:
        options["max_reasoning"] = budget
    names = {"max_reasoning": named} if "max_reasoning" in options else {}
    return ThinkingFields(request=request, options=options, names=names, hints=hints, warnings=tuple(warnings))


ALL_PLACES: frozenset[ReasoningPlace] = frozenset(get_args(ReasoningPlace))
BY_FORMAT: Mapping[str, ReasoningPlace] = {
    "none": "content",
    "raw": "content",
    "deepseek": "separate",
    "parsed": "separate",
    "hidden": "omitted",
    "deepseek-legacy": "both",
}
"""Where the formats of llama-server and Groq have the reasoning; `auto` says nothing."""


def read_reasoning_place(body: ChatBody) -> ReasoningPlace:
    """Where the reply has the reasoning. A field with its default value excludes little, for clients send defaults too.
    Raises BadRequest for fields that contradict each other."""
    stated = ""
    places = ALL_PLACES
    for name, allowed in _stated_places(body):
        if not places & allowed:
            raise BadRequest(f"{name} contradicts {stated}", hint="leave one of them out", field=name)
        places, stated = places & allowed, name
    return next(place for place in get_args(ReasoningPlace) if place in places)


def _wants_reasoning_apart(body: ChatBody) -> bool:
    """Whether the body says that the reasoning is not in the content alone, by more than a field's default value."""
    is_apart = BY_FORMAT.get(body.reasoning_format or "auto") == "separate"
    return is_apart or read_reasoning_place(body) in ("omitted", "both")


def _default_of(process: Process) -> str | None:
    """The markers that the server's settings name; None where they leave it to the model."""
    default: str | None = process.app.settings.default_of(OPTION)
    return None if default == "auto" else default


def _stated_places(body: ChatBody) -> Iterator[tuple[str, frozenset[ReasoningPlace]]]:
    """Each field that says where the reasoning may be, with these places."""
    if body.include_reasoning is not None:
        yield "include_reasoning", ALL_PLACES - {"omitted"} if body.include_reasoning else frozenset({"omitted"})
    if body.reasoning_ is not None and body.reasoning_.exclude:
        yield "reasoning.exclude", frozenset({"omitted"})
    if body.separate_reasoning is not None:
        yield "separate_reasoning", ALL_PLACES - {"content"} if body.separate_reasoning else frozenset({"content"})
    by_format = BY_FORMAT.get(body.reasoning_format or "auto")
    if by_format is not None:
        yield "reasoning_format", frozenset({by_format})
    if body.reasoning_in_content:
        yield "reasoning_in_content", frozenset({"content", "both"})


def _read_switch(body: ChatBody, variables: dict[str, Any]) -> dict[str, bool]:
    """Whether to think, by the fields that say so; variables of the template that do are taken out. Raises
    BadRequest."""
    switched = {} if body.enable_thinking is None else {SWITCH: body.enable_thinking}
    for name in (SWITCH, "thinking"):
        if name == "thinking" and not isinstance(variables.get(name), bool):
            continue
        if name in variables:
            wanted = variables.pop(name)
            if not isinstance(wanted, bool):
                raise BadRequest(f"{name} must be true or false", field=VARIABLES)
            switched[VARIABLES] = wanted
            _check_same(switched)
    if body.thinking is not None and body.thinking.type != "auto":
        switched["thinking"] = body.thinking.type != "disabled"
    if body.reasoning_ is not None and body.reasoning_.enabled is not None:
        switched["reasoning.enabled"] = body.reasoning_.enabled
    _check_same(switched)
    return switched


def _check_same(switched: dict[str, bool]) -> None:
    """Raises BadRequest where one field says to think and another one not to."""
    first, *others = switched.items() or [("", False)]
    for name, wanted in others:
        if wanted != first[1]:
            raise BadRequest(f"{name} contradicts {first[0]}", hint="leave one of them out", field=name)


def _read_budget(body: ChatBody) -> tuple[str, int | None]:
    """The field that limits the reasoning, and to how many tokens; None for no limit."""

    def stated() -> Iterator[tuple[str, int | None]]:
        yield "thinking.budget_tokens", None if body.thinking is None else body.thinking.budget_tokens
        yield "reasoning.max_tokens", None if body.reasoning_ is None else body.reasoning_.max_tokens
        yield "thinking_token_budget", body.thinking_token_budget
        yield "thinking_budget_tokens", body.thinking_budget_tokens

    name, tokens = next(((name, tokens) for name, tokens in stated() if tokens is not None), ("", None))
    return name, None if tokens is None or tokens < 0 else tokens


def _read_effort(body: ChatBody) -> tuple[str, str | None]:
    """The field that states an effort, and the effort."""
    if body.reasoning_effort is None and body.reasoning_ is not None:
        return "reasoning.effort", body.reasoning_.effort
    return EFFORT, body.reasoning_effort
