"""The contract of a schema: one verdict for each keyword, by its pointer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from espalier.errors import UnsupportedError
from espalier.schema.contract import Contract, ContractEntry
from espalier.schema.normal.expand import expand


def verdicts(schema: Any, **options: Any) -> dict[str, str]:
    return {entry.pointer: entry.verdict for entry in expand(schema, **options).contract.entries}


def test_every_keyword_has_one_entry_in_the_order_of_the_text() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "x",
        "type": "object",
        "properties": {"a/b": {"type": "string", "format": "date", "x-mine": 1}},
        "then": {"type": "null"},
        "$defs": {"unused": {"type": "null"}},
    }
    assert verdicts(schema) == {
        "/$schema": "annotation",
        "/title": "annotation",
        "/type": "enforced",
        "/properties": "enforced",
        "/then": "annotation",
        "/$defs": "annotation",
        "/properties/a~1b/type": "enforced",
        "/properties/a~1b/format": "annotation",
        "/properties/a~1b/x-mine": "annotation",
        "/$defs/unused": "annotation",
    }
    notes = {entry.pointer: entry.note for entry in expand(schema).contract.entries}
    assert notes["/$defs/unused"] == "not reached"
    assert notes["/properties/a~1b/format"] == "not asserted"
    assert notes["/properties/a~1b/x-mine"] == "not a keyword of draft 2020-12"
    assert notes["/then"] == "means nothing without if"


def test_a_format_is_asserted_on_demand() -> None:
    schema = {"type": "string", "format": "date"}
    assert verdicts(schema, format="assert")["/format"] == "enforced"
    shapes = expand(schema, format="assert")
    assert [case.formats for case in shapes.cases(shapes.root)] == [("date",)]  # type: ignore[union-attr]
    dates = expand({"enum": ["2024-02-30", "2024-02-29", "x"], "format": "date"}, format="assert")
    assert [case.values for case in dates.cases(dates.root)] == [("2024-02-29",)]  # type: ignore[union-attr]
    inside = expand({"enum": [["2024-02-30"], ["2024-02-29"]], "items": {"format": "date"}}, format="assert")
    assert [case.values for case in inside.cases(inside.root)] == [(["2024-02-29"],)]  # type: ignore[union-attr]
    unknown = verdicts({"items": {"format": "colour"}}, format="assert")
    assert unknown["/items/format"] == "annotation", "only what is known is asserted, and the contract says which"


def test_siblings_of_a_reference_mean_nothing_in_old_drafts() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/a",
        "minimum": 1,
        "definitions": {"a": {"type": "integer"}},
    }
    assert verdicts(schema)["/minimum"] == "annotation"
    assert verdicts(schema)["/definitions/a/type"] == "enforced"


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "array", "not": {"uniqueItems": True}}, "/not"),
        ({"type": "array", "contains": {"uniqueItems": True, "type": "array"}, "maxContains": 1}, "/contains"),
    ],
)
def test_what_cannot_be_said_is_left_to_the_judge(schema: Any, pointer: str) -> None:
    contract = expand(schema).contract
    left = contract.by_verdict("checked")
    assert left[0].pointer == pointer
    assert all(entry.note == f"see {pointer}" for entry in left[1:])
    assert contract.worst == "checked"
    with pytest.raises(UnsupportedError, match=f"cannot be enforced: {pointer}[:,]"):
        contract.check()
    contract.check(allow="checked")


def test_a_definition_that_is_denied_twice_is_named_twice() -> None:
    unique = {"$ref": "#/$defs/unique"}
    schema = {
        "type": "object",
        "properties": {"a": {"not": unique}, "b": {"not": unique}, "c": {"not": {"anyOf": [unique, unique]}}},
        "$defs": {"unique": {"uniqueItems": True}},
    }
    left = [entry.pointer for entry in expand(schema).contract.by_verdict("checked")]
    assert {"/properties/a/not", "/properties/b/not", "/properties/c/not"} <= set(left)


def test_what_is_judged_as_a_list_of_values_is_enforced() -> None:
    schema = {"enum": [{"a": 1}, {"a": "x"}], "properties": {"a": {"type": "integer"}}}
    assert set(verdicts(schema).values()) == {"enforced"}


def test_verdicts_are_only_ever_lowered() -> None:
    contract = Contract((ContractEntry(pointer="/type", keyword="type", verdict="enforced"),))
    narrowed = contract.narrow("/type", "no 1.0").narrow("/type", "no 1.0")
    assert narrowed.entries == (ContractEntry(pointer="/type", keyword="type", verdict="narrowed", note="no 1.0"),)
    left = narrowed.leave("/type", "too large").narrow("/type", "spelling")
    assert left.entries[0].verdict == "checked"
    assert left.entries[0].note == "no 1.0; too large; spelling"
    assert left.refuse("/a~1b", "why").entries[1] == ContractEntry(
        pointer="/a~1b", keyword="a/b", verdict="refused", note="why"
    )
    with pytest.raises(UnsupportedError, match="/a~1b: why"):
        left.refuse("/a~1b", "why").check(allow="checked")
    assert Contract().worst == "enforced"


def test_json_and_back() -> None:
    contract = expand({"type": "array", "not": {"uniqueItems": True}}).contract
    assert Contract.from_json(json.loads(json.dumps(contract.to_json()))) == contract
