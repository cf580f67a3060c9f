"""`TestCase`: a prompt, a configuration and what every output must be, as a value that round-trips to JSON.

The names are PedroCLI's, and a cases file of it reads as it is. It runs nothing and knows no engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from espalier.chat.tools import read_choice, read_tools
from espalier.constraints.joining.named import named_constraint
from espalier.constraints.spec import JsonSchema, Spec
from espalier.constraints.words.spec import Wordlist
from espalier.errors import EspalierError, InputError, SchemaError
from espalier.json_record import JsonRecord
from espalier.sampling.presets.spec import Preset, PresetFilter

NAME_LENGTH = 200
MAX_ITERATIONS = 100_000
LEAST_NANOSECONDS = 1_000_000
MOST_TIMEOUT = 366 * 86_400
"""Seconds."""
"""A timeout of fewer is taken for seconds that someone meant, and refused."""
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m)")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0}
PATTERNS = ("contains", "not_contains")
TEXTS = ("banned_content", "required_content", *PATTERNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCall(JsonRecord):
    """A tool call that an output must have. arguments: values that the call's arguments must have, compared deeply;
    others may be there too. matches: regular expressions that must be found in arguments, by name."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    matches: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InputError("an expected tool call has a `name`", field="expected_tool_call")
        for name in ("arguments", "matches"):
            if not isinstance(getattr(self, name), Mapping):
                raise InputError(f"{name} of an expected tool call is a mapping", field="expected_tool_call")
        for name, pattern in self.matches.items():
            check_pattern(pattern, f"matches of {name}", "expected_tool_call")


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCase:
    """What is asked, and what must hold of every output.

    preset: a name. config, grammar, json_schema, safety_preset, filters: as in a Preset; they are applied, over those
    of the preset by the rule of requests (docs/presets.md). regex, choice: as in `generate`. wordlist: the fields of a
    Wordlist, such as `lang` and `top`. strategy: a decoding strategy. tools, tool_choice: as in
    `generate`. iterations: outputs, each with a random stream of its own, and the same one where `deterministic`.
    timeout: seconds; in files nanoseconds, or a text such as "30s".

    Checks: expected_format: a regular expression that is found. expected_json: the text is JSON. expected_json_schema:
    it is valid under that schema. banned_content, required_content: texts, whatever their case. contains, not_contains:
    regular expressions. expected_tool_call. max_tax: nats that the constraint cost. max_rejection_rate: the share of
    steps at which the drawn token, or the model's top choice, was refused. max_latency: seconds; such a case runs
    alone. deterministic: all outputs are one. min_success_rate: the share of iterations that must pass; an error is an
    iteration that does not.

    Raises InputError and its subclasses naming the field.
    """

    __test__: ClassVar[bool] = False  # no test class of pytest

    name: str
    prompt: str
    description: str = ""
    system_prompt: str | None = None
    preset: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    grammar: str | None = None
    json_schema: str | None = None
    regex: str | None = None
    choice: tuple[str, ...] = ()
    wordlist: Mapping[str, Any] | None = None
    safety_preset: str | None = None
    filters: tuple[PresetFilter, ...] = ()
    strategy: str | None = None
    tools: Any = None
    tool_choice: Any = None
    expected_format: str | None = None
    expected_json: bool = False
    expected_json_schema: str | None = None
    banned_content: tuple[str, ...] = ()
    required_content: tuple[str, ...] = ()
    contains: tuple[str, ...] = ()
    not_contains: tuple[str, ...] = ()
    expected_tool_call: ExpectedCall | None = None
    max_tax: float | None = None
    max_rejection_rate: float | None = None
    max_latency: float | None = None
    deterministic: bool = False
    min_success_rate: float = 1.0
    iterations: int = 1
    max_tokens: int | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        for name in ("name", "prompt", "description"):
            _text(getattr(self, name), name)
        for name in ("system_prompt", "preset", "strategy", "expected_format"):
            value = getattr(self, name) or None
            self._set(name, value)
            if value is not None:
                _text(value, name)
        if not self.name.strip() or len(self.name) > NAME_LENGTH or not self.name.isprintable():
            raise InputError(f"a case has a name of 1 to {NAME_LENGTH} printable characters", field="name")
        if not self.prompt:
            raise InputError("a case has a prompt", field="prompt")
        for name in ("expected_json", "deterministic"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"{name} is true or false", field=name)
        own = self.own()
        for name in ("config", "grammar", "json_schema", "safety_preset", "filters"):
            self._set(name, getattr(own, name))
        self._set("regex", self.regex or None)
        self._set("choice", _texts(self.choice, "choice"))
        if self.wordlist is not None and not isinstance(self.wordlist, Mapping):
            raise InputError("wordlist is a mapping, such as {lang: es, top: 3000}", field="wordlist")
        self.constraint()
        for name in TEXTS:
            self._set(name, _texts(getattr(self, name), name))
        for name in PATTERNS:
            for pattern in getattr(self, name):
                check_pattern(pattern, name, name)
        if self.expected_format is not None:
            check_pattern(self.expected_format, "expected_format", "expected_format")
        self._set("expected_json_schema", _schema(self.expected_json_schema))
        self._set("expected_tool_call", _call(self.expected_tool_call))
        if self.tools is not None:
            read_tools(self.tools)
        elif self.tool_choice is not None:
            raise InputError("tool_choice needs tools", field="tool_choice")
        if self.tool_choice is not None:
            read_choice(self.tool_choice)
        for name, most in (("max_tax", None), ("max_rejection_rate", 1.0), ("max_latency", None), ("timeout", None)):
            _number(getattr(self, name), name, most)
        _number(self.min_success_rate, "min_success_rate", 1.0)
        self._counts()

    def _counts(self) -> None:
        for name in ("iterations", "max_tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
                raise InputError(f"{name} is a whole number, not {value!r:.40}", field=name)
        self._set("iterations", max(1, self.iterations or 1))  # PedroCLI: 0 and less are 1
        self._set("max_tokens", self.max_tokens or None)
        self._set("timeout", self.timeout or None)
        if self.timeout is not None and self.timeout < LEAST_NANOSECONDS / 1e9:
            raise InputError("timeout is at least a millisecond", hint="0 is none", field="timeout")
        if self.iterations > MAX_ITERATIONS:
            raise InputError(f"iterations are at most {MAX_ITERATIONS:,}", field="iterations")
        if self.config.get("n", 1) != 1:
            raise InputError("a case has one output for each iteration: n is 1", hint="iterations", field="config")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def constraint(self) -> Spec | None:
        """What `regex`, `choice` and `wordlist` ask for. Raises SpecError and its kin, naming the field."""
        words = None if self.wordlist is None else {"kind": Wordlist.kind, **self.wordlist}
        return named_constraint(regex=self.regex, choice=self.choice or None, constraint=words)

    def own(self) -> Preset:
        """The case's own configuration as a preset, without that of the preset which it names."""
        return Preset(
            name="case",
            config=self.config or {},
            grammar=self.grammar,
            json_schema=self.json_schema,
            safety_preset=self.safety_preset,
            filters=self.filters or (),
        )

    def to_json(self) -> dict[str, Any]:
        """The fields that are not at their default; `timeout` in nanoseconds, as in files."""
        own = self.own().to_json()
        values: dict[str, Any] = {}
        for case_field in fields(self):
            value = own[case_field.name] if case_field.name in ("config", "filters") else getattr(self, case_field.name)
            if value is not None and value != _DEFAULTS.get(case_field.name):
                values[case_field.name] = list(value) if isinstance(value, tuple) else value
        if self.expected_tool_call is not None:
            values["expected_tool_call"] = self.expected_tool_call.to_json()
        if self.timeout is not None:
            values["timeout"] = round(self.timeout * 1e9)
        if self.tools is not None:
            values["tools"] = [tool.to_json() for tool in read_tools(self.tools)]
        return values

    @staticmethod
    def from_json(data: Any) -> TestCase:
        """The inverse of `to_json`; null is as if the field were not there. Raises InputError naming the field."""
        names = [case_field.name for case_field in fields(TestCase)]
        if not isinstance(data, Mapping):
            raise InputError(f"a case is a mapping, not {type(data).__name__}", field="cases")
        for name in data:
            if name not in names:
                raise InputError(
                    f"a case has no field {name!r:.80}", hint=f"fields: {', '.join(names)}", field=str(name)
                )
        values = {name: value for name, value in data.items() if value is not None}
        for name in ("name", "prompt"):
            if name not in values:
                raise InputError(f"a case needs a `{name}`", field=name)
        if "timeout" in values:
            values["timeout"] = read_timeout(values["timeout"])
        return TestCase(**values)


_DEFAULTS: Mapping[str, Any] = {field.name: field.default for field in fields(TestCase)} | {"config": {}, "filters": []}


def read_timeout(value: Any) -> float:
    """Seconds of a file's timeout: whole nanoseconds, as PedroCLI writes them, or a text with a unit. Raises
    InputError."""
    hint = 'write "30s", "500ms" or "2m"'
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise InputError(f"timeout: {value!r:.40} is no duration", hint=hint, field="timeout")
        if (seconds := float(match[1]) * _UNITS[match[2]]) > MOST_TIMEOUT:
            raise InputError(f"timeout: {value!r:.40} is more than a year", hint=hint, field="timeout")
        return seconds
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"timeout: {value!r:.40} is no number of nanoseconds", hint=hint, field="timeout")
    if 0 < value < LEAST_NANOSECONDS:
        raise InputError(f"timeout: {value} is in nanoseconds, less than a millisecond", hint=hint, field="timeout")
    if value > MOST_TIMEOUT * 1e9:
        raise InputError(
            f"timeout: so many nanoseconds, {value!r:.40}, are more than a year", hint=hint, field="timeout"
        )
    return value / 1e9


def check_pattern(pattern: Any, what: str, name: str) -> None:
    """Raises InputError for what Python's `re` does not read."""
    try:
        re.compile(_text(pattern, what))
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(f"{what}: {pattern!r:.80} is no regular expression: {error}", field=name) from error


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(
            f"{name} is a text, not {type(value).__name__}", hint="YAML reads no, on, 1 otherwise: quote it", field=name
        )
    if any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise InputError(f"{name} is not valid Unicode", field=name)
    return value


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InputError(f"{name} is a list of texts", field=name)
    for text in value:
        if not _text(text, f"each of {name}"):
            raise InputError(f"{name} has an empty text", field=name)
    return tuple(value)


def _number(value: Any, name: str, most: float | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise InputError(f"{name} is a number, at least 0, not {value!r:.40}", field=name)
    if most is not None and value > most:
        raise InputError(f"{name} is at most {most:g}, not {value!r:.40}", field=name)


def _schema(schema: Any) -> str | None:
    """A schema as JSON text, valid under its metaschema. Raises SchemaError."""
    if schema is None or schema == "":
        return None
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema, ensure_ascii=False, allow_nan=False)
        value = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(f"expected_json_schema is not JSON: {error}") from error
    import jsonschema  # noqa: PLC0415  # slow to import, and few cases have a schema
    from jsonschema import validators  # noqa: PLC0415

    cls: Any = validators.validator_for(value, default=jsonschema.Draft202012Validator)
    try:
        cls.check_schema(value)
        JsonSchema(value)
    except jsonschema.SchemaError as error:
        raise SchemaError(f"expected_json_schema: {error.message:.200} ({error.json_path})") from error
    return text


def _call(value: Any) -> ExpectedCall | None:
    if value is None or isinstance(value, ExpectedCall):
        return value
    try:
        return ExpectedCall(**value)
    except EspalierError:
        raise
    except TypeError as error:
        raise InputError(
            f"expected_tool_call: {error}", hint="fields: name, arguments, matches", field="expected_tool_call"
        ) from error
