"""Unknown keywords are told with the nearest known one; names of properties, values and remarks are not."""

from __future__ import annotations

import itertools
import random
import string

import pytest

from espalier import api
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.json_schema.typos import refuse_typos, typo_notes
from espalier.constraints.spec import JsonSchema, Regex
from espalier.errors import InputError, SchemaError
from espalier.schema.read.unknown import FOREIGN, KEYWORDS, OTHER_WORDS, distance, type_meant, unknown_keywords
from espalier.time_limit import OutOfTime, time_limit
from tests.examples import examples

VALUES = {
    "type": "string",
    "enum": [1],
    "const": 1,
    "properties": {},
    "required": ["a"],
    "format": "date",
    "pattern": "a",
    "uniqueItems": True,
    "multipleOf": 2,
    "exclusiveMinimum": 1,
    "exclusiveMaximum": 1,
    "dependentRequired": {},
    "title": "a",
    "description": "a",
    "default": 1,
    "examples": [1],
    "deprecated": True,
    "readOnly": True,
    "writeOnly": True,
    "definitions": {},
    "$defs": {},
    "contentSchema": {},
    "$vocabulary": {},
    "$recursiveAnchor": True,
    "dependencies": {},
    "dependentSchemas": {},
    "patternProperties": {},
}
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SCHEMAS = (
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "propertyNames",
    "not",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def value_of(keyword):
    if keyword in VALUES:
        return VALUES[keyword]
    if keyword in LISTS:
        return [{}]
    if keyword in SCHEMAS:
        return {}
    return "a" if keyword.startswith(("$", "content")) else 3


def typos(keyword):
    """Every word that one wrong letter makes of a keyword; its `$` stays."""
    start = 1 if keyword[0] == "$" else 0
    for at in range(start, len(keyword) + 1):
        head, tail = keyword[:at], keyword[at:]
        if tail:
            yield head + tail[1:]
            yield from (head + letter + tail[1:] for letter in string.ascii_letters)
        if len(tail) > 1:
            yield head + tail[1] + tail[0] + tail[2:]
        yield from (head + letter + tail for letter in string.ascii_letters)


def told(schema):
    return [(one.pointer, one.meant) for one in unknown_keywords(schema)]


@pytest.mark.parametrize("keyword", sorted(KEYWORDS - {"id"}))
def test_every_typo_of_one_letter_is_told_with_its_keyword(keyword):
    known = KEYWORDS | FOREIGN | set(OTHER_WORDS)
    wrong = sorted({one for one in typos(keyword) if one and one not in known and one.lower() != "id"})
    picked = random.Random(keyword).sample(wrong, min(len(wrong), examples(120)))
    for typo in picked:
        found = told({typo: value_of(keyword)})
        assert found, typo
        assert found[0][0] == f"/{typo}"
        assert keyword in found[0][1], (typo, found)


@pytest.mark.parametrize("keyword", sorted(KEYWORDS | FOREIGN | {"x-order", "x_y", "X-Y", "_maxLength", "@type"}))
def test_known_keywords_and_remarks_are_silent(keyword):
    assert told({keyword: value_of(keyword)}) == [] or keyword == "x_y"


def test_places_are_json_pointers():
    schema = {
        "properties": {"a/b": {"items": [{"maxLenght": 3}]}},
        "$defs": {"t": {"anyOf": [True, {"requried": ["x"]}]}},
    }
    assert told(schema) == [
        ("/properties/a~1b/items/0/maxLenght", ("maxLength",)),
        ("/$defs/t/anyOf/1/requried", ("required",)),
    ]


def test_names_of_properties_and_values_are_no_keywords():
    inner = {"maxLenght": 3, "requried": ["a"]}
    schema = {
        "properties": {"maxLenght": {"type": "string"}, "requried": True},
        "patternProperties": {"maxLenght": {}},
        "$defs": {"maxLenght": {}},
        "dependentRequired": {"maxLenght": ["requried"]},
        "enum": [inner],
        "const": inner,
        "default": inner,
        "examples": [inner],
        "x-more": inner,
        "example": inner,
    }
    assert told(schema) == []


def test_a_property_outside_of_properties_is_told():
    assert told({"type": "object", "properties": {}, "age": {"type": "integer"}}) == [("/age", ())]
    assert told({"type": "object", "age": {"type": "integer"}, "allOf": [{"$ref": "#/age"}]}) == []


@pytest.mark.parametrize("remark", ["propertyOrder", "javaType", "name", "$default", "types", "options", "messages"])
def test_remarks_of_others_are_silent(remark):
    assert told({remark: {"a": 1}}) == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [("intger", "integer"), ("int", "integer"), ("String", "string"), ("bool", "boolean"), ("float", "number")],
)
def test_a_wrong_type_is_refused_with_the_right_one(written, meant):
    assert type_meant(written) == meant
    with pytest.raises(SchemaError, match=f'did you mean "{meant}"') as caught:
        api.contract({"properties": {"a": {"type": written}}})
    assert caught.value.pointer == "/properties/a/type"


def test_the_contract_says_what_was_meant():
    entries = {one.pointer: one for one in api.contract({"type": "string", "maxLenght": 3}).entries}
    assert entries["/maxLenght"].verdict == "annotation"
    assert "did you mean `maxLength`?" in entries["/maxLenght"].note


def test_a_request_notes_the_schemas_of_its_parts_and_its_tools():
    typo = {"type": "object", "requried": ["a"]}
    found = api.make_request(
        "hi", constraint=AllOf([JsonSchema(typo), Regex(".*")]), tools=[{"name": "look", "parameters": typo}]
    )
    said = "/requried is no keyword of JSON Schema and asserts nothing: did you mean `required`?"
    assert found.notes == (f"schema: {said}", f"tool look: {said}")


def test_many_unknown_keywords_are_counted():
    notes = typo_notes(JsonSchema({"properties": {str(i): {"maxLenght": 1} for i in range(20)}}))
    assert len(notes) == 9
    assert notes[-1] == "schema: and 12 more unknown keywords"


def test_strict_refuses():
    with pytest.raises(SchemaError, match=r"maxLenght.*the format is strict at /maxLenght"):
        refuse_typos({"maxLenght": 3}, "the format is strict")
    tool = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"requried": []}}}
    with pytest.raises(InputError, match="the tool f is strict") as caught:
        api.make_request("hi", tools=[tool])
    assert caught.value.field == "tools[0].parameters"


def test_the_distance_counts_letters():
    assert distance("lenght", "length", 2) == 1
    assert distance("ab", "abcd", 2) == 2
    assert distance("ab", "abcde", 2) == 3
    assert distance("kitten", "sitting", 3) == 3


def test_words_that_are_too_far_apart_by_their_letters_are_too_far_apart() -> None:
    """The quick test before the exact one leaves nothing out: two wrong letters change at most four of a set."""
    rng = random.Random(1)
    for _ in range(examples(2000)):
        known = rng.choice(sorted(KEYWORDS))
        letters = list(known)
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(letters) + 1)
            letters[at : at + rng.randrange(2)] = rng.choices(string.ascii_letters, k=rng.randrange(2))
        asked = "".join(letters)
        if distance(asked, known, 2) <= 2:
            assert len(frozenset(asked) ^ frozenset(known)) <= 4


def test_looking_for_unknown_keywords_ends_with_its_time() -> None:
    """A quarter of a megabyte of them took four seconds in one piece."""
    schema = {"".join(letters): 1 for letters in itertools.product("abcd", repeat=4)}
    with time_limit(100.0, clock=itertools.count(1.0).__next__), pytest.raises(OutOfTime):
        unknown_keywords(schema)
