"""Turns a preset into a constraint and a sampling config, and merges both with the fields of a request.

A preset is applied whole: if a part of it cannot be enforced, it is refused. It knows no engine and no file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.filters.matcher import schema_spec, tool_calls
from espalier.constraints.joining.rule import over
from espalier.constraints.safety.spec import Custom, Safety, check_category, preset_categories, preset_texts
from espalier.constraints.spec import Gbnf, JsonObject, JsonSchema, Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.errors import InputError, UnknownName, UnsupportedError
from espalier.grammar.builtin import GRAMMARS
from espalier.sampling.config import MIROSTAT, NEUTRAL, SamplingConfig
from espalier.sampling.filters import TokenBan
from espalier.sampling.presets.spec import BUILTIN, Preset, PresetFilter
from espalier.schema.order import read_order

ANY_CALL = JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "args": {"type": "object"}},
        "required": ["name", "args"],
        "additionalProperties": False,
    },
    order="schema",  # whatever a request asks for: a call is known by its name
)

SPECS: Mapping[str, Spec] = {
    "json": JsonObject(kinds=("object", "array", "string", "number", "boolean", "null")),
    "json_object": JsonObject(),
    "json_container": JsonObject(kinds=("object", "array")),
    "tool_call": ANY_CALL,
}
"""Built-in grammars that are replaced by a spec of the same values, since the texts of a spec can be judged and parsed.
JSON mode writes no lone surrogates, and strings under a schema have no unneeded escapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PresetPart:
    """The contribution of one filter of a preset. A request's own constraint replaces `spec`; bans, safety and biases
    are kept beside it. categories, patterns: those of safety filters, merged over all parts into one filter."""

    spec: Spec | None = None
    ban: Ban | None = None
    categories: tuple[str, ...] = ()
    patterns: tuple[str | Custom | Mapping[str, str], ...] = ()
    biases: tuple[tuple[int | str, float], ...] = ()


class FilterType(NamedTuple):
    """make: builds the part from the filter's options. needs, takes: the names of required and of optional options."""

    make: Callable[..., PresetPart]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


def _grammar(grammar: Any, root: str = "root") -> PresetPart:
    if isinstance(grammar, str) and grammar.startswith(BUILTIN):
        is_whole = root == "root"
        return PresetPart(spec=grammar_spec(grammar) if is_whole else Gbnf(GRAMMARS.load(grammar[1:]), root=root))
    return PresetPart(spec=Gbnf(grammar, root=root))


def _tool_call(tools: Any = None, order: Any = None) -> PresetPart:
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the tools are not JSON: {error}", field="tools") from error
    return PresetPart(spec=ANY_CALL if tools is None else tool_calls(tools, order=order))


def _logit_bias(biases: Any) -> PresetPart:
    return PresetPart(biases=SamplingConfig(logit_bias=biases).logit_bias)


def _token_ban(ids: Sequence[int]) -> PresetPart:
    return PresetPart(biases=tuple((token, -math.inf) for token in TokenBan(ids).ids))


def _safety(categories: Sequence[str] = (), preset: str | None = None, patterns: Sequence[Any] = ()) -> PresetPart:
    if isinstance(categories, str) or isinstance(patterns, str):
        raise InputError("categories and patterns are lists", field="safety")
    if preset is None and not categories and not patterns:
        raise InputError("there is nothing to enforce", hint="a preset, categories or patterns", field="safety")
    named = tuple(check_category(name) for name in categories)
    part = PresetPart() if not preset else safety_part(preset)
    return PresetPart(categories=(*part.categories, *named), patterns=(*patterns, *part.patterns))


def safety_part(preset: str) -> PresetPart:
    """What a safety preset gives. Raises UnknownName."""
    return PresetPart(categories=preset_categories(preset), patterns=preset_texts(preset))


class PresetMerge(NamedTuple):
    """What a preset and a request ask for together. notes: what of the preset was replaced, and what has no effect."""

    constraint: Spec | None
    sampling: SamplingConfig
    notes: tuple[str, ...]


FILTER_TYPES: Mapping[str, FilterType] = {
    "grammar": FilterType(_grammar, ("grammar",), ("root",)),
    "json_schema": FilterType(
        lambda schema, order=None: PresetPart(spec=schema_spec(schema, order=order)), ("schema",), takes=("order",)
    ),
    "json_object": FilterType(lambda: PresetPart(spec=SPECS["json_object"])),
    "tool_call": FilterType(_tool_call, takes=("tools", "order")),
    "ban": FilterType(lambda phrases: PresetPart(ban=Ban(phrases)), ("phrases",)),
    "logit_bias": FilterType(_logit_bias, ("biases",)),
    "token_ban": FilterType(_token_ban, ("ids",)),
    "safety": FilterType(_safety, takes=("categories", "preset", "patterns")),
}
"""The types of preset filters."""

IMPLIED = {"@json_object": "json_object", "@tool_call": "tool_call"}
"""Built-in grammars that a filter of that type implies, so that the grammar is dropped beside it."""

CONSTRAINING = ("grammar", "json_schema", "json_object", "tool_call")
"""Types that give a `spec`."""


CALL_GRAMMAR = "@tool_call"
NESTING = (Gbnf.kind, JsonObject.kind, JsonSchema.kind, ToolCalls.kind)
"""Kinds whose texts may nest without a bound, so that two of them may have no automaton in common."""


def demands_calls(preset: Preset) -> bool:
    """Whether the preset allows only tool calls, so that a request's tools must be called."""
    filters = [preset_filter for preset_filter in preset.filters if preset_filter.enabled]
    return (
        preset.grammar == CALL_GRAMMAR
        or any(preset_filter.type == "tool_call" for preset_filter in filters)
        or any(
            preset_filter.type == "grammar" and preset_filter.options.get("grammar") == CALL_GRAMMAR
            for preset_filter in filters
        )
    )


def preset_parts(preset: Preset) -> list[PresetPart]:
    """The parts of the preset's own fields and of each enabled filter. Raises UnknownName, InputError and its
    subclasses, each naming the preset."""
    parts = [_part(preset, preset_filter) for preset_filter in preset.filters]
    types = {preset_filter.type for preset_filter in preset.filters if preset_filter.enabled}
    if preset.grammar is not None and IMPLIED.get(preset.grammar) not in types:
        parts.insert(0, PresetPart(spec=grammar_spec(preset.grammar)))
    if preset.json_schema is not None:
        parts.insert(0, PresetPart(spec=schema_spec(preset.json_schema)))
    if preset.schema_order is not None:
        _naming_preset(preset, lambda: read_order(preset.schema_order))
    if preset.safety_preset is not None:
        name = preset.safety_preset
        parts.append(_naming_preset(preset, lambda: safety_part(name)))
    stated = [part for part in parts if part is not None]
    _naming_preset(preset, lambda: safety_of_parts(stated))
    return stated


def safety_of_parts(parts: Sequence[PresetPart]) -> Safety | None:
    """The safety of all parts as one filter; None without any. Raises SpecError where none of it can be enforced."""
    categories = [name for part in parts for name in part.categories]
    patterns = [pattern for part in parts for pattern in part.patterns]
    return Safety(categories=categories, patterns=patterns) if categories or patterns else None


def constraints_of(parts: Sequence[PresetPart]) -> list[Spec]:
    """The constraints of all parts: forms, bans, and the safety of all parts as one filter. PedroCLI's files name a
    grammar and a filter for the same thing; where both may nest, text is taken back if they lead nowhere together.
    Raises as `safety_of_parts`."""
    safety = safety_of_parts(parts)
    specs: list[Spec] = list({part.spec.key(): part.spec for part in parts if part.spec is not None}.values())
    if sum(spec.kind in NESTING for spec in specs) > 1:
        specs = [AllOf(specs, dead_ends="rewind")]
    bans = [part.ban for part in parts if part.ban is not None]
    return [*specs, *bans, *([] if safety is None else [safety])]


def _naming_preset(preset: Preset, make: Callable[[], Any]) -> Any:
    """Call `make`. Errors are reworded to name the preset."""
    try:
        return make()
    except InputError as error:
        message = f"the preset {preset.name!r}: {error.message}"
        kind = UnknownName if isinstance(error, UnknownName) else InputError
        raise kind(message, hint=error.hint, field="preset") from error


def grammar_spec(text: str) -> Spec:
    """The spec of GBNF text, or of the built-in grammar `@NAME`. Raises UnknownName."""
    if not text.startswith(BUILTIN):
        return Gbnf(text)
    name = text.removeprefix(BUILTIN)
    return SPECS[name] if name in SPECS else Gbnf(GRAMMARS.load(name))


def merged(
    preset: Preset, *, constraint: Spec | None = None, with_tools: bool = False, fields: Mapping[str, Any] | None = None
) -> PresetMerge:
    """The constraint and the sampling of a request that names a preset.

    The constraints join by the rule of `rule.py`. with_tools: the answer must be calls of the request's own tools. The
    request's sampling fields replace those of the preset (for mirostat see `over_config`). Bans and safety add up:
    phrases, words, categories, and tokens with a bias of -inf. The request's finite biases replace those of the
    preset's `logit_bias` field and override those of its filters. Raises as `preset_parts`, and SamplingError.
    """
    parts, fields = preset_parts(preset), dict(fields or {})
    joining = over(constraints_of(parts), constraint, name=preset.name, with_tools=with_tools)
    config = over_config(preset.config, fields)
    biases = dict(preset.config.get("logit_bias", ()))
    if "logit_bias" in fields:
        biases = {key: value for key, value in biases.items() if value == -math.inf}
    for part in parts:
        biases = _over(dict(part.biases), biases)
    if "logit_bias" in fields:
        biases = _over(dict(SamplingConfig(logit_bias=fields["logit_bias"]).logit_bias), biases)
    words = SamplingConfig(bad_words=fields.get("bad_words", ())).bad_words
    words = tuple(dict.fromkeys((*preset.config.get("bad_words", ()), *words)))
    sampling = SamplingConfig.from_json({**config, "logit_bias": biases, "bad_words": words})
    return PresetMerge(joining.spec, sampling, (*joining.notes, *sampling.notes))


def over_config(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling fields over those of a preset. If they switch mirostat on, the preset's truncations are dropped, because
    mirostat replaces them."""
    # A preset's mirostat of 0 is the default anyway, and the request may switch mirostat on.
    settings = {name: value for name, value in config.items() if name not in MIROSTAT or value}
    if fields.get("mirostat"):
        settings = {name: value for name, value in settings.items() if name not in NEUTRAL}
    return {**settings, **fields}


def _part(preset: Preset, preset_filter: PresetFilter) -> PresetPart | None:
    if preset_filter.type not in FILTER_TYPES:
        raise UnknownName(
            f"the preset {preset.name!r} has a filter of an unknown type {preset_filter.type!r}",
            hint=f"known: {', '.join(FILTER_TYPES)}",
            field="preset",
        )
    if not preset_filter.enabled:
        return None
    kind = FILTER_TYPES[preset_filter.type]
    unknown = [name for name in preset_filter.options if name not in (*kind.needs, *kind.takes)]
    missing = [name for name in kind.needs if name not in preset_filter.options]
    if unknown or missing:
        raise InputError(
            f"the preset {preset.name!r}: the filter {preset_filter.type!r} "
            + (f"has no option {unknown[0]!r}" if unknown else f"needs {missing[0]!r}"),
            hint=f"options: {', '.join((*kind.needs, *kind.takes)) or 'none'}",
            field="preset",
        )
    try:
        return kind.make(**preset_filter.to_json()["options"])
    except UnsupportedError as error:
        raise UnsupportedError(
            f"the preset {preset.name!r}: {error.message}", hint=error.hint, field="preset"
        ) from error
    except (TypeError, ValueError, AttributeError, RecursionError) as error:  # an option of an unexpected type
        raise InputError(
            f"the preset {preset.name!r}: the filter {preset_filter.type!r} has an option that is not right: {error}",
            hint=f"options: {', '.join((*kind.needs, *kind.takes)) or 'none'}",
            field="preset",
        ) from error


def _over(new: dict[int | str, float], old: dict[int | str, float]) -> dict[int | str, float]:
    """New biases over old ones; a banned token stays banned."""
    return old | {key: value for key, value in new.items() if old.get(key) != -math.inf}
