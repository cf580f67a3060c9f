"""`Option`: the declaration of one option of a request, and the kinds of options with how each checks a value.

From a declaration come the typed arguments of `generate`, the flags, the fields of request bodies, the arguments of
agents' tools and the reference page (docs/options.md). `check` returns the value as it is stored, or raises an error
that names the option. This module does not know which options there are: samplers declare theirs in `samplers/`,
`sampling/config.py` the rest of the sampling, `decoding/options.py` those of strategies, and
`engines/request_options.py` those of schemas, prompts and tools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from espalier.errors import InputError, SamplingError

SEED_LIMIT = 2**63
COUNT_LIMIT = 2**53
"""Counts and token ids are smaller: a float holds every whole number up to here."""
DIGITS = 16  # of the largest id that is below COUNT_LIMIT
SHOWN = 60  # characters of a wrong value in an error


class Types(NamedTuple):
    """The types of an option's values; one whose default is None takes None too."""

    #: What `generate` takes, as type checkers read it.
    argument: str
    #: What a config stores, as type checkers read it.
    stored: str
    #: What a field of a request body takes.
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option that takes any value."""

    types: ClassVar[Types] = Types("Any", "Any", Any)

    name: str
    default: Any = None
    #: The neutral value of an option that switches something on; None if it switches nothing.
    off: float | None = None
    #: What it does, in a sentence: for help, the reference page, agents and editors.
    help: str = ""
    #: What to do about a value that is out of range.
    hint: str = ""
    #: Its name in llama.cpp's requests; None if they have no such field.
    llama: str | None = None
    #: Its name in OpenAI's requests (with vLLM's extras); None if they have no such field.
    openai: str | None = None
    #: Whether llama.cpp takes any negative value as `off`.
    llama_negative_is_off: bool = False
    #: Other libraries' names of it: name, and whose it is. They are told, not taken: values may mean something else.
    elsewhere: tuple[tuple[str, str], ...] = ()
    #: Values at which clients of other servers send it and ask for nothing.
    idle: tuple[Any, ...] = ()
    #: The strategies that read it; with any other one it is refused, not ignored. () is all.
    strategies: tuple[str, ...] = ()
    #: Its place among the few options that have a flag, an argument of agents' tools and a setter of their own; 0 for
    #: the others, which `-o NAME VALUE` sets.
    common: int = 0
    #: The name of its flag, where that is not the option's; "" for no flag.
    flag: str | None = None
    #: What its value is called in help.
    metavar: str | None = None
    #: The class of its errors.
    error: type[InputError] = SamplingError

    @property
    def argument(self) -> str:
        """The type of the argument of `generate`."""
        argument = self.types.argument
        return argument if argument == "Any" or argument.endswith(" | None") else argument + self._or_none

    @property
    def stored(self) -> str:
        """The type of the value that is stored."""
        return self.types.stored + self._or_none

    @property
    def value(self) -> Any:
        """The type of a field of a request body."""
        return self.types.value

    @property
    def _or_none(self) -> str:
        return " | None" if self.default is None and self.types.stored != "Any" else ""

    def check(self, given: Any) -> Any:
        return given

    def read(self, text: str) -> Any:
        """The value of a flag's text, before it is checked."""
        return text

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of a value, without a description."""
        return {}

    def fault(self, problem: str, *, hint: str = "") -> InputError:
        return self.error(f"{self.name}: {problem}", hint=hint or None, field=self.name)


SamplingField = Option
"""What samplers call it."""
ConfigType = TypeVar("ConfigType")


def with_help(options: Iterable[Option]) -> Callable[[type[ConfigType]], type[ConfigType]]:
    """Decorates a class whose fields are options: what each does stands at the end of its docstring, for `help`."""

    def described(cls: type[ConfigType]) -> type[ConfigType]:
        lines = (f"    {option.name}: {option.help}" for option in options)
        cls.__doc__ = "\n".join([f"{(cls.__doc__ or '').rstrip()}\n", *lines])
        return cls

    return described


@dataclass(frozen=True, slots=True, kw_only=True)
class Number(Option):
    """A finite float from `low` to `high`, both included."""

    types: ClassVar[Types] = Types("float", "float", float)

    low: float = 0.0
    high: float = math.inf
    #: Whether `low` itself is out of range.
    is_above: bool = False

    def json_schema(self) -> dict[str, Any]:
        ends = _range("number", self.low, self.high)
        return ends | {"exclusiveMinimum": ends.pop("minimum")} if self.is_above else ends

    def check(self, given: Any) -> float | None:
        if given is None and self.default is None:
            return None
        value = as_float(given)
        if not math.isfinite(value):
            raise self.fault(f"{shown(given)} is not a finite number")
        if not self.low <= value <= self.high or (self.is_above and value == self.low):
            lower = "above" if self.is_above else "at least"
            upper = "" if self.high == math.inf else f" and at most {self.high:g}"
            raise self.fault(f"{shown(given)} must be {lower} {self.low:g}{upper}", hint=self.hint)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole(Option):
    """A whole number from `low` to `high`, both included."""

    types: ClassVar[Types] = Types("int", "int", int)

    low: int = 0
    high: int | None = None

    def json_schema(self) -> dict[str, Any]:
        return _range("integer", self.low, self.high)

    def check(self, given: Any) -> int | None:
        if given is None and self.default is None:
            return None
        if not is_whole(given):
            raise self.fault(f"{shown(given)} is not a whole number")
        most = COUNT_LIMIT - 1 if self.high is None else self.high
        if not self.low <= given <= most:
            upper = "" if self.high is None and given < self.low else f" and at most {most}"
            raise self.fault(f"{shown(given)} must be at least {self.low}{upper}", hint=self.hint)
        return int(given)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seed(Option):
    """None, or -1 for None, or a whole number below 2**63."""

    types: ClassVar[Types] = Types("int", "int", int)

    def json_schema(self) -> dict[str, Any]:
        return _range("integer", 0, SEED_LIMIT - 1)

    def check(self, given: Any) -> int | None:
        if given is None:
            return None
        if is_whole(given) and 0 <= given < SEED_LIMIT:
            return int(given)
        value = Whole(name=self.name, default=0, low=-1, high=SEED_LIMIT - 1, hint=self.hint).check(given)
        return None if value == -1 else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag(Option):
    """True or false."""

    types: ClassVar[Types] = Types("bool", "bool", bool)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "boolean"}

    def check(self, given: Any) -> bool | None:
        if given is None and self.default is None:
            return None
        if not isinstance(given, bool):
            raise self.fault(f"{shown(given)} is not true or false")
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Texts(Option):
    """Texts that are not empty; a single text is a list of one, and None an empty list."""

    types: ClassVar[Types] = Types("str | Sequence[str]", "tuple[str, ...]", str | list[str])

    def json_schema(self) -> dict[str, Any]:
        return {"type": ["string", "array"], "items": {"type": "string"}}

    def check(self, given: Any) -> tuple[str, ...]:
        texts = as_tuple(self, () if given is None else given)
        for text in texts:
            if not isinstance(text, str) or not text:
                raise self.fault("each must be a text that is not empty")
            check_text(text, self.name)
        return texts


@dataclass(frozen=True, slots=True, kw_only=True)
class Names(Option):
    """Names out of `known`, each at most once."""

    types: ClassVar[Types] = Types("Sequence[str]", "tuple[str, ...]", str | list[str])

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
class Word(Option):
    """A name, such as that of a strategy."""

    types: ClassVar[Types] = Types("str | None", "str", str)

    def json_schema(self) -> dict[str, Any]:
        return {"type": "string"}

    def check(self, given: Any) -> str | None:
        if given is None and self.default is None:
            return None
        if not isinstance(given, str):
            raise self.fault(f"{shown(given)} is not a name", hint=self.hint)
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice(Option):
    """One of the names in `known`."""

    known: tuple[str, ...] = ()

    @property
    def argument(self) -> str:
        return self.stored

    @property
    def stored(self) -> str:
        names = ", ".join(f'"{name}"' for name in self.known)
        return f"Literal[{names}]" + (" | None" if self.default is None else "")

    @property
    def value(self) -> Any:
        return Literal[self.known]

    def json_schema(self) -> dict[str, Any]:
        return {"enum": list(self.known)}

    def check(self, given: Any) -> Any:
        if given not in self.known and (given is not None or self.default is not None):
            raise self.fault(f"{shown(given)} is none of {', '.join(self.known)}")
        return given


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIds(Option):
    """Token ids, from any iterable. A default of None means that None stays None, and that an empty list is refused;
    with a default of () None is an empty list, and a single id a list of one."""

    types: ClassVar[Types] = Types("Sequence[int]", "tuple[int, ...]", list[int])

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
class Biases(Option):
    """Pairs of a token id or a text, and what to add to its logit. In a mapping, a key of ASCII digits is an id, since
    JSON objects have texts as keys. None and false stand for -inf, which bans."""

    types: ClassVar[Types] = Types(
        "Mapping[int, float] | Mapping[str, float] | Sequence[tuple[int | str, float]]",
        "tuple[tuple[int | str, float], ...]",
        Any,
    )

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


def _range(kind: str, low: float | None, high: float | None) -> dict[str, Any]:
    """The JSON Schema of a number from `low` to `high`."""
    ends = {"minimum": low, "maximum": high}
    return {"type": kind} | {name: end for name, end in ends.items() if end is not None and math.isfinite(end)}


def as_tuple(field: Option, given: Any) -> tuple[Any, ...]:
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
