"""Every rewrite to the normal form against the `jsonschema` package: random small schemas of the keywords concerned,
and random values. What is accepted wrongly must be owned up to in the contract; nothing valid is ever refused."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import SchemaError
from espalier.schema.normal.expand import expand
from tests.examples import examples as scaled
from tests.oracle import validator
from tests.schema_fuzz import Maker
from tests.shapes import fits

VALUES = 25
DRAFTS = ("2020-12", "2019-09", "draft-07", "draft-06", "draft-04")


def agree(schema: Any, values: list[Any]) -> bool | None:
    """The expansion and the validator say the same of each value, except where the contract says `checked`, which lets
    more fit. None where the schema cannot be satisfied, else whether it is exact."""
    valid = validator(schema)
    try:
        shapes = expand(schema)
        checked = shapes.contract.by_verdict("checked")
    except SchemaError:
        assert not any(map(valid, values)), "a schema that some value satisfies was called unsatisfiable"
        return None
    for value in values:
        fitting = fits(shapes, shapes.root, value)
        if valid(value):
            assert fitting, f"refused: {value!r}"
        elif not checked:
            assert not fitting, f"accepted: {value!r}"
    return not checked


def law(*only: str, draft: str = "2020-12", examples: int = 60) -> Any:
    """A test that draws schemas of these keywords only."""

    @settings(max_examples=scaled(examples), deadline=None)
    @given(seed=st.integers(0, 2**32), depth=st.integers(1, 3))
    def test(seed: int, depth: int) -> None:
        maker = Maker(Random(seed), draft=draft, only=only, depth=depth)
        agree(maker.document(), [maker.value() for _ in range(VALUES)])

    return test


test_all_of = law("allOf", "type", "properties", "minimum", "enum", "$ref")
test_if_then_else = law("if", "then", "else", "type", "required", "const", "properties")
test_dependent_required = law("dependentRequired", "required", "properties", "maxProperties")
test_dependent_schemas = law("dependentSchemas", "required", "properties", "type", "const")
test_dependencies = law("dependencies", "required", "properties", "type", draft="draft-07")
test_one_of = law("oneOf", "type", "const", "required", "properties", "minimum", "maximum")
test_one_of_inside_not = law("oneOf", "not", "anyOf", "type", "minLength", "required")
test_not_over_types = law("not", "type", "allOf")
test_not_over_enums_and_constants = law("not", "enum", "const", "type", "items", "properties")
test_not_over_bounds = law("not", "minimum", "maximum", "minLength", "maxItems", "minProperties", "multipleOf")
test_property_names = law("propertyNames", "pattern", "enum", "maxLength", "required", "not", "additionalProperties")
test_pattern_properties = law("patternProperties", "properties", "additionalProperties", "type", "allOf", "required")
test_contains = law("contains", "minContains", "maxContains", "items", "prefixItems", "minItems", "type", "not")
test_size_of_objects = law("minProperties", "maxProperties", "properties", "additionalProperties", "required", "not")
test_unevaluated_properties = law(
    "unevaluatedProperties", "properties", "anyOf", "oneOf", "if", "then", "else", "allOf", "dependentSchemas", "$ref"
)
test_unevaluated_items = law("unevaluatedItems", "prefixItems", "items", "contains", "anyOf", "allOf", "if", "then")
test_negated_objects = law(
    *("not", "additionalProperties", "patternProperties", "properties", "propertyNames", "required", "maxProperties"),
    *("type", "allOf"),
)
test_negated_items = law("not", "prefixItems", "items", "contains", "minContains", "maxContains", "maxItems", "type")
test_unevaluated_properties_that_fail = law(
    *("not", "unevaluatedProperties", "properties", "anyOf", "oneOf", "if", "then", "allOf", "dependentSchemas", "$ref")
)
test_unevaluated_items_that_fail = law(
    "not", "unevaluatedItems", "prefixItems", "items", "contains", "anyOf", "allOf", "type"
)
test_values_with_the_rest = law("enum", "const", "type", "minLength", "pattern", "minimum", "items", "properties")
test_multiple_of = law("multipleOf", "allOf", "not", "minimum", "maximum", "type")
test_numeric_bounds = law("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "type", "allOf", "enum")
test_numeric_bounds_of_draft_4 = law("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", draft="draft-04")
test_prefix_items = law("prefixItems", "items", "minItems", "maxItems", "type", "allOf", "not")
test_lists_of_items = law("items", "additionalItems", "minItems", "type", "allOf", draft="draft-07")
test_strings = law("minLength", "maxLength", "pattern", "not", "type", "allOf", "enum")
test_unique_items = law("uniqueItems", "items", "minItems", "not", "const")


@pytest.mark.parametrize("draft", DRAFTS)
@settings(max_examples=scaled(150), deadline=None)
@given(seed=st.integers(0, 2**32), depth=st.integers(1, 3))
def test_all_keywords_of_a_draft_together(draft: str, seed: int, depth: int) -> None:
    maker = Maker(Random(seed), draft=draft, depth=depth)
    agree(maker.document(), [maker.value() for _ in range(VALUES)])


def test_unevaluated_in_2019_09_as_the_specification_has_it() -> None:
    nine = {"$schema": "https://json-schema.org/draft/2019-09/schema"}
    closed = {"additionalProperties": {"type": "integer"}, "unevaluatedProperties": False, "type": "object"}
    shapes = expand(nine | closed)
    assert fits(shapes, shapes.root, {"a": 1})
    assert not fits(shapes, shapes.root, {"a": "x"})
    listed = {"items": [{"type": "null"}], "contains": {"const": 1}, "unevaluatedItems": {"type": "string"}}
    shapes = expand(nine | listed | {"type": "array", "minContains": 0})
    assert fits(shapes, shapes.root, [None, "x"])
    assert not fits(shapes, shapes.root, [None, 1])  # there `contains` evaluates nothing
    whole = expand(nine | {"items": [True], "additionalItems": True, "unevaluatedItems": False, "type": "array"})
    assert fits(whole, whole.root, [1, 2, 3])


ANYTHING: tuple[Any, ...] = (None, True, 0, 1.5, "", "a", [], [1], {}, {"a": 1})


@pytest.mark.parametrize("schema", [True, {}, {"title": "x"}, {"properties": {}}, {"not": False}])
def test_what_asserts_nothing_is_everything(schema: Any) -> None:
    shapes = expand(schema)
    assert all(fits(shapes, shapes.root, value) for value in ANYTHING)
    assert len(shapes.cases(shapes.root)) == 6


def test_a_missing_type_means_all_types() -> None:
    shapes = expand({"minimum": 1})
    assert [v for v in ANYTHING if not fits(shapes, shapes.root, v)] == [0]


def test_boolean_schemas_inside() -> None:
    assert agree({"properties": {"a": False, "b": True}, "items": False}, [{"a": 1}, {"b": 1}, {}, [], [1], 3])


@pytest.mark.parametrize(
    "schema",
    [
        {"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        {"oneOf": [{"properties": {"k": {"const": k}}, "required": ["k"], "type": "object"} for k in "abcdef"]},
        {"oneOf": [{"required": ["a"], "type": "object"}, {"properties": {"a": False}, "type": "object"}]},
        {"oneOf": [{"type": "number", "maximum": 1}, {"type": "number", "exclusiveMinimum": 1}]},
    ],
)
def test_options_that_exclude_each_other_are_not_denied(schema: Any) -> None:
    shapes = expand(schema)
    assert len(shapes.cases(shapes.root)) == len(schema["oneOf"])
    assert shapes.contract.worst == "enforced"


def test_options_that_overlap() -> None:
    schema = {"oneOf": [{"type": "integer"}, {"minimum": 2}]}
    assert agree(schema, [1, 2, 2.5, 1.5, "a", None])
    closed = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False, "type": "object"}
    other = {"properties": {"b": {"type": "integer"}}, "additionalProperties": False, "type": "object"}
    assert agree({"oneOf": [closed, other]}, [{}, {"a": 1}, {"b": 1}, {"a": 1, "b": 1}, {"c": 1}])


def test_many_conditions_on_one_name_stay_small() -> None:
    kinds = [f"k{i}" for i in range(30)]
    schema = {
        "type": "object",
        "properties": {"kind": {"enum": kinds}},
        "required": ["kind"],
        "allOf": [{"if": {"properties": {"kind": {"const": k}}}, "then": {"required": [f"x{k}"]}} for k in kinds],
    }
    shapes = expand(schema)
    assert len(shapes.cases(shapes.root)) == 30
    assert shapes.contract.worst == "enforced"


def test_more_choices_than_the_limit_are_left_out_and_said_so() -> None:
    schema = {"allOf": [{"anyOf": [{"required": [f"a{i}"]}, {"required": [f"b{i}"]}]} for i in range(20)]}
    shapes = expand(schema)
    left = shapes.contract.by_verdict("checked")
    assert left
    assert all(entry.keyword == "anyOf" for entry in left)
    assert fits(shapes, shapes.root, {f"a{i}": 1 for i in range(20)})


def test_multiples_become_one() -> None:
    (case,) = expand({"type": "number", "multipleOf": 4, "allOf": [{"multipleOf": 6}]}).cases(2)
    assert case.multiples == (12,)  # type: ignore[union-attr]


def test_decimal_numbers_are_what_they_say() -> None:
    shapes = expand({"type": "number", "multipleOf": 0.1, "maximum": 0.7})
    assert fits(shapes, shapes.root, 0.3)
    assert fits(shapes, shapes.root, 0.7)
    assert not fits(shapes, shapes.root, 0.35)


def test_the_order_of_properties() -> None:
    schema = {
        "required": ["z", "b"],
        "properties": {"b": {}, "a": {}},
        "allOf": [{"properties": {"c": {}, "a": {}}}],
        "type": "object",
    }

    def names(**options: Any) -> list[str]:
        shapes = expand(schema, **options)
        (case,) = shapes.cases(shapes.root)
        return [prop.name for prop in case.properties]  # type: ignore[union-attr]

    assert names() == ["b", "a", "c", "z"]
    assert names(order="required-first") == ["b", "z", "a", "c"]
    assert names(order=("c", "z")) == ["c", "z", "b", "a"]


def test_recursion_closes() -> None:
    schema = {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
    shapes = expand(schema)
    (case,) = shapes.cases(shapes.root)
    assert case.items == shapes.root  # type: ignore[union-attr]


def test_what_cannot_be_finished_is_taken_out() -> None:
    endless = {"type": "object", "properties": {"next": {"$ref": "#/$defs/endless"}}, "required": ["next"]}
    shapes = expand({"type": "object", "properties": {"a": {"$ref": "#/$defs/endless"}}, "$defs": {"endless": endless}})
    (case,) = shapes.cases(shapes.root)
    assert [prop.node for prop in case.properties] == [shapes.false]  # type: ignore[union-attr]
    either = expand({"anyOf": [endless, {"type": "null"}], "$defs": {"endless": endless}})
    assert len(either.cases(either.root)) == 1


def test_patterns_that_never_meet_make_no_group_of_their_own() -> None:
    schema = {
        "type": "object",
        "patternProperties": {f"^{c}_": {"type": "string", "minLength": 1} for c in "abcdefghij"},
    }
    shapes = expand(schema)
    (case,) = shapes.cases(shapes.root)
    assert len(case.rest) == 11  # type: ignore[union-attr]
    assert shapes.contract.worst == "enforced"
