"""The fields of a sampling config, as values: name, default, range, names in other servers, and how a value is checked.

`check` returns the value as it is stored, or raises SamplingError that names the field. This module does not know
which fields there are: samplers declare theirs in `samplers/`, and `config.py` declares the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from espalier.errors import SamplingError

SEED_LIMIT = 2**63
COUNT_LIMIT = 2**53
"""Counts and token ids are smaller: a float holds every whole number up to here."""
DIGITS = 16  # of the largest id that is below COUNT_LIMIT
SHOWN = 60  # characters of a wrong value in an error


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingField:
    """A field that takes any value.

    off: the neutral value of a field that switches a sampler on; None if the field switches nothing. llama, openai:
    the field's name in llama.cpp's requests and in OpenAI's (with vLLM's extras); None if they have no such field.
    llama_negative_is_off: whether llama.cpp takes any negative value as `off`.
    """

    name: str
    default: Any = None
    off: float | None = None
    hint: str = ""
    llama: str | None = None
    openai: str | None = None
    llama_negative_is_off: bool = False

    def check(self, given: Any) -> Any:
        return given

    def fault(self, problem: str, *, hint: str = "") -> SamplingError:
        return SamplingError(f"{self.name}: {problem}", hint=hint or None, field=self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(SamplingField):
    """A finite float from `low` to `high`, both included."""

    low: float = 0.0
    high: float = math.inf

    def check(self, given: Any) -> float:
        value = as_float(given)
        if not math.isfinite(value):
            raise self.fault(f"{shown(given)} is not a finite number")
        if not self.low <= value <= self.high:
            upper = "" if self.high == math.inf else f" and at most {self.high:g}"
            raise self.fault(f"{shown(given)} must be at least {self.low:g}{upper}", hint=self.hint)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(SamplingField):
    """A whole number from `low` to `high`, both included."""

    low: int = 0
    high: int | None = None

    def check(self, given: Any) -> int:
        if not is_whole(given):
            raise self.fault(f"{shown(given)} is not a whole number")
        most = COUNT_LIMIT - 1 if self.high is None else self.high
        if not self.low <= given <= most:
            upper = "" if self.high is None and given < self.low else f" and at most {most}"
            raise self.fault(f"{shown(given)} must be at least {self.low}{upper}", hint=self.hint)
        return int(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed(SamplingField):
    """None, or -1 for None, or a whole number below 2**63."""

    def check(self, given: Any) -> int | None:
        if given is None:
            return None
        value = Whole(name=self.name, low=-1, high=SEED_LIMIT - 1, hint=self.hint).check(given)
        return None if value == -1 else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(SamplingField):
    def check(self, given: Any) -> bool:
        if not isinstance(given, bool):
            raise self.fault(f"{shown(given)} is not true or false")
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts(SamplingField):
    """Texts that are not empty; a single text is a list of one, and None an empty list."""

    def check(self, given: Any) -> tuple[str, ...]:
        texts = as_tuple(self, () if given is None else given)
        for text in texts:
            if not isinstance(text, str) or not text:
                raise self.fault("each must be a text that is not empty")
            check_text(text, self.name)
        return texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Names(SamplingField):
    """Names out of `known`, each at most once."""

    known: tuple[str, ...] = ()

    def check(self, given: Any) -> tuple[str, ...]:
        names = as_tuple(self, given)
        unknown = [
            name.encode(errors="backslashreplace").decode() if isinstance(name, str) else shown(name)
            for name in names
            if not isinstance(name, str) or name not in self.known
        ]
        if unknown or len(set(names)) != len(names):
            problem = f"unknown: {', '.join(unknown)}" if unknown else "a name occurs twice"
            raise self.fault(problem, hint=f"known: {', '.join(self.known)}")
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class Ids(SamplingField):
    """Token ids, from any iterable. A default of None means that None stays None, and that an empty list is refused;
    with a default of () None is an empty list, and a single id a list of one."""

    def check(self, given: Any) -> tuple[int, ...] | None:
        if self.default is None:
            ids = None if given is None else self._read(given)
            if ids == ():
                raise self.fault("nothing would be allowed")
            return ids
        given = () if given is None else given
        return self._read((given,) if is_whole(given) else given)

    def _read(self, value: Any) -> tuple[int, ...]:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise self.fault(f"{shown(value)} is not a list of token ids")
        ids: list[int] = []
        for token in value:
            if not is_whole(token) or not 0 <= token < COUNT_LIMIT:
                raise self.fault(f"each must be a token id, not {shown(token)}")
            ids.append(int(token))
        return tuple(sorted(ids)) if isinstance(value, Set) else tuple(ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Biases(SamplingField):
    """Pairs of a token id or a text, and what to add to its logit. In a mapping, a key of ASCII digits is an id, since
    JSON objects have texts as keys. None and false stand for -inf, which bans."""

    def check(self, given: Any) -> tuple[tuple[int | str, float], ...]:
        items: Any = given.items() if isinstance(given, Mapping) else () if given is None else given
        if isinstance(items, str | bytes) or not isinstance(items, Iterable):
            raise self.fault("a mapping from token ids or texts to numbers")
        biases: dict[int | str, float] = {}
        for item in items:
            if isinstance(item, str) or not isinstance(item, Sequence) or len(item) != 2:
                raise self.fault("each is a token id or a text, and a number")
            key = self._key(item[0], is_json_key=isinstance(given, Mapping))
            value = item[1]
            number = -math.inf if value is None or value is False else as_float(value)
            if math.isnan(number) or number == math.inf:
                raise self.fault(f"{shown(value)} for {shown(key)} is no number", hint="-inf, or false, bans")
            if key in biases:
                raise self.fault(f"{shown(key)} is there twice")
            biases[key] = number
        return tuple(biases.items())

    def _key(self, value: Any, *, is_json_key: bool) -> int | str:
        key = value
        if is_json_key and isinstance(key, str) and key.isascii() and key.isdigit():
            # More digits are no id, and Python refuses to read thousands.
            key = int(key) if len(key) <= DIGITS else COUNT_LIMIT
        if isinstance(key, str) and key:
            check_text(key, self.name)
            return key
        if is_whole(key) and 0 <= key < COUNT_LIMIT:
            return int(key)
        raise self.fault(f"{shown(value)} is neither a token id nor a text")


def as_tuple(field: SamplingField, given: Any) -> tuple[Any, ...]:
    """A list as a tuple; a single text is a list of one. Raises SamplingError for what is no list."""
    value = (given,) if isinstance(given, str) else given
    if not isinstance(value, Sequence):
        raise field.fault(f"{shown(value)} is not a list")
    return tuple(value)


def is_whole(value: object) -> bool:
    """Whether the value is a whole number, NumPy's included. A bool is an int in Python, and a mistake here."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def as_float(value: object) -> float:
    """A number as a Python float; NaN for what is not a number or does not fit into a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def check_text(text: str, name: str) -> None:
    """Raises SamplingError for half a surrogate pair: no tokenizer takes it and no file can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SamplingError(f"{name}: {shown(text)} is no Unicode text", field=name) from None


def shown(value: object) -> str:
    """A value for an error message, cut to 60 characters."""
    try:
        text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    except ValueError:  # Python does not print numbers of thousands of digits
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
