"""The effective settings of a request, as llama-server returns them in `generation_settings`; the request may say less.

It also says why a request cannot be traced, where its sampler or grammar cannot be followed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from espalier.errors import UpstreamError
from espalier.upstream.xray.grammar.lazy import Triggers

RANDOM_SEED = 2**32 - 1
FOLLOWED = frozenset({"penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"})


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSettings:
    """Names and meanings are llama-server's; floats are float32 values. bias: id and what is added to its logit, in
    order. triggers: of a lazy grammar, None for one that holds from the start. most: tokens of an output (n_predict),
    below 1 for no limit. reason: why the draws cannot be followed, "" if they can."""

    grammar: str
    triggers: Triggers | None
    seed: int
    samplers: tuple[str, ...]
    temperature: float
    dynatemp_range: float
    dynatemp_exponent: float
    top_k: int
    top_p: float
    min_p: float
    typical_p: float
    top_n_sigma: float
    min_keep: int
    xtc_probability: float
    xtc_threshold: float
    repeat_last_n: int
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_multiplier: float
    dry_base: float
    dry_allowed_length: int
    dry_penalty_last_n: int
    dry_sequence_breakers: tuple[str, ...]
    mirostat: int
    mirostat_tau: float
    mirostat_eta: float
    bias: tuple[tuple[int, float], ...]
    most: int
    reason: str

    @property
    def has_penalties(self) -> bool:
        return (
            "penalties" in self.samplers
            and not self.mirostat
            and self.repeat_last_n != 0
            and (self.repeat_penalty != 1 or self.presence_penalty != 0 or self.frequency_penalty != 0)
        )

    @property
    def has_repeat(self) -> bool:
        """Whether logits are divided or multiplied, so that they must be known themselves."""
        return self.has_penalties and self.repeat_penalty != 1

    @property
    def has_dry(self) -> bool:
        return (
            "dry" in self.samplers
            and not self.mirostat
            and self.dry_multiplier != 0
            and self.dry_base >= 1
            and self.dry_penalty_last_n != 0
        )

    @property
    def has_xtc(self) -> bool:
        return "xtc" in self.samplers and self.xtc_probability > 0 and self.xtc_threshold <= 0.5 and not self.mirostat

    @property
    def needs_history(self) -> bool:
        """Whether the draws depend on the tokens before, those of the prompt included."""
        return self.has_penalties or self.has_dry


def read_settings(data: Any) -> SamplerSettings:
    """Raises UpstreamError naming a field that is missing or wrong."""
    if not isinstance(data, Mapping):
        raise UpstreamError("the reply does not tell its generation_settings")
    try:
        found = _read(data)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UpstreamError(f"generation_settings of the reply cannot be read: {error!r}") from error
    return found


def _read(data: Mapping[str, Any]) -> SamplerSettings:
    single: dict[str, Any] = {
        name: float(np.float32(data[name]))
        for name in (
            "temperature",
            "dynatemp_range",
            "dynatemp_exponent",
            "top_p",
            "min_p",
            "typical_p",
            "top_n_sigma",
            "xtc_probability",
            "xtc_threshold",
            "presence_penalty",
            "frequency_penalty",
            "dry_multiplier",
            "dry_base",
            "mirostat_tau",
            "mirostat_eta",
        )
    }
    single["repeat_penalty"] = float(np.float32(data.get("repeat_penalty", 1.0)))
    whole: dict[str, Any] = {
        name: int(data[name])
        for name in (
            "seed",
            "top_k",
            "min_keep",
            "repeat_last_n",
            "dry_allowed_length",
            "dry_penalty_last_n",
            "mirostat",
        )
    }
    samplers = tuple(str(one) for one in data["samplers"])
    bias = tuple((int(one["token"]), _bias(one["bias"])) for one in data.get("logit_bias") or ())
    return SamplerSettings(
        grammar=str(data.get("grammar") or ""),
        triggers=_triggers(data),
        samplers=samplers,
        bias=bias,
        dry_sequence_breakers=tuple(str(one) for one in data["dry_sequence_breakers"]),
        most=int(data.get("n_predict", -1)),
        reason=_reason(data, samplers, whole),
        **single,
        **whole,
    )


def _triggers(data: Mapping[str, Any]) -> Triggers | None:
    is_lazy = bool(data.get("grammar_lazy")) and bool(data.get("grammar"))
    return Triggers.of(data.get("grammar_triggers") or ()) if is_lazy else None


def _bias(value: Any) -> float:
    """JSON has no infinities: a ban is written as null or false."""
    return -math.inf if value is None or value is False else float(np.float32(value))


def _reason(data: Mapping[str, Any], samplers: tuple[str, ...], whole: Mapping[str, int]) -> str:
    if str(data.get("grammar") or "").startswith("%llguidance"):
        return "the grammar is llguidance's"
    if str(data.get("speculative.types", "none")) != "none":
        return "drafted tokens have no probabilities (speculative decoding)"
    if data.get("backend_sampling"):
        return "the server samples on its device"
    if data.get("post_sampling_probs"):
        return "the reply has the probabilities after sampling, not the model's"
    if whole["seed"] == RANDOM_SEED:
        return "the seed is not known"
    if not whole["mirostat"] and (unknown := [one for one in samplers if one not in FOLLOWED]):
        return f"the sampler {unknown[0]} is not followed"
    return ""
