"""Builds Requests from what users pass: prompts, options, presets, tools. Finds every error before anything is
rendered, compiled or generated. It knows no engine's internals."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from espalier.activations.capture.options import Activations
from espalier.api.options import hint_for
from espalier.chat.reasoning import read_reasoning
from espalier.chat.tools import Tool, hosted_types, read_choice
from espalier.chat.wire.formats import wire_format
from espalier.constraints.filters.matcher import MatcherFilter
from espalier.constraints.filters.safety import SafetyFilter
from espalier.constraints.joining.named import named_constraint
from espalier.constraints.joining.presets import demands_calls, merged
from espalier.constraints.joining.rule import is_filter, together, unenforced
from espalier.constraints.json_schema.typos import refuse_typos, typo_notes
from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import JsonSchema, Spec
from espalier.constraints.tools.schemas import closed_notes, tools_of
from espalier.decoding.options import FAITHFUL, OPTIONS, Decoding
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import Message, Request, SamplerName
from espalier.engines.request_options import CLOSED, SCHEMA_ORDER
from espalier.engines.request_options import OPTIONS as REQUEST
from espalier.errors import InputError, SamplingError, SchemaError
from espalier.sampling.config import FIELDS as SAMPLING
from espalier.sampling.config import MAX_N, NEUTRAL, SamplingConfig
from espalier.sampling.config_names import LLAMA_OWN, own_option, with_extra
from espalier.sampling.filters import FilterChain, LogitFilter
from espalier.sampling.presets.catalogue import Presets
from espalier.sampling.presets.spec import Preset
from espalier.schema.order import Order
from espalier.trace.recorders.protocol import Recorder
from espalier.trace.records import LEVELS, TraceLevel
from espalier.wording import OptionText, Setting
from espalier.wording import constraint as of_constraint

SAMPLING_NAMES = frozenset([*SAMPLING, *LLAMA_OWN])
Prompt: TypeAlias = "str | Sequence[Message]"


def split_prompts(prompt: Any) -> tuple[list[Prompt], bool]:
    """Prompts as a list, and whether only one was given: a text, or a list whose first item is a message. Raises
    InputError."""
    if isinstance(prompt, str):
        return [prompt], True
    if not isinstance(prompt, Sequence) or isinstance(prompt, bytes | bytearray):
        raise InputError(f"a prompt is a text or messages, not {type(prompt).__name__}", field="prompt")
    if not prompt:
        raise InputError("there is no prompt", field="prompt")
    if isinstance(prompt[0], Mapping):
        return [prompt], True
    return list(prompt), False


def make_request(
    prompt: Prompt,
    *,
    constraint: Any = None,
    json_schema: Any = None,
    regex: Any = None,
    choice: Any = None,
    grammar: Any = None,
    safety: Any = None,
    soft: SoftSpec | Sequence[SoftSpec] | None = None,
    filters: LogitFilter | Iterable[LogitFilter] | None = None,
    sampling: SamplingConfig | Mapping[str, Any] | None = None,
    system: str | None = None,
    strategy: str | None = None,
    decoding: Decoding | None = None,
    recorders: Recorder | Iterable[Recorder] | None = None,
    request_id: str = "",
    sampler: SamplerName = "espalier",
    trace: TraceLevel = "steps",
    trace_top_k: int = 10,
    raw: bool = False,
    preset: Preset | str | None = None,
    presets: Presets | None = None,
    tools: Any = None,
    tool_choice: Any = None,
    tool_format: str | None = None,
    parallel_tool_calls: bool | None = None,
    max_calls: int | None = None,
    reasoning: Any = None,
    max_reasoning: int | None = None,
    hold_reasoning: bool = False,
    schema_in_prompt: bool = False,
    schema_order: str | Sequence[str] | None = None,
    closed: bool | None = None,
    default_order: str | None = None,
    default_reasoning: Any = None,
    activations: Any = None,
    **fields: Any,
) -> Request:
    """A Request from what users pass. Raises InputError; unknown names are refused with a list of the known ones.

    presets: where the preset's name is looked up; by default the built-in ones. The six constraints are read by
    `constraints/joining/named.py`; what holds of them, `filters` and the preset together, `rule.py` beside it says.
    schema_order: the order of properties in every schema that states none (`JsonSchema(order=)`): the constraint's, the
    preset's and the tools'. default_order: the same, where the preset states none either. default_reasoning: the
    markers of reasoning where `reasoning` states none. closed: whether the constraint's schemas that do not say so
    themselves take no undeclared names; false opens those of tools, which are closed by default.
    activations: as `read_activations` reads it.
    """
    order: Order | None = SCHEMA_ORDER.check(schema_order)
    if isinstance(sampling, Mapping):  # such as the config of a preset
        sampling = SamplingConfig.from_json(sampling)
    if sampling is not None and not isinstance(sampling, SamplingConfig):
        raise InputError(f"sampling is a SamplingConfig, not {type(sampling).__name__}", field="sampling")
    decoding, fields = _decoding(decoding, strategy, fields)
    fields = _own_names(fields)
    # A field that is given beside `sampling` replaces the one in it.
    sampling = sampling.changed(**fields) if sampling is not None and fields else sampling
    # Faithful sampling aims at the whole distribution: truncation is off unless it is asked for.
    aims_at_all = decoding.strategy in FAITHFUL and decoding.target == "full"
    neutral = NEUTRAL if aims_at_all and sampling is None else {}
    config = sampling or SamplingConfig.from_json({**neutral, **fields} if preset is None else {})
    constraint = named_constraint(
        constraint=constraint, json_schema=json_schema, regex=regex, choice=choice, grammar=grammar, safety=safety
    )
    masking, others = split_filters(own_filters(filters))
    constraint = together(constraint, *masking)
    notes = config.notes
    preset_fields: frozenset[str] = frozenset()
    if preset is not None:
        preset_read = preset if isinstance(preset, Preset) else (presets or Presets()).get(preset)
        neutral = {name: value for name, value in neutral.items() if name not in preset_read.config}
        own = {**neutral, **fields} if sampling is None else sampling.to_json()
        if (
            tool_choice is None
            and tools
            and demands_calls(preset_read)
            and (constraint is None or is_filter(constraint))
        ):
            tool_choice = "required"
            notes += (f"tool_choice is required, as the preset {preset_read.name!r} demands a call",)
        must_call = bool(tools) and (demands_calls(preset_read) or read_choice(tool_choice).mode == "required")
        constraint, config, replaced = merged(preset_read, constraint=constraint, with_tools=must_call, fields=own)
        preset_fields = frozenset(preset_read.config) - frozenset(own)
        notes += replaced
        order = SCHEMA_ORDER.check(preset_read.schema_order) if order is None else order
    if schema_order is not None and not tools and not _has_order(constraint):
        raise InputError(
            "schema_order needs a schema", hint=OptionText(of_constraint("JsonSchema"), ", tools"), field="schema_order"
        )
    constraint = _close_schemas(constraint, closed, has_tools=bool(tools))
    order = SCHEMA_ORDER.check(default_order) if order is None else order
    REQUEST["sampler"].check(sampler)
    if trace not in LEVELS:
        raise InputError(f"unknown trace level {trace!r}", hint=", ".join(LEVELS), field="trace")
    if isinstance(trace_top_k, bool) or not isinstance(trace_top_k, int) or trace_top_k < 0:
        raise InputError("trace_top_k must be a whole number, at least 0", field="trace_top_k")
    if not isinstance(prompt, str) and not (
        isinstance(prompt, Sequence) and all(isinstance(m, Mapping) for m in prompt)
    ):
        raise InputError("a prompt is a text or a list of messages", hint="ids are not taken", field="prompt")
    for given in (prompt, system):
        if isinstance(given, str):
            check_text(given)
    text: str | None = prompt if isinstance(prompt, str) else None
    messages: tuple[Message, ...] | None = None if isinstance(prompt, str) else tuple(prompt)
    if system is not None:
        if raw:
            raise InputError("a raw prompt has no system message", field="system")
        rest = messages if messages is not None else ({"role": "user", "content": text},)
        text, messages = None, ({"role": "system", "content": system}, *rest)
    chat = _chat_fields(
        tools=tools,
        tool_choice=tool_choice,
        tool_format=tool_format,
        parallel_tool_calls=parallel_tool_calls,
        max_calls=max_calls,
        reasoning=default_reasoning if reasoning is None and default_reasoning != "auto" else reasoning,
        max_reasoning=max_reasoning,
        hold_reasoning=hold_reasoning,
        schema_in_prompt=schema_in_prompt,
        opened=closed is False,
    )
    return Request(
        prompt=text,
        messages=messages,
        constraint=constraint if constraint is None or order is None else constraint.ordered(order),
        schema_order=order,
        notes=(
            *notes,
            *_left_out(tools),
            *unenforced(constraint),
            *typo_notes(constraint, chat["tools"]),
            *(closed_notes(chat["tools"]) if closed is None and chat["tool_choice"].mode != "none" else ()),
        ),
        soft=soft_specs(soft),
        filters=others,
        sampling=config,
        decoding=decoding,
        recorders=own_recorders(recorders),
        request_id=request_id,
        sampler=sampler,
        trace=trace,
        trace_top_k=trace_top_k,
        raw=raw,
        preset_fields=preset_fields,
        activations=read_activations(activations),
        **chat,
    )


def read_activations(given: Any) -> Activations | None:
    """None, an Activations, true for the defaults, or a mapping of its fields. Raises InputError."""
    if given is None or given is False or isinstance(given, Activations):
        return given or None
    return Activations.from_json(given)


def _close_schemas(constraint: Spec | None, closed: Any, *, has_tools: bool) -> Spec | None:
    """The constraint with this `closed` in every schema that does not state it. Raises InputError."""
    CLOSED.check(closed)
    if not closed or constraint is None or not any(part.kind == JsonSchema.kind for part in constraint.walk()):
        if closed and not has_tools:
            raise InputError("closed needs a schema", hint=OptionText(of_constraint("JsonSchema")), field="closed")
        return constraint
    return constraint.closing(closed)


def _has_order(constraint: Spec | None) -> bool:
    """Whether a part of the constraint has an order of properties."""
    return constraint is not None and any("order" in part.json_fields() for part in constraint.walk())


def _decoding(
    given: Decoding | None, strategy: str | None, fields: Mapping[str, Any]
) -> tuple[Decoding, dict[str, Any]]:
    """The Decoding, and the fields that are left for the sampling. Raises InputError."""
    own = {name: value for name, value in fields.items() if name in OPTIONS}
    if strategy is not None:
        own["strategy"] = strategy
    if given is not None and not isinstance(given, Decoding):
        raise InputError(f"decoding is a Decoding, not {type(given).__name__}", field="decoding")
    made = Decoding(**own) if given is None else replace(given, **own)  # a field beside it replaces the one in it
    STRATEGIES.require(made.strategy)  # raises UnknownName
    return made, {name: value for name, value in fields.items() if name not in OPTIONS}


def _own_names(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling fields under Espalier's names; llama.cpp's are taken too. Raises SamplingError, also for one that is
    given twice."""
    options: dict[str, Any] = {}
    for given, value in fields.items():
        try:
            name, read = own_option(given, value)
        except SamplingError as error:
            if given in SAMPLING_NAMES:
                raise
            # Of a name that is no field of the sampling, all arguments are candidates.
            raise SamplingError(error.message, hint=hint_for(given) or error.hint, field=given) from error
        if name in options:
            raise SamplingError(f"{given}: {name} is given already", field=given)
        options[name] = read
    return with_extra(options)


def own_recorders(recorders: Any) -> tuple[Recorder, ...]:
    """None, one Recorder or several, as a tuple. Raises InputError for anything else."""
    if recorders is None:
        return ()
    several = (recorders,) if isinstance(recorders, Recorder) else recorders
    own = tuple(several) if isinstance(several, Iterable) else (several,)
    for recorder in own:
        if not isinstance(recorder, Recorder):
            raise InputError(f"recorders must be Recorders, not {type(recorder).__name__}", field="recorders")
    return own


def _chat_fields(
    *,
    tools: Any,
    tool_choice: Any,
    tool_format: str | None,
    parallel_tool_calls: bool | None,
    max_calls: int | None,
    reasoning: Any,
    max_reasoning: int | None,
    hold_reasoning: bool,
    schema_in_prompt: bool,
    opened: bool,
) -> dict[str, Any]:
    """The Request's fields about tools and reasoning. Raises InputError, UnknownName."""
    parallel_tool_calls = parallel_tool_calls is not False  # clients send null for fields they do not set
    given = () if tools is None else tools_of(tools, skips_hosted=True)
    if opened:
        given = tuple(replace(tool, closed=False) for tool in given)
    for place, tool in enumerate(given):
        if tool.strict:
            _refuse_typos(tool, place)
    choice = read_choice(tool_choice)
    choice.allowed(given)
    details = {
        "tool_choice": choice.mode == "required",
        "tool_format": tool_format is not None,
        "max_calls": max_calls is not None,
        "parallel_tool_calls": not parallel_tool_calls,
    }
    alone = [name for name, is_given in details.items() if is_given]
    if choice.mode == "required" and tools is not None and not given:
        raise InputError("a call is required, and none of the tools can be called here", field="tool_choice")
    if alone and tools is None:
        raise InputError(OptionText(Setting(alone[0]), " needs ", Setting("tools")), field=alone[0])
    if tool_format is not None:
        wire_format(REQUEST["tool_format"].check(tool_format))
    for name, value in {"max_calls": max_calls, "max_reasoning": max_reasoning}.items():
        REQUEST[name].check(value)
    if not parallel_tool_calls and max_calls not in (None, 1):
        raise InputError(
            f"max_calls is {max_calls}, but parallel_tool_calls allows only one call", field="parallel_tool_calls"
        )
    return {
        "tools": given,
        "tool_choice": choice,
        "tool_format": tool_format,
        "max_calls": max_calls if parallel_tool_calls else 1,
        "reasoning": None if reasoning is None else read_reasoning(reasoning),
        "max_reasoning": max_reasoning,
        "hold_reasoning": bool(hold_reasoning),
        "schema_in_prompt": bool(schema_in_prompt),
    }


def _left_out(tools: Any) -> Iterator[str]:
    """A note for each type of tools that only their provider can call."""
    return (f"tools of type {kind!r} cannot be called here: they are left out" for kind in hosted_types(tools))


def _refuse_typos(tool: Tool, place: int) -> None:
    """Raises InputError for an unknown keyword in the schema of a strict tool."""
    try:
        refuse_typos(json.loads(tool.parameters), f"the tool {tool.name} is strict")
    except SchemaError as error:
        raise InputError(error.message, hint=error.hint, field=f"tools[{place}].parameters") from error


def outputs_of(request: Request) -> list[Request]:
    """The `n` requests that its sampling asks for: same seed, random streams 0 to n-1."""
    sampling = request.sampling
    if sampling.n > 1 or request.decoding.num_return_sequences > 1:
        request = replace(request, sample_group=f"group-{secrets.token_hex(12)}")
    if sampling.n == 1:
        return [request]
    if sampling.seed is None:  # drawn here, so that all share it
        sampling = replace(sampling, seed=secrets.randbelow(2**32 - MAX_N))
    return [replace(request, sampling=sampling, stream=stream) for stream in range(sampling.n)]


def soft_specs(soft: Any) -> tuple[SoftSpec, ...]:
    """None, one SoftSpec or several, as a tuple. Raises InputError for anything else."""
    if soft is None:
        return ()
    several = tuple(soft) if isinstance(soft, Sequence) and not isinstance(soft, str | bytes) else (soft,)
    for constraint in several:
        if not isinstance(constraint, SoftSpec):
            raise InputError(
                f"soft must be a SoftSpec or a list of them, not {type(constraint).__name__}",
                hint="for example SoftJson(), SoftWordlist(Wordlist(...))",
                field="soft",
            )
    return several


def own_filters(filters: Any) -> tuple[LogitFilter, ...]:
    """None, one LogitFilter or several (or a FilterChain, whose disabled filters are left out), as a tuple. Raises
    InputError for anything else."""
    if filters is None:
        return ()
    if isinstance(filters, FilterChain):
        filters = [member for member in filters if filters.is_enabled(member.name)]
    several = (filters,) if _is_filter(filters) else filters
    if not isinstance(several, Iterable) or isinstance(several, str | bytes | Mapping):
        several = (several,)
    filters_given = tuple(several)
    for item in filters_given:
        if not _is_filter(item):
            raise InputError(
                f"filters must be LogitFilters, not {type(item).__name__}",
                hint="name, priority, apply, on_token, rollback, fork: see docs/presets.md",
                field="filters",
            )
    return filters_given


def split_filters(filters: Iterable[LogitFilter]) -> tuple[list[Spec], tuple[LogitFilter, ...]]:
    """The constraints of the filters that mask with one from the start of a text, and the other filters. As constraints
    they join those of the request, so that together they lead into no dead end, and the text is judged."""
    specs: list[Spec] = []
    others: list[LogitFilter] = []
    for member in filters:
        if isinstance(member, MatcherFilter | SafetyFilter) and member.is_fresh:
            specs.append(member.compiled.spec if isinstance(member, MatcherFilter) else member.spec())
        else:
            others.append(member)
    return specs, tuple(others)


def _is_filter(item: Any) -> bool:
    return all(hasattr(item, name) for name in ("name", "priority", "apply", "on_token", "rollback", "fork"))


def check_text(text: str) -> None:
    """Raises InputError for a lone surrogate, as from an argument that is not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the prompt is not valid Unicode at character {error.start}", hint="write it in UTF-8", field="prompt"
        ) from error
