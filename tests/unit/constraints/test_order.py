"""The order of properties: which orders can be generated, what the contract says of it, and where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import permutations, product
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import espalier
from espalier import After, AllOf, Choice, Free, JsonObject, JsonSchema, Regex, ToolCalls
from espalier.api import make_request
from espalier.constraints.compiler import Compiler
from espalier.constraints.joining.presets import merged
from espalier.constraints.json_schema.check import grammar_contract
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.spec import Spec
from espalier.constraints.tools.grammar import in_schema_order
from espalier.errors import InputError, SpecError
from espalier.sampling.presets.spec import Preset
from espalier.schema.gbnf import to_gbnf
from espalier.schema.normal.expand import expand
from espalier.tokens.vocab import Vocab
from tests.examples import examples
from tests.laws import check_matcher

VALUES = {"a": 1, "b": True, "c": None, "z": 3, "y": [4]}
PERSON = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}, "c": {"type": "null"}},
    "required": ["a", "b"],
}
COMPILER = Compiler(Vocab.bytes())


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def in_any_order(schema: Any, **options: Any) -> JsonSchema:
    return JsonSchema(schema, order="any", whitespace="compact", **options)


def orders(value: Any) -> Iterator[Any]:
    """A value with the names of its objects in every order."""
    if isinstance(value, dict):
        for names in permutations(value):
            for parts in product(*(list(orders(value[name])) for name in names)):
                yield dict(zip(names, parts, strict=True))
    elif isinstance(value, list):
        yield from map(list, product(*(list(orders(one)) for one in value)))
    else:
        yield value


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"additionalProperties": False},
        {"additionalProperties": {"type": "integer"}},
        {"patternProperties": {"^y": {"type": "array"}}, "additionalProperties": False},
        {"propertyNames": {"pattern": "^[a-y]"}},
        {"maxProperties": 2},
        {"minProperties": 3},
        {"minProperties": 3, "maxProperties": 3},
        {"required": ["y"], "maxProperties": 3},
        {"required": [], "dependentRequired": {"a": ["c"]}},
        {"required": [], "minProperties": 1},
    ],
    ids=compact,
)
def test_every_order_is_accepted_and_nothing_invalid_is(more: dict[str, Any]) -> None:
    schema = PERSON | more
    compiled = COMPILER.compile(in_any_order(schema))
    judge = jsonschema.Draft202012Validator(schema)
    for count in range(5):
        for names in permutations(VALUES, count):
            value = {name: VALUES[name] for name in names}
            assert compiled.accepts(compact(value)) == judge.is_valid(value), value


def test_any_number_of_names_comes_in_any_order() -> None:
    """A grammar has a rule for every set of names and stops at 8; the matcher explores those that it meets."""
    names = [f"n{i}" for i in range(300)]
    schema = {"type": "object", "properties": {name: {"const": 1} for name in names}, "required": ["n7", "n9"]}
    compiled = COMPILER.compile(in_any_order(schema))
    chosen = dict.fromkeys(["n299", "n0", "other", "n29", "n9", "n7"], 1)
    assert compiled.accepts(compact(chosen))
    assert not compiled.accepts(compact(chosen)[:-1] + ',"n29":1}')
    assert entry(schema, "order", order="any").verdict == "enforced"
    matcher = compiled.matcher()
    for token in b'{"n299":':
        matcher.advance(token)
    assert compiled.vocab.decode(matcher.shortest_completion()) == b'1,"n7":1,"n9":1}'


def test_a_grammar_keeps_the_order_of_objects_of_many_names_and_says_so() -> None:
    few, many = ({"properties": {f"n{i}": {} for i in range(count)}, "type": "object"} for count in (8, 9))
    assert to_gbnf(expand(few, order="any")) != to_gbnf(expand(few))
    assert to_gbnf(expand(many, order="any")) == to_gbnf(expand(many))
    found = grammar_contract(LoweredSchema(JsonSchema(many, order="any"))).entries
    (said,) = [one for one in found if one.keyword == "order"]
    assert said.verdict == "narrowed"
    assert said.note.endswith("as in the schema at /: its 9 names are more than 8")


def test_a_declared_name_never_comes_twice() -> None:
    compiled = COMPILER.compile(in_any_order(PERSON))
    assert compiled.accepts('{"b":true,"a":1}')
    assert not compiled.accepts('{"b":true,"a":1,"b":true}')
    assert not compiled.accepts('{"a":1,"z":0,"a":1,"b":true}')


def test_undeclared_names_stand_anywhere_only_with_any_order() -> None:
    texts = ['{"z":1,"a":1,"b":true}', '{"a":1,"z":1,"b":true}', '{"a":1,"b":true,"z":1}']
    for order, expected in {"any": [True, True, True], "schema": [False, False, True]}.items():
        compiled = COMPILER.compile(JsonSchema(PERSON, order=order, whitespace="compact"))
        assert [compiled.accepts(text) for text in texts] == expected


def test_required_names_come_first_where_that_is_asked_for() -> None:
    schema = {"properties": {"a": {}, "b": {}, "c": {}}, "required": ["c"], "type": "object"}
    compiled = COMPILER.compile(JsonSchema(schema, order="required-first", whitespace="compact"))
    assert compiled.accepts('{"c":1,"a":1,"b":1}')
    assert not compiled.accepts('{"a":1,"c":1}')


def test_required_names_come_first_also_where_every_name_must_come() -> None:
    """`minProperties` made all names required before they were put in order."""
    schema = {"properties": {"a": {}, "b": {}}, "required": ["b"], "minProperties": 2, "additionalProperties": False}
    compiled = COMPILER.compile(JsonSchema({"type": "object"} | schema, order="required-first", whitespace="compact"))
    assert compiled.accepts('{"b":1,"a":1}')
    assert not compiled.accepts('{"a":1,"b":1}')


def test_constant_objects_come_in_every_order_too() -> None:
    value = {"a": 1, "b": [{"x": 1, "y": {}}, 2, {"p": [], "q": {"r": 1, "s": "t"}}], "c": {"k": None}}
    compiled = COMPILER.compile(JsonSchema({"enum": [value, 3]}, order="any", whitespace="indented"))
    assert all(compiled.accepts(json.dumps(one, indent=2)) for one in orders(value))
    unique = {"type": "array", "items": {"enum": [{"a": 1, "b": 2}, 3]}, "uniqueItems": True}
    compiled = COMPILER.compile(in_any_order(unique))
    assert compiled.accepts('[{"b":2,"a":1},3]')
    assert not compiled.accepts('[{"b":2,"a":1},{"a":1,"b":2}]')


def test_the_arguments_of_tools_come_in_every_order_after_the_name() -> None:
    tools = {"f": PERSON | {"additionalProperties": False}, "g": {"const": {"a": 1, "b": 2}}}
    texts = {
        "pythonic": ["[f(b=True, c=None, a=1)]", "[f(a=1, b=True)]", "[g(b=2, a=1)]"],
        "args": ['{"name": "f", "args": {"b": true, "a": 1}}', '{"name": "g", "args": {"b": 2, "a": 1}}'],
    }
    for wire, calls in texts.items():
        for order in ("schema", "any", None):
            compiled = COMPILER.compile(ToolCalls(tools, format=wire, choice="required", order=order))
            fixed = [call for call in calls if call == "[f(a=1, b=True)]"]
            assert [call for call in calls if compiled.accepts(call)] == (fixed if order == "schema" else calls)
    assert not compiled.accepts('{"args": {"a": 1, "b": true}, "name": "f"}')


def tools_with(*counts: int) -> dict[str, Any]:
    return {
        f"f{i}": {
            "type": "object",
            "properties": {f"p{j}": {"type": "boolean"} for j in range(count)},
            "additionalProperties": False,
        }
        for i, count in enumerate(counts)
    }


@pytest.mark.parametrize(
    ("counts", "number"),
    [((8,), 0), ((9,), 1), ((4,) * 31, 0), ((4,) * 32, 1), ((8, 2, 8, 3), 1), ((9, 2, 3), 1), ((9, 9), 2)],
)
@pytest.mark.parametrize("wire", ["qwen_coder", "pythonic", "gemma4"])
def test_orders_that_are_written_out_are_those_of_few_arguments(
    counts: tuple[int, ...], number: int, wire: str
) -> None:
    assert len(in_schema_order(ToolCalls(tools_with(*counts), format=wire))) == number
    assert in_schema_order(ToolCalls(tools_with(*counts), format="hermes")) == ()
    assert in_schema_order(ToolCalls(tools_with(*counts), format=wire, order="schema")) == ()


@pytest.mark.parametrize("whitespace", ["compact", "indented"])
def test_the_laws_hold_in_every_order(whitespace: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 22]}, "ab": {"type": "boolean"}, "b": False},
        "required": ["ab"],
        "patternProperties": {"^x$": {"type": "null"}},
        "additionalProperties": False,
        "maxProperties": 2,
    }
    compiled = COMPILER.compile(JsonSchema(schema, order="any", whitespace=whitespace))
    options: dict[str, Any] = {"indent": 2} if whitespace == "indented" else {"separators": (",", ":")}
    accepted = [json.dumps(one, **options) for one in ({"ab": True, "a": 22}, {"x": None, "ab": False}, {"ab": True})]
    rejected = [json.dumps(one, **options) for one in ({"a": 1}, {"a": 1, "ab": True, "x": None}, {})]
    check_matcher(compiled, trie=COMPILER.trie, accepted=accepted, rejected=rejected)


@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_small_objects_in_any_order_agree_with_jsonschema(data: st.DataObject) -> None:
    names = ("a", "b", "c")
    declared = data.draw(st.lists(st.sampled_from(names), unique=True))
    schema: dict[str, Any] = {"type": "object", "properties": {n: {"enum": [0, 1]} for n in declared}}
    schema |= data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "required": st.lists(st.sampled_from(names), unique=True),
                "maxProperties": st.integers(0, 3),
                "minProperties": st.integers(0, 1),
                "additionalProperties": st.sampled_from([False, {"enum": [0, 2]}]),
                "patternProperties": st.just({"^[bd]": {"enum": [1, 2]}}),
            },
        )
    )
    judge = jsonschema.Draft202012Validator(schema)
    try:
        compiled = COMPILER.compile(in_any_order(schema))
    except SpecError:  # no document satisfies it
        compiled = None
    for count in range(4):
        for chosen in permutations((*names, "d"), count):
            for values in product((0, 1, 2), repeat=count):
                value = dict(zip(chosen, values, strict=True))
                found = compiled is not None and compiled.accepts(compact(value))
                assert found == judge.is_valid(value), (schema, value)


# What the contract says


def entry(schema: Any, keyword: str, **options: Any) -> Any:
    found = espalier.contract(schema, **options)
    return next((one for one in found.entries if one.keyword == keyword and not one.pointer), None)


def test_the_contract_says_which_order_holds() -> None:
    assert (entry(PERSON, "order").verdict, entry(PERSON, "order", order="any").verdict) == ("narrowed", "enforced")
    assert 'first "c", then as in the schema' in entry(PERSON, "order", order=["c"]).note
    verdicts = {one.pointer: one.verdict for one in espalier.contract(PERSON, order="any").entries}
    assert verdicts["/properties"] == "enforced"
    assert entry({"type": "string"}, "order") is None
    assert entry({"type": "object"}, "order") is None  # its names are in no order


def test_the_contract_names_constants_whose_order_is_fixed() -> None:
    schema = {"properties": {"a": {"const": {"x": 1, "y": 2}}, "b": {"enum": [1, {"x": 1}]}}}
    verdicts = {one.pointer: one.verdict for one in espalier.contract(schema).entries}
    assert (verdicts["/properties/a/const"], verdicts["/properties/b/enum"]) == ("narrowed", "enforced")


def test_the_contract_says_which_whitespace_holds() -> None:
    assert "at most one space" in entry(PERSON, "whitespace").note
    assert entry(PERSON, "whitespace", whitespace="compact").note == "none"
    assert "2 spaces a level" in entry(PERSON, "whitespace", whitespace="indented").note
    assert "runs of at most 40" in entry(PERSON, "whitespace", whitespace="flexible").note
    assert "', ' between items" in entry(PERSON, "whitespace", separators=(", ", ": ")).note
    assert entry({"type": "string"}, "whitespace") is None


# Where the order comes from


def test_an_order_round_trips() -> None:
    for order in (None, "schema", "any", "required-first", ["b", "a"]):
        for spec in (JsonSchema(PERSON, order=order), ToolCalls({"f": PERSON}, order=order)):
            data = spec.to_json()
            assert ("order" in data) == (order is not None)
            assert Spec.from_json(json.loads(json.dumps(data))) == spec
    assert JsonSchema(PERSON, order="required_first") == JsonSchema(PERSON, order="required-first")


@pytest.mark.parametrize("order", ["alphabet", 3, [1], "Any"])
def test_an_unknown_order_is_refused(order: Any) -> None:
    for make in (JsonSchema, lambda schema, order: ToolCalls({"f": schema}, order=order)):
        with pytest.raises(SpecError) as found:
            make(PERSON, order=order)
        assert found.value.field == "order"
    with pytest.raises(InputError) as refused:
        make_request("hi", constraint=JsonSchema(PERSON), schema_order=order)
    assert refused.value.field == "schema_order"


def test_a_default_reaches_every_schema_that_states_no_order() -> None:
    stated, open_ = JsonSchema(PERSON, order="schema"), JsonSchema(PERSON)
    whole = AllOf(Free({"<a>": open_, "<b>": stated}), After("x", ToolCalls({"f": PERSON}, content=open_)), Regex("a"))
    found = [getattr(one, "order", "") for one in whole.ordered("any").walk()]
    assert sorted(one for one in found if one) == ["any", "any", "any", "schema"]
    assert whole.to_json() == AllOf(*whole.members).to_json()  # nothing changed in place
    for spec in (stated, JsonObject(), Choice(["a"])):
        assert spec.ordered("any") is spec


def test_the_request_goes_before_the_preset_and_the_preset_before_the_environment() -> None:
    preset = Preset(name="mine", schema_order="required-first")

    def order(**options: Any) -> Any:
        found = make_request("hi", constraint=JsonSchema(PERSON), default_order="any", **options)
        assert isinstance(found.constraint, JsonSchema)
        assert found.schema_order == found.constraint.order
        return found.constraint.order

    assert order() == "any"
    assert order(preset=preset) == "required-first"
    assert order(preset=preset, schema_order="schema") == "schema"
    assert (
        make_request("hi", constraint=JsonSchema(PERSON, order="schema"), schema_order="any").constraint.order
        == "schema"
    )  # type: ignore[union-attr]
    assert make_request("hi", tools={"f": PERSON}, default_order="any").schema_order == "any"


def test_an_order_without_a_schema_is_refused() -> None:
    with pytest.raises(InputError, match="schema_order needs a schema"):
        make_request("hi", constraint=JsonObject(), schema_order="any")


def test_presets_have_orders() -> None:
    options = {"schema": json.dumps(PERSON), "order": "any"}
    preset = Preset(name="mine", filters=[{"type": "json_schema", "options": options}], schema_order="schema")  # type: ignore[arg-type]
    assert Preset.from_json(json.loads(json.dumps(preset.to_json()))) == preset
    spec, *_ = merged(preset)
    assert isinstance(spec, JsonSchema)
    assert spec.order == "any"
    with pytest.raises(InputError, match="'mine': unknown order 'alphabet'"):
        merged(Preset(name="mine", schema_order="alphabet"))
