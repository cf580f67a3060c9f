"""The command line of llama-completion for a sampling. What its `--help` does not list is refused where it matters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from espalier.errors import CapabilityError, SamplingError
from espalier.sampling.config import COMMON, SamplingConfig
from espalier.sampling.config_names import LLAMA_FIELDS, LLAMA_FLAGS, to_llama

OTHERWISE = ("dry_breakers", "sampler_order", "ignore_eos", "logit_bias", "stop", "n")
"""Options that are not one flag with a value: see `_arguments`. The program has no stop texts, and gives one output."""
NAMES = {**LLAMA_FIELDS, **{ours: flag for flag, ours in LLAMA_FLAGS.items() if ours != "max_tokens"}}
FLAGS = {name: f"--{NAMES[name].replace('_', '-')}" for name in LLAMA_FIELDS if name not in OTHERWISE}
"""Our option -> the program's flag."""
ALWAYS = frozenset({option.name for option in COMMON} | {"repetition_window", "dry_window"})
"""Options whose flag is always given."""
DEFAULTS: dict[str, float] = {
    "typical_p": 1.0,
    "top_n_sigma": 0.0,
    "min_keep": 0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
}
"""The program's defaults of the others, whose flag would change nothing."""
SWITCHES = {
    "mirostat_tau": "mirostat",
    "mirostat_eta": "mirostat",
    "xtc_threshold": "xtc_probability",
    "dynatemp_exponent": "dynatemp_range",
    "dry_base": "dry_multiplier",
    "dry_allowed_length": "dry_multiplier",
    "dry_window": "dry_multiplier",
}
"""An option -> the one without which it means nothing."""


def sampling_arguments(config: SamplingConfig, known: Collection[str], *, context: int) -> list[str]:
    """known: the program's flags. context: the model's, for windows over all of the text. Stop texts are not among
    them: the program knows none. Raises SamplingError and CapabilityError naming the field."""
    return list(_arguments(to_llama(config), known, context))


def _arguments(fields: dict[str, Any], known: Collection[str], context: int) -> Iterator[str]:
    for name, flag in FLAGS.items():
        value = fields[LLAMA_FIELDS[name]]
        if not fields[LLAMA_FIELDS[SWITCHES.get(name, "max_tokens")]]:
            continue
        if name in ("repetition_window", "dry_window") and value == -1:
            value = context
        if name not in ALWAYS and value == DEFAULTS[name]:
            continue
        _need(flag, known, name)
        yield from (flag, str(value))
    if fields["dry_multiplier"]:
        for breaker in fields["dry_sequence_breakers"]:
            _need("--dry-sequence-breaker", known, "dry_breakers")
            yield from ("--dry-sequence-breaker", breaker)
    _need("--samplers", known, "sampler_order")
    yield from ("--samplers", ";".join(fields["samplers"]))
    if fields["ignore_eos"]:
        _need("--ignore-eos", known, "ignore_eos")
        yield "--ignore-eos"
    for token, bias in fields["logit_bias"]:
        if not isinstance(token, int):
            raise SamplingError(f"logit_bias: {token!r} is a text; a program takes token ids", field="logit_bias")
        _need("--logit-bias", known, "logit_bias")
        yield from ("--logit-bias", f"{token}-inf" if bias is False else f"{token}{bias:+}")


def _need(flag: str, known: Collection[str], field: str) -> None:
    if flag not in known:
        raise CapabilityError(f"this llama.cpp has no {flag}", hint="use a newer one", field=field)
