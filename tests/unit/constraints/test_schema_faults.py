"""Schemas that would trap the model or break the promise are refused when compiled, with their place."""

import json
import sys

import pytest

import espalier
from espalier.constraints import slow_patterns
from espalier.constraints.verdict import judge, parse
from espalier.errors import SchemaError, UnsupportedError

LINK = {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
ENDLESS = {
    "itself": {**LINK, "required": ["next"]},
    "two of each other": {
        "$defs": {
            "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
            "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
        },
        "$ref": "#/$defs/a",
    },
    "every option": {
        "anyOf": [{**LINK, "required": ["next"]}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]
    },
}
FINITE = {
    "an optional link": LINK,
    "a list of itself": {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["kids"],
    },
    "a way out": {"anyOf": [{"type": "null"}, {**LINK, "required": ["next"]}]},
    "behind an optional property": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "required": ["x"]}},
    },
    "unused and endless": {"type": "string", "$defs": {"x": {"$ref": "#/$defs/x"}}},
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_part_that_requires_itself_without_end_is_refused(name):
    with pytest.raises(SchemaError, match="without end") as caught:
        espalier.compile(espalier.JsonSchema(ENDLESS[name]))
    assert caught.value.pointer is not None


@pytest.mark.parametrize("name", FINITE)
def test_recursion_with_an_end_is_taken(name):
    espalier.compile(espalier.JsonSchema(FINITE[name]))


def test_an_optional_part_that_never_ends_is_never_begun():
    compiled = espalier.compile(espalier.JsonSchema(FINITE["behind an optional property"]))
    assert compiled.accepts("{}")
    assert not compiled.accepts('{"a"')
    matcher = compiled.matcher()
    for byte in b'{"a':
        matcher.advance(byte)
    assert not matcher.allows(ord('"'))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"properties": {"a": {"type": "integer"}}}, r'{"\u0061": "x"}'),
        ({"properties": {"a": {"type": "integer"}}}, r'{"a": 1, "\u0061": "x"}'),
        ({"properties": {"a/b": {"type": "integer"}}}, r'{"a\/b": "x"}'),
        ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}}, r'{"\u0078": "s"}'),
    ],
)
def test_a_key_has_one_spelling_so_that_no_other_slips_past(schema, text):
    assert not espalier.compile(espalier.JsonSchema(schema)).accepts(text)


def test_a_key_that_comes_twice_does_not_count_twice():
    compiled = espalier.compile(espalier.JsonSchema({"type": "object", "minProperties": 2}))
    assert compiled.accepts('{"a": 1, "b": 1}')
    assert not compiled.accepts('{"a": 1, "a": 1}')
    assert not compiled.accepts('{"a": 1}')


@pytest.mark.parametrize(
    ("schema", "text", "valid"),
    [
        ({"type": "number", "multipleOf": 0.1}, "0.3", True),
        ({"type": "number", "multipleOf": 0.1}, "0.35", False),
        ({"type": "integer", "multipleOf": 0.5}, "1" * 320, True),
        ({"type": "integer"}, "1" * (sys.get_int_max_str_digits() + 1), None),
        ({"type": "number"}, "1e400", None),
        ({"properties": {"a": {"$ref": "https://example.org/never-fetched"}}}, '{"a": 1}', None),
        ({"type": "string"}, "nope", False),
        ({"type": "number"}, "NaN", False),
    ],
)
def test_the_judge_is_exact_or_says_that_it_cannot_judge(schema, text, valid):
    assert judge(espalier.JsonSchema(schema), text).valid is valid


def test_a_number_of_too_many_digits_is_parsed_all_the_same():
    digits = "7" * (sys.get_int_max_str_digits() + 1)
    assert str(parse(espalier.JsonSchema(True), digits)) == digits


def test_a_pattern_that_backtracks_without_end_does_not_hang_the_judge(monkeypatch):
    monkeypatch.setattr(slow_patterns, "JUDGE_SECONDS", 0.5)
    verdict = judge(espalier.Regex("(a|a)*b"), "a" * 200)
    assert verdict.valid in (False, None)


def test_a_schema_cannot_be_changed_after_it_was_given():
    spec = espalier.JsonSchema({"type": "object"})
    key = spec.key()
    spec.schema["type"] = "array"
    assert spec.key() == key
    assert spec.schema == {"type": "object"}


def test_half_a_character_is_in_no_language():
    for spec in (espalier.JsonSchema(True), espalier.Regex(".*"), espalier.Choice(["a"])):
        assert espalier.compile(spec).accepts("\ud800") is False


@pytest.mark.parametrize("pattern", ["^(a(?=b))*c(?=(a*)\\2$)", "(a*)\\1"])
def test_a_pattern_inside_a_schema_that_cannot_be_enforced_is_refused_with_its_place(pattern):
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    with pytest.raises(UnsupportedError, match="/properties/a/pattern"):
        espalier.compile(espalier.JsonSchema(json.loads(json.dumps(schema))))


def test_of_overlapping_options_exactly_one_holds():
    compiled = espalier.compile(
        espalier.JsonSchema({"oneOf": [{"type": "string"}, {"type": "string", "maxLength": 3}]})
    )
    assert compiled.accepts('"four"')
    assert not compiled.accepts('"two"')


@pytest.mark.parametrize("value", ["a\u0000b", "\u007f", "\u001f", 'quo"te', "tab\t"])
def test_a_constant_with_control_characters_keeps_them(value):
    for schema in ({"const": value}, {"enum": [value, "other"]}):
        compiled = espalier.compile(espalier.JsonSchema(schema))
        assert compiled.accepts(json.dumps(value, ensure_ascii=False))
        assert not compiled.accepts(json.dumps(value.strip("\u0000\u007f\u001f") + "x"))
        assert not compiled.accepts('"ab"')


def test_a_keyword_that_can_only_be_checked_is_an_error_unless_allowed():
    schema = {"type": "string", "pattern": r"^(a*)b\1$"}
    with pytest.raises(UnsupportedError, match="/pattern"):
        espalier.compile(espalier.JsonSchema(schema))
    espalier.compile(espalier.JsonSchema(schema, allow="checked"))


def test_unique_items_that_is_false_says_nothing():
    assert espalier.compile(espalier.JsonSchema({"type": "array", "uniqueItems": False})).accepts("[1,1]")


def test_a_panic_of_the_validators_library_is_no_verdict(monkeypatch):
    panic = type("PanicException", (BaseException,), {})

    def fail(*_):
        raise panic

    monkeypatch.setattr("espalier.constraints.json_schema.judge._registry", fail)
    assert judge(espalier.JsonSchema({}), "1").valid is None

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("espalier.constraints.json_schema.judge._registry", interrupt)
    with pytest.raises(KeyboardInterrupt):
        judge(espalier.JsonSchema({}), "1")
