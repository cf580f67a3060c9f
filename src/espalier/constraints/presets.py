"""What a preset asks for: its constraint and its sampling, alone or under what a request says itself.

A preset is applied whole: one that names what cannot be enforced is refused. It knows no engine and no file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from espalier.constraints.as_filter import schema_spec, tool_calls
from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.join_safety import with_safety
from espalier.constraints.safety.spec import Custom, Safety, check_category, preset_categories
from espalier.constraints.spec import Gbnf, JsonObject, JsonSchema, Spec
from espalier.errors import InputError, UnknownName, UnsupportedError
from espalier.grammar.builtin import GRAMMARS
from espalier.sampling.config import MIROSTAT, NEUTRAL, SamplingConfig
from espalier.sampling.filters import TokenBan
from espalier.sampling.presets.spec import BUILTIN, Preset, PresetFilter

ANY_CALL = JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "args": {"type": "object"}},
        "required": ["name", "args"],
        "additionalProperties": False,
    }
)

SPECS: Mapping[str, Spec] = {
    "json": JsonObject(kinds=("object", "array", "string", "number", "boolean", "null")),
    "json_object": JsonObject(),
    "json_container": JsonObject(kinds=("object", "array")),
    "tool_call": ANY_CALL,
}
"""Grammars that come with Espalier, and what allows the same values and can be judged and parsed besides: JSON mode
writes no half of a surrogate pair, and a schema's strings have no escapes that need not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one filter adds. A request's own constraint takes the place of `spec`; bans, safety and biases stay beside
    it. categories, patterns: of safety, which add up to one filter."""

    spec: Spec | None = None
    ban: Ban | None = None
    categories: tuple[str, ...] = ()
    patterns: tuple[str | Custom | Mapping[str, str], ...] = ()
    biases: tuple[tuple[int | str, float], ...] = ()


class FilterType(NamedTuple):
    """make: from the options. needs, takes: the names of options that must, and that may be there."""

    make: Callable[..., Part]
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


def _grammar(grammar: Any, root: str = "root") -> Part:
    if isinstance(grammar, str) and grammar.startswith(BUILTIN):
        is_whole = root == "root"
        return Part(spec=grammar_spec(grammar) if is_whole else Gbnf(GRAMMARS.load(grammar[1:]), root=root))
    return Part(spec=Gbnf(grammar, root=root))


def _tool_call(tools: Any = None) -> Part:
    if isinstance(tools, str):
        try:
            tools = json.loads(tools)
        except (ValueError, RecursionError) as error:
            raise InputError(f"the tools are not JSON: {error}", field="tools") from error
    return Part(spec=ANY_CALL if tools is None else tool_calls(tools))


def _logit_bias(biases: Any) -> Part:
    return Part(biases=SamplingConfig(logit_bias=biases).logit_bias)


def _token_ban(ids: Sequence[int]) -> Part:
    return Part(biases=tuple((token, -math.inf) for token in TokenBan(ids).ids))


def _safety(categories: Sequence[str] = (), preset: str | None = None, patterns: Sequence[Any] = ()) -> Part:
    if isinstance(categories, str) or isinstance(patterns, str):
        raise InputError("categories and patterns are lists", field="safety")
    if preset is None and not categories and not patterns:
        raise InputError("there is nothing to enforce", hint="a preset, categories or patterns", field="safety")
    named = tuple(check_category(name) for name in categories)
    return Part(categories=(*(preset_categories(preset) if preset else ()), *named), patterns=tuple(patterns))


FILTER_TYPES: Mapping[str, FilterType] = {
    "grammar": FilterType(_grammar, ("grammar",), ("root",)),
    "json_schema": FilterType(lambda schema: Part(spec=schema_spec(schema)), ("schema",)),
    "json_object": FilterType(lambda: Part(spec=SPECS["json_object"])),
    "tool_call": FilterType(_tool_call, takes=("tools",)),
    "ban": FilterType(lambda phrases: Part(ban=Ban(phrases)), ("phrases",)),
    "logit_bias": FilterType(_logit_bias, ("biases",)),
    "token_ban": FilterType(_token_ban, ("ids",)),
    "safety": FilterType(_safety, takes=("categories", "preset", "patterns")),
}
"""By type, what a preset's filters become."""

IMPLIED = {"@json_object": "json_object", "@tool_call": "tool_call"}
"""Grammars that a filter of that type says at least as much as, so that both need not be held."""

CONSTRAINING = ("grammar", "json_schema", "json_object", "tool_call")
"""Types that give a `spec`."""


CALL_GRAMMAR = "@tool_call"


def demands_calls(preset: Preset) -> bool:
    """Whether the preset is for calls of tools alone: tools of a request must be called then."""
    filters = [one for one in preset.filters if one.enabled]
    return (
        preset.grammar == CALL_GRAMMAR
        or any(one.type == "tool_call" for one in filters)
        or any(one.type == "grammar" and one.options.get("grammar") == CALL_GRAMMAR for one in filters)
    )


def preset_parts(preset: Preset) -> list[Part]:
    """Of the preset's texts and of each enabled filter. Raises UnknownName, InputError and its kin, each naming the
    preset."""
    parts = [_part(preset, one) for one in preset.filters]
    types = {one.type for one in preset.filters if one.enabled}
    if preset.grammar is not None and IMPLIED.get(preset.grammar) not in types:
        parts.insert(0, Part(spec=grammar_spec(preset.grammar)))
    if preset.json_schema is not None:
        parts.insert(0, Part(spec=schema_spec(preset.json_schema)))
    if preset.safety_preset is not None:
        parts.append(Part(categories=_named(preset, lambda: preset_categories(preset.safety_preset))))
    found = [part for part in parts if part is not None]
    _named(preset, lambda: safety_of_parts(found))
    return found


def safety_of_parts(parts: Sequence[Part]) -> Safety | None:
    """What all of them ask for as one filter, None if nothing. Raises SpecError where none of it can be enforced."""
    categories = [name for part in parts for name in part.categories]
    patterns = [one for part in parts for one in part.patterns]
    return Safety(categories=categories, patterns=patterns) if categories or patterns else None


def _named(preset: Preset, make: Callable[[], Any]) -> Any:
    """What is made, with the preset named in what is wrong with it."""
    try:
        return make()
    except InputError as error:
        said = f"the preset {preset.name!r}: {error.message}"
        kind = UnknownName if isinstance(error, UnknownName) else InputError
        raise kind(said, hint=error.hint, field="preset") from error


def grammar_spec(text: str) -> Spec:
    """Of GBNF, or of `@NAME`. Raises UnknownName."""
    if not text.startswith(BUILTIN):
        return Gbnf(text)
    name = text.removeprefix(BUILTIN)
    return SPECS[name] if name in SPECS else Gbnf(GRAMMARS.load(name))


def merged(
    preset: Preset,
    *,
    constraint: Spec | None = None,
    has_tools: bool = False,
    fields: Mapping[str, Any] | None = None,
) -> tuple[Spec | None, SamplingConfig]:
    """The constraint and the sampling of a request that names a preset.

    Its own constraint, or its tools, and its own sampling fields take the place of the preset's, as mirostat does of
    truncations; bans and safety add up: phrases, words, categories, and tokens with a bias of -inf. A request's finite
    biases take the place of the field's, and go over those of filters. Raises as `preset_parts`, and SamplingError.
    """
    parts, fields = preset_parts(preset), dict(fields or {})
    own = constraint is not None or has_tools
    specs = [part.spec for part in parts if part.spec is not None and not own]
    specs += [] if constraint is None else [constraint]
    specs += [part.ban for part in parts if part.ban is not None]
    distinct = list({spec.key(): spec for spec in specs}.values())
    whole = None if not distinct else distinct[0] if len(distinct) == 1 else AllOf(*distinct)
    safety = safety_of_parts(parts)
    whole = whole if safety is None else with_safety(whole, [safety])
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
    return whole, SamplingConfig.from_json({**config, "logit_bias": biases, "bad_words": words})


def over_config(config: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling fields over those of a preset. Where they switch mirostat on, the preset's truncations are left out, as
    it takes their place."""
    # A mirostat of 0 wants no aims, and a request may switch it on.
    kept = {name: value for name, value in config.items() if name not in MIROSTAT or value}
    if fields.get("mirostat"):
        kept = {name: value for name, value in kept.items() if name not in NEUTRAL}
    return {**kept, **fields}


def _part(preset: Preset, one: PresetFilter) -> Part | None:
    if one.type not in FILTER_TYPES:
        raise UnknownName(
            f"the preset {preset.name!r} has a filter of an unknown type {one.type!r}",
            hint=f"known: {', '.join(FILTER_TYPES)}",
            field="preset",
        )
    if not one.enabled:
        return None
    kind = FILTER_TYPES[one.type]
    unknown = [name for name in one.options if name not in (*kind.needs, *kind.takes)]
    missing = [name for name in kind.needs if name not in one.options]
    if unknown or missing:
        raise InputError(
            f"the preset {preset.name!r}: the filter {one.type!r} "
            + (f"has no option {unknown[0]!r}" if unknown else f"needs {missing[0]!r}"),
            hint=f"options: {', '.join((*kind.needs, *kind.takes)) or 'none'}",
            field="preset",
        )
    try:
        return kind.make(**one.to_json()["options"])
    except UnsupportedError as error:
        raise UnsupportedError(
            f"the preset {preset.name!r}: {error.message}", hint=error.hint, field="preset"
        ) from error
    except (TypeError, ValueError, AttributeError, RecursionError) as error:  # a value of a kind nobody expects there
        raise InputError(
            f"the preset {preset.name!r}: the filter {one.type!r} has an option that is not right: {error}",
            hint=f"options: {', '.join((*kind.needs, *kind.takes)) or 'none'}",
            field="preset",
        ) from error


def _over(new: dict[int | str, float], old: dict[int | str, float]) -> dict[int | str, float]:
    """New biases over old ones; what is banned stays so."""
    return old | {key: value for key, value in new.items() if old.get(key) != -math.inf}
