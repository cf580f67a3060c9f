"""The command line of llama-completion for a sampling. What its `--help` does not list is refused where it matters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from espalier.errors import CapabilityError, SamplingError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.config_names import to_llama

FLAGS: dict[str, tuple[str, Any]] = {
    "temperature": ("--temp", None), "top_k": ("--top-k", None), "top_p": ("--top-p", None), "min_p": ("--min-p", None),
    "typical_p": ("--typical", 1.0), "top_n_sigma": ("--top-nsigma", 0.0), "min_keep": ("--min-keep", 0),
    "repeat_penalty": ("--repeat-penalty", None), "repeat_last_n": ("--repeat-last-n", None),
    "presence_penalty": ("--presence-penalty", 0.0), "frequency_penalty": ("--frequency-penalty", 0.0),
    "dynatemp_range": ("--dynatemp-range", 0.0), "dynatemp_exponent": ("--dynatemp-exp", 1.0),
    "xtc_probability": ("--xtc-probability", 0.0), "xtc_threshold": ("--xtc-threshold", 0.1),
    "dry_multiplier": ("--dry-multiplier", 0.0), "dry_base": ("--dry-base", 1.75),
    "dry_allowed_length": ("--dry-allowed-length", 2), "dry_penalty_last_n": ("--dry-penalty-last-n", None),
    "mirostat": ("--mirostat", 0), "mirostat_tau": ("--mirostat-ent", 5.0), "mirostat_eta": ("--mirostat-lr", 0.1),
    "seed": ("--seed", None), "n_predict": ("--n-predict", None),
}  # fmt: skip
"""A field of llama.cpp's requests -> its flag, and the program's default, where a flag it lacks would change nothing;
None: the flag is always given."""
SWITCHES = {
    "mirostat_tau": "mirostat", "mirostat_eta": "mirostat", "xtc_threshold": "xtc_probability",
    "dynatemp_exponent": "dynatemp_range", "dry_base": "dry_multiplier", "dry_allowed_length": "dry_multiplier",
    "dry_penalty_last_n": "dry_multiplier",
}  # fmt: skip
"""A field -> the one without which it means nothing."""
OURS = {"repeat_penalty": "repetition_penalty", "repeat_last_n": "repetition_window", "n_predict": "max_tokens"}


def sampling_arguments(config: SamplingConfig, known: Collection[str], *, context: int) -> list[str]:
    """known: the program's flags. context: the model's, for windows over all of the text. Stop texts are not among
    them: the program knows none. Raises SamplingError and CapabilityError naming the field."""
    return list(_arguments(to_llama(config), known, context))


def _arguments(fields: dict[str, Any], known: Collection[str], context: int) -> Iterator[str]:
    for name, (flag, default) in FLAGS.items():
        value = fields[name]
        if not fields[SWITCHES.get(name, "n_predict")]:
            continue
        if name in ("repeat_last_n", "dry_penalty_last_n") and value == -1:
            value = context
        if value == default:
            continue
        _need(flag, known, OURS.get(name, name))
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
