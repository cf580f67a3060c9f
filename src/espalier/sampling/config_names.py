"""Convert a SamplingConfig from and to the field names of llama.cpp's requests and of OpenAI's (with vLLM's extras).

A value that the other side cannot express raises SamplingError naming the field; nothing is dropped. This module knows
no HTTP, and only the sampling fields of a request: the server picks those by `LLAMA_NAMES` and `OPENAI_NAMES`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from espalier.errors import SamplingError
from espalier.nearest import as_others_call_it, did_you_mean
from espalier.sampling.config import FIELDS, SamplingConfig
from espalier.sampling.fields import shown
from espalier.sampling.samplers.penalties import PENALTIES as PENALTY
from espalier.sampling.samplers.plugged import sampler_named, sampler_of
from espalier.sampling.samplers.registry import SAMPLERS
from espalier.sampling.samplers.temperature import TEMPERATURE
from espalier.sampling.samplers.truncations import MIN_P, TOP_K, TOP_P

UNLIMITED = 2**31 - 1
"""`max_tokens` if the other side's default is to go on until the context is full."""

LLAMA_FIELDS = {name: one.llama for name, one in FIELDS.items() if one.llama is not None}
"""Our name -> llama.cpp's (`tools/server`, the request of `/completion`)."""
LLAMA_OTHER = {"typ_p": "typical_p", "n": "n", "max_tokens": "max_tokens"}
"""Other names that llama.cpp accepts -> our name."""
LLAMA_FLAGS = {
    "temp": "temperature",
    "typical": "typical_p",
    "predict": "max_tokens",
    "top_nsigma": "top_n_sigma",
    "dynatemp_exp": "dynatemp_exponent",
    "mirostat_lr": "mirostat_eta",
    "mirostat_ent": "mirostat_tau",
    "dry_sequence_breaker": "dry_breakers",
    "reverse_prompt": "stop",
}
"""Options of llama.cpp's commands that its requests call otherwise -> our name."""
FOREIGN = {name: (whose, option.name) for option in FIELDS.values() for name, whose in option.elsewhere}
"""What other libraries call a sampling field -> whose name it is, and ours."""
LLAMA_DEFAULTS: dict[str, Any] = {"temperature": 0.8, "repetition_penalty": 1.0, "max_tokens": UNLIMITED}
"""Defaults in which llama.cpp differs from us."""
LLAMA_OFF: dict[str, tuple[Any, ...]] = {"n_probs": (0,), "t_max_predict_ms": (0, -1), "post_sampling_probs": (False,)}
"""Fields that are known but not supported -> values at which they ask for nothing."""
LLAMA_SAMPLERS = {name: one.llama for name, one in SAMPLERS.items() if one.llama is not None}
"""Our name of a sampler -> llama.cpp's, for the samplers that llama.cpp has."""
LETTERS = {sampler.letter: name for name, sampler in SAMPLERS.items() if sampler.letter}
"""llama.cpp's letter of a sampler -> our name."""
OTHER_LETTERS = frozenset("afi")
"""llama.cpp's letters of samplers that are not here: adaptive-p, tail free sampling, infill."""
SPELLED = {theirs.replace("_", ""): ours for ours, theirs in LLAMA_SAMPLERS.items()} | {
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typical_p",
    "typical": "typical_p",
    "typicalp": "typical_p",
}
"""llama.cpp's name of a sampler, and its other names, in lower case and without `_` and `-` -> our name."""
MIROSTAT_RUNS_WITHOUT = ("penalties", "dry")
"""Samplers of llama.cpp's chain that mirostat switches off there, beside the truncations."""
RANDOM_SEED = 2**32 - 1  # llama.cpp's seeds have 32 bits; all ones asks for a random seed
LLAMA_NONE = tuple(sorted(FIELDS.keys() - LLAMA_FIELDS.keys()))

OPENAI_FIELDS = {name: one.openai for name, one in FIELDS.items() if one.openai is not None}
"""Our name -> OpenAI's or vLLM's."""
OPENAI_OTHER = {"max_completion_tokens": "max_tokens"}
OPENAI_ORDER = tuple(sampler.name for sampler in (PENALTY, TEMPERATURE, MIN_P, TOP_K, TOP_P))
"""vLLM's order: temperature first, then truncation. OpenAI defines no truncation but top_p."""
OPENAI_DEFAULTS: dict[str, Any] = {
    **{name: one.off for name, one in FIELDS.items() if one.openai and one.off not in (None, one.default)},
    "repetition_window": -1,
    "max_tokens": UNLIMITED,
    "sampler_order": OPENAI_ORDER,
}
"""Values of fields that an OpenAI request leaves out: every sampler that has a name there is off."""
MAX_BIAS = 100.0
MAX_PENALTY = 2.0

LLAMA_OWN = {theirs: ours for ours, theirs in LLAMA_FIELDS.items()} | LLAMA_OTHER | LLAMA_FLAGS
"""Every name of llama.cpp's that an option may have -> our name."""
LLAMA_NAMES = frozenset(LLAMA_FIELDS.values()) | frozenset(LLAMA_OTHER) | frozenset(LLAMA_OFF)
OPENAI_NAMES = frozenset(OPENAI_FIELDS.values()) | frozenset(OPENAI_OTHER)
DRAWING_NAMES = frozenset(
    {"mirostat", "samplers", "typ_p"}
    | {
        one.llama
        for sampler in SAMPLERS.values()
        if sampler.truncates or sampler.name == "temperature"
        for one in sampler.fields
        if one.llama is not None and one.off is not None
    }
)
"""Request fields (llama.cpp's names) with which a client asks for sampling: temperature and truncations."""


def from_llama(data: Mapping[str, Any]) -> SamplingConfig:
    """Read llama.cpp's names. A field that is null or missing takes llama.cpp's default. Raises SamplingError in
    llama.cpp's names."""
    _check_mapping(data)
    for name, off in LLAMA_OFF.items():
        if data.get(name) is not None and data[name] not in off:
            raise SamplingError(f"{name} is not supported here", hint="leave it out", field=name)
    given = {name: value for name, value in data.items() if name not in LLAMA_OFF}
    asked = _rename_fields(_without_nulls(given, LLAMA_NAMES), LLAMA_FIELDS, LLAMA_OTHER)
    if asked.get("typical_p") == 0:
        raise SamplingError(
            "typical_p: 0 leaves llama.cpp a single token, and is off here", hint="1 is off there", field="typical_p"
        )
    if asked.get("typical_p") == 1:
        asked["typical_p"] = 0.0
    for name, value in asked.items():
        if FIELDS[name].llama_negative_is_off and isinstance(value, Real) and value < 0:
            asked[name] = FIELDS[name].off
    if asked.get("seed") == RANDOM_SEED:
        asked["seed"] = None
    if asked.get("max_tokens") == -1:
        asked["max_tokens"] = UNLIMITED
    if "sampler_order" in asked:
        asked["sampler_order"] = _order(asked["sampler_order"])
    config = _build(LLAMA_DEFAULTS | asked, LLAMA_FIELDS)
    _check_llama(config, LLAMA_FIELDS)
    ignored = ignored_by_llama(config)
    return config.without(ignored) if ignored else config


def own_option(name: str, value: Any) -> tuple[str, Any]:
    """An option under its name in Espalier, with the value that means the same here.

    name: Espalier's own, a plug-in's (see `with_extra`), or llama.cpp's in a request (`repeat_penalty`) or on its
    command line (`repeat-penalty`, `temp`). A name that both have keeps Espalier's meaning. Raises SamplingError for an
    unknown name, and for samplers that Espalier does not have.
    """
    asked = name.strip().lstrip("-").replace("-", "_")
    if asked in FIELDS:
        return asked, value
    ours = LLAMA_OWN.get(asked)
    if ours is None and sampler_of(asked) is not None:
        return asked, value
    if ours is None:
        known = f"known, beside llama.cpp's names: {', '.join(sorted(FIELDS))}"
        raise SamplingError(
            f"{name[:60]}: there is no such field",
            hint=as_others_call_it(asked, FOREIGN) or did_you_mean(asked, [*FIELDS, *LLAMA_OWN]) or known,
            field=name,
        )
    if ours == "max_tokens" and value == -1:
        return ours, UNLIMITED
    if ours == "sampler_order":
        return ours, _order(value)
    if FIELDS[ours].llama_negative_is_off and isinstance(value, Real) and value < 0:
        return ours, FIELDS[ours].off
    return ours, value


def with_extra(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields under the names of `own_option`, as those of a SamplingConfig: those of plug-ins go into `extra`. Raises
    SamplingError for one that stands there too."""
    plugged = {name: value for name, value in fields.items() if name not in FIELDS and sampler_of(name) is not None}
    if not plugged:
        return dict(fields)
    kept = {name: value for name, value in fields.items() if name not in plugged}
    extra = dict(kept.get("extra") or ())
    twice = sorted(extra.keys() & plugged.keys())
    if twice:
        raise SamplingError(f"{twice[0]}: given beside `extra` and in it", field=twice[0])
    return kept | {"extra": extra | plugged}


def ignored_by_llama(config: SamplingConfig) -> tuple[str, ...]:
    """The fields that are on and have no effect in llama.cpp, whose mirostat runs without penalties and DRY."""
    if not config.mirostat:
        return ()
    switches = [one.name for name in MIROSTAT_RUNS_WITHOUT for one in SAMPLERS[name].fields if one.off is not None]
    return tuple(name for name in switches if getattr(config, name) != FIELDS[name].off)


def llama_notes(config: SamplingConfig) -> tuple[str, ...]:
    """What a config asks for that llama.cpp's own sampler ignores, as one sentence; defaults are left out."""
    names = [name for name in ignored_by_llama(config) if getattr(config, name) != FIELDS[name].default]
    return (f"llama.cpp's mirostat runs without {', '.join(names)}",) if names else ()


def to_llama(config: SamplingConfig) -> dict[str, Any]:
    """Write all fields in llama.cpp's names; what llama.cpp's mirostat ignores stands in `ignored_by_llama`. Raises
    SamplingError for what llama.cpp cannot do."""
    _refuse_unless_default(config, LLAMA_NONE, "llama.cpp")
    _check_llama(config, {name: name for name in LLAMA_FIELDS})
    if config.seed is not None and config.seed >= RANDOM_SEED:
        raise SamplingError(f"seed: llama.cpp's are below {RANDOM_SEED}", field="seed")
    if config.max_tokens > UNLIMITED:
        raise SamplingError(f"max_tokens: llama.cpp's are at most {UNLIMITED}", field="max_tokens")
    for name in config.active:
        if name not in LLAMA_SAMPLERS:
            raise SamplingError(f"{name}: llama.cpp has no such sampler", field=sampler_named(name).switch.name)
    if not config.dry_breakers:
        raise SamplingError("dry_breakers: llama.cpp needs at least one", field="dry_breakers")
    found = {theirs: _plain(getattr(config, ours)) for ours, theirs in LLAMA_FIELDS.items()}
    return found | {
        "typical_p": config.typical_p or 1.0,
        "seed": -1 if config.seed is None else config.seed,
        "n_predict": -1 if config.max_tokens == UNLIMITED else config.max_tokens,
        "logit_bias": [[key, False if value == -math.inf else value] for key, value in config.logit_bias],
        "samplers": [LLAMA_SAMPLERS[name] for name in config.sampler_order if name in LLAMA_SAMPLERS],
    }


def from_openai(data: Mapping[str, Any]) -> SamplingConfig:
    """Read OpenAI's names and vLLM's extras. A field that is null or missing takes OpenAI's default. Penalties count
    the whole text: repetition counts prompt and output, the others the output. Raises SamplingError in OpenAI's names.
    """
    _check_mapping(data)
    asked = _rename_fields(_without_nulls(data, OPENAI_NAMES), OPENAI_FIELDS, OPENAI_OTHER)
    if asked.get("top_k") == -1:
        asked["top_k"] = 0
    if "logit_bias" in asked:
        asked["logit_bias"] = _openai_bias(asked["logit_bias"])
    config = _build(OPENAI_DEFAULTS | asked, OPENAI_FIELDS)
    _check_openai(config)
    return config


def to_openai(config: SamplingConfig) -> dict[str, Any]:
    """Write OpenAI's names, and vLLM's extras only if they are set. Raises SamplingError for what neither can
    express."""
    order = [name for name in config.active if name in OPENAI_ORDER]
    for name in config.active:
        if name not in OPENAI_ORDER:
            field = sampler_named(name).switch.name
            raise SamplingError(f"{field}: OpenAI's requests have no {name}", field=field)
    if order != sorted(order, key=OPENAI_ORDER.index):
        raise SamplingError(
            f"sampler_order: OpenAI's servers run {', '.join(OPENAI_ORDER)}", hint="set it so", field="sampler_order"
        )
    if config.idle:
        raise SamplingError(f"sampler_order: {config.idle[0]} is set and does not run", field="sampler_order")
    _refuse_unless_default(config, ("min_keep", "dynatemp_range", "mirostat"), "OpenAI's requests")
    if config.has_penalties and config.repetition_window != -1:
        raise SamplingError(
            "repetition_window: OpenAI's penalties look at everything", hint="-1", field="repetition_window"
        )
    _check_openai(config)
    found: dict[str, Any] = {}
    for ours, theirs in OPENAI_FIELDS.items():
        value = getattr(config, ours)
        if ours in PENALTIES and not config.has_penalties:
            continue  # a window of 0 switches penalties off, which OpenAI's fields cannot express
        if value != OPENAI_DEFAULTS.get(ours, DEFAULTS[ours]):
            found[theirs] = _plain(value)
    if config.logit_bias:
        found["logit_bias"] = {str(key): value for key, value in config.logit_bias}
    return found


PENALTIES = ("repetition_penalty", "frequency_penalty", "presence_penalty")
DEFAULTS = SamplingConfig().to_json() | {"stop": (), "stop_ids": (), "bad_words": (), "logit_bias": (), "extra": ()}


def _check_mapping(data: object) -> None:
    if not isinstance(data, Mapping):
        raise SamplingError(f"{shown(data)} is not a mapping from names to values")


def _without_nulls(data: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Drop known names whose value is null: both sides treat them as missing."""
    known = frozenset(names)
    return {name: value for name, value in data.items() if value is not None or name not in known}


def _rename_fields(data: Mapping[str, Any], fields: Mapping[str, str], others: Mapping[str, str]) -> dict[str, Any]:
    """Rename the fields of `data` to ours. Raises SamplingError for an unknown name, and for two names of one field
    that disagree."""
    ours = {theirs: name for name, theirs in fields.items()} | dict(others)
    found: dict[str, Any] = {}
    for theirs, value in data.items():
        if theirs not in ours:
            raise SamplingError(
                f"there is no sampling field {shown(theirs)}",
                hint=f"known: {', '.join(sorted(ours))}",
                field=str(theirs),
            )
        name = ours[theirs]
        if name in found and found[name] != value:
            raise SamplingError(f"{theirs}: given twice, as {shown(found[name])} and as {shown(value)}", field=theirs)
        found[name] = value
    return found


def _build(values: dict[str, Any], fields: Mapping[str, str]) -> SamplingConfig:
    """Build the config; an error names the field as the other side calls it."""
    try:
        return SamplingConfig(**values)
    except SamplingError as error:
        ours = error.field or ""
        theirs = fields.get(ours, ours)
        rest = error.message.removeprefix(ours) if error.message.startswith(f"{ours}:") else f": {error.message}"
        raise SamplingError(f"{theirs}{rest}", hint=error.hint, field=theirs) from error


def _check_llama(config: SamplingConfig, names: Mapping[str, str]) -> None:
    """Refuse combinations that llama.cpp runs differently or not at all. names: what errors call the fields."""
    unheated = "temperature" not in config.sampler_order
    if unheated and (config.is_greedy or (config.mirostat and config.temperature != 1)):
        field = names["sampler_order"]
        raise SamplingError(
            f"{field}: temperature is set but not listed, which llama.cpp treats differently", field=field
        )
    removes_best = [name for name in ("typical_p", "xtc") if name in config.active]
    if config.is_greedy and removes_best:
        field = names["xtc_probability" if removes_best == ["xtc"] else "typical_p"]
        raise SamplingError(
            f"{field}: with temperature 0 llama.cpp takes the best token that it leaves, Espalier the best of all",
            field=field,
        )


def _check_openai(config: SamplingConfig) -> None:
    for name in ("frequency_penalty", "presence_penalty"):
        value = getattr(config, name) if config.has_penalties else 0.0
        if not -MAX_PENALTY <= value <= MAX_PENALTY:
            raise SamplingError(f"{name}: {value:g} is outside -2..2, as OpenAI has it", field=name)
    for key, value in config.logit_bias:
        if not isinstance(key, int):
            raise SamplingError(f"logit_bias: {key!r} is a text; OpenAI's has token ids", field="logit_bias")
        if not -MAX_BIAS <= value <= MAX_BIAS:
            raise SamplingError(f"logit_bias: {value:g} is outside -100..100, as OpenAI has it", field="logit_bias")


def _openai_bias(given: Any) -> Any:
    """Check that the biases are a mapping to numbers."""
    if not isinstance(given, Mapping):
        raise SamplingError('logit_bias: a mapping such as {"123": -100}', field="logit_bias")
    for key, value in given.items():
        if value is None or value is False:  # a ban in our names and in llama.cpp's
            raise SamplingError(f"logit_bias: {value!r} for {shown(key)} is no number", field="logit_bias")
    return given


def skip_unknown_samplers(given: str | list[str]) -> tuple[list[str], tuple[str, ...]]:
    """A request's `samplers`, as names, without those that there are none of here, and the skipped ones. llama-server
    skips an unknown name too."""
    names = _sampler_names(given)
    known = [name for name in names if _spelling(name) in SPELLED]
    return known, tuple(dict.fromkeys(name for name in names if name not in known))


def _order(given: Any) -> list[str]:
    """Our names of llama.cpp's samplers. Raises SamplingError for a name that llama.cpp does not have, or that we do
    not support."""
    if not isinstance(given, str | Iterable):
        raise SamplingError(
            "samplers: a list of names", hint=f"known: {', '.join(LLAMA_SAMPLERS.values())}", field="samplers"
        )
    return [_sampler_called(name) for name in _sampler_names(given)]


def _sampler_names(given: str | Iterable[Any]) -> list[Any]:
    """The names of a list of names in any of llama.cpp's spellings, of such names with `;` between them, or of one
    letter each, as in `--sampler-seq`."""
    if not isinstance(given, str):
        return list(given)
    names = [name for name in given.split(";") if name]
    if len(names) == 1 and _spelling(names[0]) not in SPELLED and set(names[0]) <= LETTERS.keys() | OTHER_LETTERS:
        return [LLAMA_SAMPLERS[LETTERS[letter]] if letter in LETTERS else letter for letter in names[0]]
    return names


def _spelling(name: Any) -> str | None:
    return name.lower().replace("_", "").replace("-", "") if isinstance(name, str) else None


def _sampler_called(name: Any) -> str:
    spelling = _spelling(name)
    if spelling not in SPELLED:
        known = ", ".join(LLAMA_SAMPLERS.values())
        raise SamplingError(f"samplers: no sampler {shown(name)}", hint=f"known: {known}", field="samplers")
    return SPELLED[spelling]


def _refuse_unless_default(config: SamplingConfig, names: Iterable[str], who: str) -> None:
    for name in names:
        if getattr(config, name) != DEFAULTS[name]:
            raise SamplingError(f"{name}: {who} cannot express it", hint="leave it at its default", field=name)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
