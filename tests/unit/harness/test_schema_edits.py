"""Edits of a schema: each is what its patch says, leaves the schema that it came from alone, and is spoken for by what
the model wanted."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest

from espalier.harness.compare.schema_edits import WantedAt, locate, patches, schema_edits

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"$ref": "#/$defs/item"}},
        "note": {"type": "string"},
        "a/b": {"enum": ["x"]},
    },
    "required": ["items", "note"],
    "$defs": {
        "item": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "unit": {"enum": ["piece", "kg"]}},
            "required": ["name", "unit"],
        }
    },
}


def applied(document: Any, patch: Any) -> Any:
    """RFC 6902, as far as the edits need it."""
    own = copy.deepcopy(document)

    def at(pointer: str) -> tuple[Any, Any]:
        node, *steps = own, *[step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]
        for step in steps[:-1]:
            node = node[int(step)] if isinstance(node, list) else node[step]
        return node, int(steps[-1]) if isinstance(node, list) and steps[-1] != "-" else steps[-1]

    for operation in patch:
        node, last = at(operation["path"])
        match operation["op"]:
            case "add" if last == "-":
                node.append(operation["value"])
            case "add" | "replace":
                node[last] = operation["value"]
            case "remove":
                del node[last]
            case "move":
                source, name = at(operation["from"])
                node[last] = source.pop(name)
    return own


def wanted(path: str, token: str, taken: str, tax: float = 1.0) -> WantedAt:
    return WantedAt(path, token, taken, tax)


@pytest.mark.parametrize(
    ("place", "action", "about"),
    [
        (wanted("/items/*/unit", ' "pcs"', '"kg"'), "add_value", "add 'pcs' to the enum at /items/*/unit"),
        (wanted("/a~1b", "other", "x"), "add_value", "add 'other' to the enum at /a~1b"),
        (wanted("/items/*", '"quantity', '"unit'), "rename", "rename 'unit' to 'quantity' at /items/*"),
        (wanted("/items/*", "title", "n"), "rename", "rename 'name' to 'title' at /items/*"),
        (wanted("/", "note", "items"), "reorder", "put 'note' before 'items' at /"),
        (wanted("/items/*", '"}', ' "unit'), "make_optional", "make 'unit' optional at /items/*"),
    ],
)
def test_what_was_wanted_speaks_for_an_edit(place: WantedAt, action: str, about: str) -> None:
    before = copy.deepcopy(SCHEMA)
    edits = schema_edits(SCHEMA, [place])
    assert before == SCHEMA
    edit = next(edit for edit in edits if edit.about == about)
    assert edit.action == action
    jsonschema.Draft202012Validator.check_schema(edit.schema)
    if edit.patch is not None:
        assert applied(SCHEMA, edit.patch) == edit.schema
    else:
        assert edit.schema == SCHEMA, "the same but for its order"
        assert list(edit.schema["properties"]) == ["note", "items", "a/b"]


@pytest.mark.parametrize(
    "place",
    [
        wanted("/items/*/unit", '"pi', '"kg"'),  # a value that is there begins so
        wanted("/items/*/unit", '",', '"kg"'),
        wanted("/nowhere", "word", "x"),
        wanted("…", "word", "x"),
        wanted("/items/*/name", "word", "x"),
        wanted("/", "items", "note"),  # it stands first already
        wanted("/", "q", "items"),
    ],
    ids=str,
)
def test_marks_single_letters_and_unknown_places_speak_for_nothing(place: WantedAt) -> None:
    assert schema_edits(SCHEMA, [place]) == []


def test_the_edits_of_the_most_tax_come_first_and_each_once() -> None:
    places = [wanted("/", "note", "items", 1.0), wanted("/items/*/unit", "pcs", "kg", 5.0)]
    edits = schema_edits(SCHEMA, [*places, wanted("/items/*/unit", " pcs", "piece", 2.0)])
    assert [edit.action for edit in edits] == ["add_value", "reorder"]
    value, order = patches(edits)
    assert value["patch"] == [{"op": "add", "path": "/$defs/item/properties/unit/enum/-", "value": "pcs"}]
    assert order["patch"] is None
    assert order["schema"]["properties"].keys() == SCHEMA["properties"].keys()


def test_a_circle_of_references_leads_nowhere() -> None:
    assert locate({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "/x") is None
    assert locate({"properties": {"a": {"$ref": "other.json"}}}, "/a/b") is None
    assert locate(True, "/a") is None
