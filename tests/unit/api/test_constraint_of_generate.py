"""What stands for a constraint in Python: a type, a schema, a Spec, and the names of the request bodies."""

import enum
import typing
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

import pytest

import espalier
from espalier import Choice, EspalierError, Gbnf, JsonSchema, Regex, api
from espalier.api.options import OPTIONS
from espalier.constraints.joining.named import READERS
from espalier.constraints.spec import Spec
from espalier.engines.fake import open_engine


@dataclass
class User:
    name: str
    age: int


class Mood(enum.Enum):
    GOOD = "good"
    BAD = "bad"


class Point(TypedDict):
    x: int


TYPES: list[tuple[Any, str, Any]] = [
    (User, '{"name": "Ada", "age": 36}', User("Ada", 36)),
    (int, "42", 42),
    (bool, "true", True),
    (Literal["a", "b"], '"b"', "b"),
    (Mood, '"bad"', Mood.BAD),
    (list[User], '[{"name": "Ada", "age": 36}]', [User("Ada", 36)]),
    (Point, '{"x": 1}', {"x": 1}),
    (int | None, "null", None),
    (typing.Optional[int], "7", 7),  # noqa: UP045  # as older code writes it
    ({"type": "integer"}, "7", 7),
    ({"kind": "choice", "options": ["x", "y"]}, "y", "y"),
    (Regex("[ab]+"), "ab", "ab"),
]


@pytest.mark.parametrize(("constraint", "text", "value"), TYPES)
def test_a_type_a_schema_or_a_spec_stands_second_or_by_name(constraint: Any, text: str, value: Any) -> None:
    with espalier.LoadedEngine(open_engine(wish=text)) as eng:
        second = eng.generate("Who?", constraint, temperature=0, seed=1)
        by_name = eng.generate("Who?", constraint=constraint, temperature=0, seed=1)
    assert second.text == text
    assert second == by_name
    assert second.parsed == value
    assert type(second.parsed) is type(value)


def test_a_pydantic_model_gives_its_instance() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Pet", name=(str, ...))
    with espalier.LoadedEngine(open_engine(wish='{"name": "Rex"}')) as eng:
        assert eng.generate("Which?", model, temperature=0).parsed == model(name="Rex")


NAMES: list[tuple[str, Any, Spec]] = [
    ("regex", "[ab]+", Regex("[ab]+")),
    ("choice", ["a", "b"], Choice(["a", "b"])),
    ("json_schema", {"type": "integer"}, JsonSchema({"type": "integer"})),
    ("json_schema", '{"type": "integer"}', JsonSchema({"type": "integer"})),
    ("json_schema", User, JsonSchema(User)),
    ("grammar", 'root ::= "a"', Gbnf('root ::= "a"')),
    ("grammar", Gbnf('root ::= "a"'), Gbnf('root ::= "a"')),
]


@pytest.mark.parametrize(("name", "value", "spec"), NAMES)
def test_the_names_of_the_request_bodies_are_arguments(name: str, value: Any, spec: Spec) -> None:
    assert api.make_request("Which?", **{name: value}).constraint == spec


def test_the_names_are_those_of_one_table() -> None:
    structured_outputs = pytest.importorskip("espalier.server.bodies.openai").StructuredOutputs.model_fields
    assert {"regex", "choice", "grammar"} <= {*READERS} & {*structured_outputs}
    assert {*READERS} <= {*OPTIONS}


def test_two_at_once_hold_together() -> None:
    request = api.make_request("Which?", regex="[a-z]+", choice=["yes", "No"])
    with espalier.LoadedEngine(open_engine(wish="No")) as eng:
        result = eng.generate("Which?", Regex("[a-z]+"), choice=["yes", "No"], temperature=0)
    assert result.text == "yes"
    assert request.constraint is not None
    assert request.constraint.kind == "all_of"


def test_the_siblings_of_generate_take_the_same() -> None:
    with espalier.LoadedEngine(open_engine(wish='{"name": "Ada", "age": 36}')) as eng:
        *_, end = eng.stream("Who?", User, temperature=0)
        assert end.result.parsed == User("Ada", 36)  # type: ignore[union-attr]  # the last event
        many = eng.generate(["Who?", [{"role": "user", "content": "And?"}]], User, temperature=0)
        assert [result.parsed for result in many] == [User("Ada", 36)] * 2  # type: ignore[attr-defined]
        explanation = espalier.explain("Who?", User, engine=eng, temperature=0)
    assert explanation.result.parsed == User("Ada", 36)
    assert espalier.compile(int).spec == JsonSchema(int)
    assert espalier.to_xgrammar(bool)


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"constraint": "[ab]+"}, "a text is regex=, grammar= or json_schema=", "constraint"),
    ({"constraint": ["a", "b"]}, "choice=[...]", "constraint"),
    ({"constraint": 5}, "a type such as User", "constraint"),
    ({"regex": "("}, "it ends with", "regex"),
    ({"regex": r"(a)\1"}, "finite automaton", "regex"),
    ({"choice": "ab"}, "choices are a list of strings", "choice"),
    ({"json_schema": "{"}, "the schema is not JSON", "json_schema"),
    ({"grammar": 7}, "@json_object", "grammar"),
    ({"constraint": {"type": "objec"}}, "object", "schema"),
]


@pytest.mark.parametrize(("arguments", "hint", "field"), WRONG)
def test_a_wrong_constraint_is_named_with_a_hint(arguments: dict[str, Any], hint: str, field: str) -> None:
    with pytest.raises(EspalierError) as refused:
        api.make_request("Which?", **arguments)
    assert hint in f"{refused.value.message} {refused.value.hint}"
    assert refused.value.field == field


def test_sampling_and_seed_may_stand_together() -> None:
    request = api.make_request("Hi", sampling=espalier.SamplingConfig(temperature=0, top_k=5), seed=3, max_tokens=9)
    assert (request.sampling.temperature, request.sampling.top_k) == (0, 5)
    assert (request.sampling.seed, request.sampling.max_tokens) == (3, 9)
    decoding = api.make_request("Hi", decoding=espalier.Decoding(on_budget="close"), strategy="jump").decoding
    assert (decoding.strategy, decoding.on_budget) == ("jump", "close")


@pytest.mark.parametrize("level", ["steps", "summary"])
def test_a_trace_and_an_explanation_print_one_screen(level: str) -> None:
    with espalier.LoadedEngine(open_engine(wish='{"name": "Ada", "age": 36}')) as eng:
        trace = eng.generate("Who?", User, temperature=0, trace=level).trace
        explanation = espalier.explain("Who?", User, engine=eng, temperature=0)
    for text in (str(trace), repr(trace), str(explanation), repr(explanation)):
        lines = text.splitlines()
        assert len(lines) <= 24
        assert all(len(line) <= 80 for line in lines)
        assert '{"name": "Ada"' in text
        assert "nats of tax" in text
    assert "to do" in str(explanation)
