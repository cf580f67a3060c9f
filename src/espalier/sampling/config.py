"""How to get from logits to a token, as data: names and defaults as users know them (llama.cpp, PedroCLI).

Frozen, validated, round-trips to JSON. It knows nothing about how the transforms work; other engines' names are in
`config_names.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from numbers import Integral, Real
from typing import Any, Final

from espalier.errors import SamplingError

SEED_LIMIT = 2**63
COUNT_LIMIT = 2**53
"""No count and no token id reaches it: up to here a float holds every whole number."""
XTC_OFF = 0.5
"""A threshold above it switches xtc off: no two tokens can both reach it."""
DIGITS = 16  # of the largest id that is below COUNT_LIMIT
SHOWN = 60  # characters of a wrong value in an error
MAX_N = 128
"""Outputs of one prompt at most, as OpenAI has it."""

DEFAULT_ORDER = ("penalties", "dry", "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc", "temperature")
"""llama.cpp's order: penalise and truncate on the model's own distribution, then heat."""

DEFAULT_BREAKERS = ("\n", ":", '"', "*")
"""Texts over which DRY does not look back, as in llama.cpp."""


class _Unset:
    """Stands for a default that depends on `mirostat`."""


UNSET: Final[Any] = _Unset()
NEUTRAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "typical_p": 0.0, "top_n_sigma": 0.0, "xtc_probability": 0.0}
"""What switches each truncation off; mirostat takes their place."""
USUAL = {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 0.0, "top_n_sigma": 0.0, "xtc_probability": 0.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingConfig:
    """One request's sampling. A field at its neutral value switches its transform off.

    temperature: 0 takes the most probable token (ties: lowest id). dynatemp_range, dynatemp_exponent: temperature
    varies by so much with the entropy; 0 is off. top_k: 0 is off. top_p: 1 is off. min_p: 0 is off. typical_p: 0 and 1
    are off. top_n_sigma: 0 is off. xtc_probability: 0 is off. min_keep: what top_p, min_p, typical_p and xtc leave at
    least.

    repetition_penalty: divides what occurred in the last `repetition_window` tokens, prompt included; 1 is off.
    frequency_penalty, presence_penalty: per occurrence and once, of generated tokens within the window; 0 is off.
    repetition_window: 0 switches all three off, -1 is everything. dry_multiplier: 0 is off.

    mirostat: 1 or 2; it takes the place of all truncations, so none may be set beside it. mirostat_tau,
    mirostat_eta: the surprise aimed at, in bits, and how fast; with mirostat on their usual values are 5 and 0.1.

    logit_bias: what to add, by token id or by text (each of its tokens); -inf bans. bad_words: texts that must not
    occur. allowed_ids: no other token is drawn. min_tokens: no EOS and no stop id before; a constraint that leaves
    nothing else wins.

    seed: None draws one, which the result then states. n: how many outputs for a prompt. max_tokens: how many tokens
    may be generated, at least 1. stop: texts that end the output and are not part of it. stop_ids: token ids that do
    the same. sampler_order: the transforms that run, in their order; one that is not named does not run (see `idle`).

    Raises SamplingError naming the field.
    """

    temperature: float = 0.7
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = UNSET
    top_p: float = UNSET
    min_p: float = UNSET
    typical_p: float = UNSET
    top_n_sigma: float = UNSET
    min_keep: int = 0
    xtc_probability: float = UNSET
    xtc_threshold: float = 0.1
    repetition_penalty: float = 1.1
    repetition_window: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_window: int = -1
    dry_breakers: tuple[str, ...] = DEFAULT_BREAKERS
    mirostat: int = 0
    mirostat_tau: float = UNSET
    mirostat_eta: float = UNSET
    logit_bias: tuple[tuple[int | str, float], ...] = ()
    bad_words: tuple[str, ...] = ()
    allowed_ids: tuple[int, ...] | None = None
    seed: int | None = None
    n: int = 1
    min_tokens: int = 0
    max_tokens: int = 2048
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    sampler_order: tuple[str, ...] = field(default=DEFAULT_ORDER)

    def __post_init__(self) -> None:
        for name in ("stop", "sampler_order", "dry_breakers", "bad_words"):
            value = getattr(self, name)
            value = () if value is None and name != "sampler_order" else value
            value = (value,) if isinstance(value, str) else value
            if not isinstance(value, Sequence):
                raise SamplingError(f"{name}: {shown(value)} is not a list", field=name)
            object.__setattr__(self, name, tuple(value))
        _integer(self, "mirostat", low=0, high=2, hint="0 is off")
        self._fill()
        for name, (low, high, hint) in NUMBERS.items():
            _number(self, name, low=low, high=high, hint=hint)
        for name, (least, most, hint) in INTEGERS.items():
            _integer(self, name, low=least, high=most, hint=hint)
        if self.seed is not None:
            _integer(self, "seed", low=-1, high=SEED_LIMIT - 1, hint="-1 or nothing draws one")
            if self.seed == -1:
                object.__setattr__(self, "seed", None)
        if not isinstance(self.ignore_eos, bool):
            raise SamplingError(f"ignore_eos: {shown(self.ignore_eos)} is not true or false", field="ignore_eos")
        for name in ("stop", "bad_words", "dry_breakers"):
            for text in getattr(self, name):
                if not isinstance(text, str) or not text:
                    raise SamplingError(f"{name}: each must be a text that is not empty", field=name)
                _check_text(text, name)
        self._check_ids()
        self._check_order()
        self._check_together()

    def _fill(self) -> None:
        """Defaults that depend on `mirostat`."""
        defaults = {**(NEUTRAL if self.mirostat else USUAL)}
        defaults |= {"mirostat_tau": 5.0, "mirostat_eta": 0.1} if self.mirostat else dict.fromkeys(MIROSTAT, 0.0)
        for name, value in defaults.items():
            if getattr(self, name) is UNSET:
                object.__setattr__(self, name, value)

    def _check_ids(self) -> None:
        stops = () if self.stop_ids is None else self.stop_ids
        object.__setattr__(self, "stop_ids", _ids((stops,) if _is_whole(stops) else stops, "stop_ids"))
        if self.allowed_ids is not None:
            object.__setattr__(self, "allowed_ids", _ids(self.allowed_ids, "allowed_ids"))
            if not self.allowed_ids:
                raise SamplingError("allowed_ids: nothing would be allowed", field="allowed_ids")
        object.__setattr__(self, "logit_bias", tuple(_biases(self.logit_bias)))

    def _check_order(self) -> None:
        unknown = [
            name.encode(errors="backslashreplace").decode() if isinstance(name, str) else shown(name)
            for name in self.sampler_order
            if not isinstance(name, str) or name not in DEFAULT_ORDER
        ]
        if unknown or len(set(self.sampler_order)) != len(self.sampler_order):
            what = f"unknown: {', '.join(unknown)}" if unknown else "a name occurs twice"
            raise SamplingError(
                f"sampler_order: {what}",
                hint=f"known: {', '.join(DEFAULT_ORDER)}",
                field="sampler_order",
            )

    def _check_together(self) -> None:
        if self.repetition_penalty <= 0:
            raise SamplingError("repetition_penalty: it must be above 0", hint="1 is off", field="repetition_penalty")
        if self.min_tokens > self.max_tokens:
            raise SamplingError(
                f"min_tokens: {self.min_tokens} is more than max_tokens {self.max_tokens}", field="min_tokens"
            )
        if not self.mirostat:
            return
        for name, off in NEUTRAL.items():
            if getattr(self, name) != off:
                raise SamplingError(
                    f"mirostat takes the place of {name}, which is {getattr(self, name):g}",
                    hint=f"leave {name} out, or set it to {off:g}",
                    field=name,
                )
        if self.mirostat_eta <= 0 or self.mirostat_tau <= 0:
            raise SamplingError("mirostat_tau and mirostat_eta must be above 0", field="mirostat_tau")
        if self.dynatemp_range:
            raise SamplingError("mirostat and dynatemp_range both move the temperature", field="dynatemp_range")

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken and nothing is drawn."""
        return self.temperature == 0.0 and not self.dynatemp_range

    @property
    def active(self) -> tuple[str, ...]:
        """The transforms that run, in order: named in `sampler_order`, and not at their neutral value."""
        on = self._on()
        return tuple(name for name in self.sampler_order if on[name])

    @property
    def idle(self) -> tuple[str, ...]:
        """Transforms that are set and do not run, since `sampler_order` leaves them out. Greedy needs no order."""
        on = self._on()
        on["temperature"] = on["temperature"] and not self.is_greedy
        return tuple(name for name in DEFAULT_ORDER if on[name] and name not in self.sampler_order)

    def _on(self) -> dict[str, bool]:
        """By transform, whether its fields are away from their neutral values."""
        return {
            "penalties": self.has_penalties,
            "dry": self.dry_multiplier > 0 and self.dry_window != 0,
            "top_n_sigma": self.top_n_sigma > 0,
            "top_k": self.top_k > 0,
            "typical_p": 0 < self.typical_p < 1,
            "top_p": self.top_p < 1,
            "min_p": self.min_p > 0,
            "xtc": self.xtc_probability > 0 and self.xtc_threshold <= XTC_OFF,
            "temperature": self.temperature != 1 or self.dynatemp_range > 0,
        }

    @property
    def has_penalties(self) -> bool:
        """Whether any of the three penalties changes anything."""
        changes = self.repetition_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0
        return changes and self.repetition_window != 0

    def to_json(self) -> dict[str, Any]:
        """All fields in our names; -inf, which JSON does not have, is written as null in `logit_bias`."""
        found: dict[str, Any] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            found[one.name] = list(value) if isinstance(value, tuple) else value
        found["logit_bias"] = [[key, value if math.isfinite(value) else None] for key, value in self.logit_bias]
        return found

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> SamplingConfig:
        """The inverse of `to_json`; unknown names raise SamplingError."""
        if not isinstance(data, Mapping):
            raise SamplingError(f"{shown(data)} is not a mapping from names to values")
        known = {f.name for f in fields(SamplingConfig)}
        for name in data:
            if name not in known:
                raise SamplingError(
                    f"there is no sampling field {shown(name)}",
                    hint=f"known: {', '.join(sorted(known))}",
                    field=str(name),
                )
        return SamplingConfig(**data)


MIROSTAT = ("mirostat_tau", "mirostat_eta")
NUMBERS: dict[str, tuple[float, float, str]] = {
    "temperature": (0.0, math.inf, "0 is greedy"),
    "dynatemp_range": (0.0, math.inf, "0 is off"),
    "dynatemp_exponent": (0.0, math.inf, ""),
    "top_p": (0.0, 1.0, "1 is off"),
    "min_p": (0.0, 1.0, "0 is off"),
    "typical_p": (0.0, 1.0, "0 and 1 are off"),
    "top_n_sigma": (0.0, math.inf, "0 is off"),
    "xtc_probability": (0.0, 1.0, "0 is off"),
    "xtc_threshold": (0.0, 1.0, "above 0.5 nothing is cut"),
    "repetition_penalty": (0.0, math.inf, "1 is off"),
    "frequency_penalty": (-math.inf, math.inf, "0 is off"),
    "presence_penalty": (-math.inf, math.inf, "0 is off"),
    "dry_multiplier": (0.0, math.inf, "0 is off"),
    "dry_base": (1.0, math.inf, ""),
    "mirostat_tau": (0.0, math.inf, ""),
    "mirostat_eta": (0.0, math.inf, ""),
}
"""Least, most, and what to say besides."""
INTEGERS: dict[str, tuple[int, int | None, str]] = {
    "top_k": (0, None, "0 is off"),
    "min_keep": (0, None, ""),
    "repetition_window": (-1, None, "0 is off, -1 is everything"),
    "dry_allowed_length": (0, None, ""),
    "dry_window": (-1, None, "0 is off, -1 is everything"),
    "n": (1, MAX_N, ""),
    "min_tokens": (0, None, ""),
    "max_tokens": (1, None, ""),
}


def _biases(given: Any) -> list[tuple[int | str, float]]:
    """Pairs of an id or a text, and what to add. Keys of a mapping that are ASCII digits are ids, as JSON objects
    have no other keys than texts."""
    if given is None:
        return []
    items: Any = given.items() if isinstance(given, Mapping) else given
    if isinstance(items, str | bytes) or not isinstance(items, Iterable):
        raise SamplingError("logit_bias: a mapping from token ids or texts to numbers", field="logit_bias")
    found: dict[int | str, float] = {}
    for item in items:
        if isinstance(item, str) or not isinstance(item, Sequence) or len(item) != 2:
            raise SamplingError("logit_bias: each is a token id or a text, and a number", field="logit_bias")
        key, value = item
        if isinstance(given, Mapping) and isinstance(key, str) and key.isascii() and key.isdigit():
            # So many digits are no id, and Python refuses to read thousands.
            key = int(key) if len(key) <= DIGITS else COUNT_LIMIT
        if isinstance(key, str) and key:
            _check_text(key, "logit_bias")
        elif _is_whole(key) and 0 <= key < COUNT_LIMIT:
            key = int(key)
        else:
            raise SamplingError(f"logit_bias: {shown(item[0])} is neither a token id nor a text", field="logit_bias")
        number = -math.inf if value is None or value is False else _float(value)
        if math.isnan(number) or number == math.inf:
            raise SamplingError(
                f"logit_bias: {shown(value)} for {shown(key)} is no number",
                hint="-inf, or false, bans",
                field="logit_bias",
            )
        if key in found:
            raise SamplingError(f"logit_bias: {shown(key)} is there twice", field="logit_bias")
        found[key] = number
    return list(found.items())


def _number(config: SamplingConfig, name: str, *, low: float, high: float = math.inf, hint: str = "") -> None:
    given = getattr(config, name)
    value = _float(given)
    if not math.isfinite(value):
        raise SamplingError(f"{name}: {shown(given)} is not a finite number", field=name)
    if not low <= value <= high:
        upper = "" if high == math.inf else f" and at most {high:g}"
        raise SamplingError(f"{name}: {shown(given)} must be at least {low:g}{upper}", hint=hint or None, field=name)
    object.__setattr__(config, name, value)


def _integer(config: SamplingConfig, name: str, *, low: int, high: int | None = None, hint: str = "") -> None:
    value = getattr(config, name)
    if not _is_whole(value):
        raise SamplingError(f"{name}: {shown(value)} is not a whole number", field=name)
    most = COUNT_LIMIT - 1 if high is None else high
    if not low <= value <= most:
        upper = "" if high is None and value < low else f" and at most {most}"
        raise SamplingError(f"{name}: {shown(value)} must be at least {low}{upper}", hint=hint or None, field=name)
    object.__setattr__(config, name, int(value))


def _ids(given: Any, name: str) -> tuple[int, ...]:
    """Any iterable of token ids, gone through once."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise SamplingError(f"{name}: {shown(given)} is not a list of token ids", field=name)
    found: list[int] = []
    for token in given:
        if not _is_whole(token) or not 0 <= token < COUNT_LIMIT:
            raise SamplingError(f"{name}: each must be a token id, not {shown(token)}", field=name)
        found.append(int(token))
    return tuple(sorted(found)) if isinstance(given, Set) else tuple(found)


def _is_whole(value: object) -> bool:
    """Whether it is a whole number, NumPy's included. bool is an int to Python, and a mistake here."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _float(value: object) -> float:
    """A number as Python's float; NaN for what is none, and for what no float can hold."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def _check_text(text: str, name: str) -> None:
    """Half a surrogate pair is no text: no tokenizer takes it and no file can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SamplingError(f"{name}: {shown(text)} is no Unicode text", field=name) from None


def shown(value: object) -> str:
    """A value as an error shows it: short, and whatever it is."""
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except ValueError:  # Python writes no number of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
