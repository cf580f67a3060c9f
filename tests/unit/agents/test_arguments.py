"""Calls are read exactly where `jsonschema` finds them valid under the tool's own schema; else the field is named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from random import Random
from typing import Any

import jsonschema
import pytest

from espalier.agents.arguments import blamed, checked
from espalier.agents.table import LOGIT, TOOLS, VERBS, VerbCall, read_call
from espalier.errors import EspalierError, InputError
from tests.examples import examples


def junk(random: Random, depth: int = 2) -> Any:
    """Any JSON value, NaN and infinities among them."""
    plain = [None, True, False, -1, 0, 2, 2.0, 0.5, math.inf, math.nan, "", "a", "a" * 200, "\ud800"]
    if depth == 0 or random.random() < 0.7:
        return random.choice(plain)
    if random.random() < 0.5:
        return [junk(random, depth - 1) for _ in range(random.randrange(3))]
    return {random.choice(["", "a", "kind", "type"]): junk(random, depth - 1) for _ in range(random.randrange(3))}


def fitting(random: Random, schema: Mapping[str, Any]) -> Any:
    """A value that is often valid under the schema of one argument."""
    if "enum" in schema:
        return random.choice(schema["enum"])
    kinds = schema.get("type", "string")
    kind = kinds if isinstance(kinds, str) else random.choice(kinds)
    if kind == "array":
        return [fitting(random, schema.get("items", {})) for _ in range(random.randrange(4))]
    made = {
        "string": "a",
        "integer": random.choice([0, 1, 3, 3.0]),
        "number": random.random(),
        "boolean": random.random() < 0.5,
        "object": {"a": junk(random)},
    }
    return made[kind]


def arguments_of(random: Random, name: str) -> Any:
    """Arguments of a tool: mostly nearly right."""
    verb = TOOLS[name]
    if random.random() < 0.05:
        return junk(random)
    chosen = [one for one in verb.required if random.random() < 0.9]
    chosen += random.sample([*verb.properties, "nonsense"], k=random.randrange(min(5, len(verb.properties) + 1)))
    return {
        one: junk(random) if one == "nonsense" or random.random() < 0.1 else fitting(random, verb.properties[one])
        for one in chosen
    }


VALIDATORS = {name: jsonschema.Draft202012Validator(one.input_schema) for name, one in TOOLS.items()}


def is_valid(name: str, arguments: Any) -> bool:
    """The oracle."""
    return bool(VALIDATORS[name].is_valid({} if arguments is None else arguments))


def read(name: str, arguments: Any) -> tuple[VerbCall | None, str]:
    """The call, or the field that the refusal names."""
    try:
        return read_call(name, arguments), ""
    except InputError as error:
        return None, error.field or ""


@pytest.mark.parametrize("name", VERBS)
def test_a_call_is_read_exactly_where_jsonschema_finds_it_valid(name: str) -> None:
    random = Random(name)
    accepted = 0
    for _ in range(examples(400)):
        arguments = arguments_of(random, name)
        call, field = read(name, arguments)
        assert (call is not None) is is_valid(name, arguments), arguments
        given = arguments if isinstance(arguments, dict) else {}
        if call is None:
            assert field == "arguments" or field in given or field in TOOLS[name].required
        else:
            assert sorted(call.arguments) == sorted(given)
            accepted += 1
    assert accepted


def test_logit_takes_what_the_tool_of_its_action_takes() -> None:
    random = Random(26)
    accepted = 0
    for _ in range(examples(1000)):
        name = random.choice([*VERBS])
        arguments = arguments_of(random, name)
        if not isinstance(arguments, dict):
            continue
        call, field = read("logit", {"action": name, **arguments})
        assert (call is not None) is is_valid(name, arguments), arguments
        if call is None:
            assert field
        else:
            assert is_valid("logit", {"action": name, **arguments})
            assert call.verb is VERBS[name]
            accepted += 1
    assert accepted


def test_every_schema_is_one_and_every_parameter_of_logit_is_a_verbs() -> None:
    for one in TOOLS.values():
        for schema in (one.input_schema, one.output_schema):
            jsonschema.Draft202012Validator.check_schema(schema)
        assert set(one.required) <= set(one.properties)
        assert set(one.always) <= set(one.output)
    for one in VERBS.values():
        for name, schema in one.properties.items():
            assert LOGIT.properties[name] == schema  # one name means one thing


@pytest.mark.parametrize(
    ("arguments", "field", "message"),
    [
        ({"prompt": 3}, "prompt", "prompt: 3 is not of type string"),
        ({"prompt": "x", "temperatur": 1}, "temperatur", "did you mean temperature?"),
        ({"prompt": "x", "choices": []}, "choices", "fewer items than 1"),
        ({"prompt": "x", "choices": ["a", 2]}, "choices", "choices[1]: 2 is not of type string"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens", "less than 1"),
        ({"prompt": "x", "top_p": 2}, "top_p", "more than 1"),
        ({"prompt": "x", "on_budget": "never"}, "on_budget", "none of close, truncate, error"),
        ({"prompt": "x", "seed": True}, "seed", "True is not of type integer"),
        ([], "arguments", "arguments are an object, not list"),
    ],
)
def test_a_refusal_names_the_field_and_says_what_is_wrong(arguments: Any, field: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_call("generate", arguments)
    assert caught.value.field == field
    assert message in str(caught.value)


def test_a_whole_number_may_be_written_as_a_float() -> None:
    found = read_call("generate", {"prompt": "x", "max_tokens": 3.0}).arguments["max_tokens"]
    assert (found, type(found)) == (3, int)


def test_nan_is_no_number_of_tokens() -> None:
    with pytest.raises(InputError):
        read_call("generate", {"prompt": "x", "max_tokens": math.nan})
    with pytest.raises(InputError):
        read_call("generate", {"prompt": "x", "max_tokens": math.inf})


def test_an_error_of_compiling_is_about_the_form_that_was_given() -> None:
    properties = VERBS["generate"].properties
    for field in (None, "constraint", "pattern", "nonsense"):
        error = blamed(EspalierError("too large", field=field), properties, {"prompt": "x", "regex": "a{99999}"})
        assert error.field == "regex"
    assert blamed(EspalierError("x", field="system"), properties, {"prompt": "x", "system_prompt": ""}).field == (
        "system_prompt"
    )
    assert checked(VERBS["list_presets"].input_schema, None) == {}
