"""How to get from logits to a token, as data: names and defaults as users know them (llama.cpp, PedroCLI).

Frozen, validated, round-trips to JSON. It knows nothing about how the transforms work.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from espalier.errors import SamplingError

SEED_LIMIT = 2**63

DEFAULT_ORDER = ("top_k", "top_p", "min_p", "temperature")
"""llama.cpp's order: truncate on the model's own distribution, then heat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """One request's sampling. A field at its neutral value switches its transform off.

    temperature: 0 takes the most probable token (ties: lowest id). top_k: 0 is off. top_p: 1 is off. min_p: 0 is off.
    seed: None draws one, which the result then states. max_tokens: how many tokens may be generated, at least 1.
    stop: texts that end the output and are not part of it. stop_ids: token ids that do the same.
    order: the truncations and temperature that run, in their order; one that is not named does not run.
    """

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    seed: int | None = None
    max_tokens: int = 2048
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    order: tuple[str, ...] = DEFAULT_ORDER

    def __post_init__(self) -> None:
        for name in ("stop", "stop_ids", "order"):
            value = getattr(self, name)
            value = () if value is None and name != "order" else (value,) if isinstance(value, str | int) else value
            if not isinstance(value, Sequence):
                raise SamplingError(f"{name}: {value!r} is not a list", field=name)
            object.__setattr__(self, name, tuple(value))
        _number(self, "temperature", low=0.0, hint="0 is greedy")
        _number(self, "top_p", low=0.0, high=1.0, hint="1 is off")
        _number(self, "min_p", low=0.0, high=1.0, hint="0 is off")
        _integer(self, "top_k", low=0, hint="0 is off")
        _integer(self, "max_tokens", low=1)
        if self.seed is not None:
            _integer(self, "seed", low=-1, high=SEED_LIMIT - 1, hint="-1 or nothing draws one")
            if self.seed == -1:
                object.__setattr__(self, "seed", None)
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise SamplingError("stop: each must be a text that is not empty", field="stop")
        for token in self.stop_ids:
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                raise SamplingError("stop_ids: each must be a token id", field="stop_ids")
        unknown = [name for name in self.order if name not in DEFAULT_ORDER]
        if unknown or len(set(self.order)) != len(self.order):
            raise SamplingError(
                f"order: {', '.join(unknown) or 'a name occurs twice'}",
                hint=f"known: {', '.join(DEFAULT_ORDER)}",
                field="order",
            )

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken and nothing is drawn."""
        return self.temperature == 0.0

    def to_json(self) -> dict[str, Any]:
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SamplingConfig:
        """The inverse of `to_json`; unknown names raise SamplingError."""
        known = {f.name for f in fields(SamplingConfig)}
        for name in data:
            if name not in known:
                raise SamplingError(
                    f"there is no sampling field {name!r}", hint=f"known: {', '.join(sorted(known))}", field=name
                )
        return SamplingConfig(**data)


def _number(config: SamplingConfig, name: str, *, low: float, high: float = math.inf, hint: str = "") -> None:
    value = getattr(config, name)
    # bool is an int to Python, and NaN passes every comparison the wrong way round: both are mistakes here.
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SamplingError(f"{name}: {value!r} is not a finite number", field=name)
    if not low <= value <= high:
        upper = "" if high == math.inf else f" and at most {high:g}"
        raise SamplingError(f"{name}: {value!r} must be at least {low:g}{upper}", hint=hint or None, field=name)
    object.__setattr__(config, name, float(value))


def _integer(config: SamplingConfig, name: str, *, low: int, high: int | None = None, hint: str = "") -> None:
    value = getattr(config, name)
    if isinstance(value, bool) or not isinstance(value, int):
        raise SamplingError(f"{name}: {value!r} is not a whole number", field=name)
    if value < low or (high is not None and value > high):
        upper = "" if high is None else f" and at most {high}"
        raise SamplingError(f"{name}: {value!r} must be at least {low}{upper}", hint=hint or None, field=name)
