"""Which arrays of a schema are watched, and what is known of each: from which item on values never run out, and which
values the schema lists."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from espalier.constraints.unique import arrays
from espalier.constraints.unique.arrays import unique_spots, watched_items
from espalier.schema.normal.expand import expand
from espalier.time_limit import OutOfTime, time_limit

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
FEW = {"type": "integer", "minimum": 0, "maximum": 50}


def unique(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, "uniqueItems": True} | more


def row(*items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "prefixItems": [*items], "items": False, "uniqueItems": True} | more


def spelled(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":")) if isinstance(schema, dict) else ""


@pytest.mark.parametrize(
    ("schema", "is_enough"),
    [
        (unique(STRING), True),
        (unique(STRING, minItems=3), True),
        (unique({"type": "string", "maxLength": 5}), False),
        (unique({"type": "string", "pattern": "^x"}), True),
        (unique({"type": "string", "pattern": "^(ab)*$"}), True),
        (unique({"type": "string", "pattern": "^(abcd)*$"}), True),
        (unique({"type": "string", "pattern": "^a*b?$"}), False),
        (unique({"type": "string", "pattern": "^(a|bc)$"}), False),
        (unique({"type": "string", "pattern": "^a", "allOf": [{"pattern": "^b"}]}), False),
        (unique({"type": ["string", "null"]}), False),
        (unique({"enum": [*"ab"]}), True),
        (unique({"enum": [*"abcdefgh"]}), True),
        (unique({"enum": [*"abcdefghijkl"]}), False),
        (row(INTEGER) | {"maxItems": 5}, True),
        (row(INTEGER, INTEGER) | {"maxItems": 1}, True),
        (unique({"type": ["boolean", "null"]}), True),
        (unique(INTEGER, maxItems=1), True),
        (unique(STRING, contains={"const": "a"}), False),
        (unique(STRING, contains={"const": "a"}, minContains=0), True),
        (unique(STRING, contains={"const": "a"}, minContains=0, maxContains=1), False),
        (row(STRING, STRING), True),
        (row(STRING, {"const": "a"}), False),
        ({"anyOf": [unique(STRING), {"type": "array", "items": INTEGER}]}, True),
        ({"anyOf": [unique(STRING, minItems=1), {"type": "array", "items": STRING, "maxItems": 1}]}, True),
        ({"anyOf": [unique(STRING, minItems=1), {"type": "array", "items": STRING, "maxItems": 2}]}, False),
        ({"anyOf": [unique(STRING), {"const": ["a", 1, 1]}]}, True),
        ({"anyOf": [unique(STRING), {"const": ["a", "a"]}]}, False),
        ({"anyOf": [unique(STRING), {"type": "array", "prefixItems": [STRING, INTEGER], "items": False}]}, True),
        (
            {"anyOf": [unique(STRING), {"type": "array", "prefixItems": [STRING, {"enum": ["q", 1]}], "items": False}]},
            False,
        ),
        (unique(STRING, contains={"pattern": "^a"}, minContains=0), True),
        (unique(STRING, contains={"pattern": "^a"}), False),
        (unique(STRING, contains={"pattern": "^a"}, minContains=2), False),
        (unique(STRING, contains={"pattern": "^a"}, minContains=0, maxContains=3), False),
        ({"type": "object", "properties": {"a": unique(STRING)}, "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": unique(STRING)}, "minProperties": 3}, False),
    ],
    ids=spelled,
)
def test_forbidding_equal_strings_is_enough_where_each_open_string_can_go_on(schema: Any, is_enough: bool) -> None:
    assert (unique_spots(expand(schema)) is not None) == is_enough


def test_days_of_the_calendar_run_out_where_formats_are_enforced() -> None:
    days = unique({"type": "string", "format": "date"})
    assert unique_spots(expand(days)) is not None
    assert unique_spots(expand(days, format="assert")) is None


@pytest.mark.parametrize(
    ("items", "is_plain"), [(STRING, True), ({"type": "string", "pattern": "^x"}, False)], ids=spelled
)
def test_any_letter_may_follow_in_strings_without_a_pattern(items: Any, is_plain: bool) -> None:
    spots = unique_spots(expand(unique(items)))
    assert spots is not None
    assert spots[0].plain == is_plain


NUMBERS = tuple(str(number) for number in range(20))


@pytest.mark.parametrize(
    ("schema", "fresh", "listed"),
    [
        (unique(INTEGER), [True], [()]),
        (unique({"type": "number", "minimum": 0}), [True], [()]),
        (unique({"type": "number", "maximum": 0}), [True], [()]),
        (unique({"type": "number", "multipleOf": 5}), [False], [()]),
        (unique(FEW, minItems=2), [False], [()]),
        (unique({"type": "string", "maxLength": 3}), [False], [()]),
        (unique(INTEGER, maxItems=3), [True], [()]),
        (unique({"enum": [*range(20)]}, minItems=3), [False], [NUMBERS]),
        (
            unique({"enum": [{"a": 1}, [1], *"bcdefghi"]}),
            [False],
            [('{"a":1}', "[1]", *(f'"{c}"' for c in "bcdefghi"))],
        ),
        (unique({"type": ["boolean", "integer"], "minimum": 0, "maximum": 9}), [False], [("false", "true")]),
        (unique(FEW, prefixItems=[STRING, {"enum": [1, 2]}], minItems=2), [False, False, False], [(), ("1", "2"), ()]),
        (unique(STRING, prefixItems=[{"enum": [1, 2]}, STRING], minItems=2), [False, True, True], [("1", "2"), (), ()]),
        (unique(INTEGER, prefixItems=[INTEGER, INTEGER], maxItems=2), [True, True, False], [(), (), ()]),
        (unique(STRING, prefixItems=[FEW], minItems=2), [False, True], [(), ()]),
        (unique(STRING, prefixItems=[STRING, FEW], minItems=1), [True, False, True], [(), (), ()]),
        (unique(INTEGER, contains={"minimum": 5}, minContains=2), [True], [()]),
        (unique(INTEGER, contains={"minimum": 5}, minContains=0, maxContains=3), [True], [()]),
        (unique(INTEGER, contains={"minimum": 5}, allOf=[{"contains": {"maximum": 3}}]), [True], [()]),
        (
            unique(INTEGER, contains={"minimum": 5}, minContains=2, prefixItems=[{"enum": [7, 8]}]),
            [False, True],
            [("7", "8"), ()],
        ),
        (unique(INTEGER, contains={"minimum": 5}, allOf=[{"contains": {"const": 3}}]), [False], [("3",)]),
        (
            unique(
                {"type": ["integer", "null"]}, contains={"minimum": 5}, maxContains=2, allOf=[{"contains": INTEGER}]
            ),
            [False],
            [()],
        ),
        (unique(INTEGER, contains={"const": 5}), [False], [("5",)]),
        (unique(INTEGER, contains={"const": 5}, prefixItems=[{"enum": [7, 8]}]), [False, False], [("7", "8"), ("5",)]),
        ({"anyOf": [unique(INTEGER), {"const": [1, 2]}]}, [False] * 3, [()] * 3),
        (
            {"anyOf": [unique(INTEGER, prefixItems=[FEW]), unique(INTEGER, prefixItems=[STRING, INTEGER, INTEGER])]},
            [False, True, True, True],
            [()] * 4,
        ),
    ],
    ids=spelled,
)
def test_what_is_known_of_each_item_of_an_array(
    schema: Any, fresh: Sequence[bool], listed: Sequence[tuple[str, ...]]
) -> None:
    watched = watched_items(expand(schema))
    assert watched is not None
    spot = watched.spots[0]
    assert spot.unique
    assert spot.fresh == tuple(fresh)
    assert [tuple(map(bytes.decode, texts)) for texts in spot.listed] == [*listed]
    assert len(spot.items) == len(fresh)


FEW_NAMES = {"type": "object", "minProperties": 2, "propertyNames": {"maxLength": 1}, "maxProperties": 3}


@pytest.mark.parametrize(
    ("schema", "is_easy"),
    [
        (unique(INTEGER, minItems=2), True),
        (unique(FEW), True),
        (unique(FEW, minItems=1), True),
        (unique(FEW, minItems=2), False),
        (unique(FEW, contains={"minimum": 5}), True),
        (unique(FEW, contains={"minimum": 5}, minContains=2), False),
        (unique(FEW, contains={"const": 5}, prefixItems=[{"enum": [5, 6]}]), False),
        (unique(FEW, contains={"const": 5}, allOf=[{"contains": {"const": 6}}]), False),
        (unique({"type": "string", "maxLength": 3}, minItems=2), False),
        (unique(INTEGER, prefixItems=[FEW], minItems=2), False),
        (unique(INTEGER, contains={"const": 5}, minItems=2), False),
        ({"type": "object", "minProperties": 3, "properties": {"q": INTEGER}, "required": ["q"]}, True),
        (
            {"type": "object", "minProperties": 2, "patternProperties": {"^a": INTEGER}, "additionalProperties": False},
            False,
        ),
        ({"type": "object", "minProperties": 2, "patternProperties": {"^a": INTEGER}}, True),
        ({"type": "object", "minProperties": 2, "patternProperties": {"aa|[^a]": False}}, False),
        ({"anyOf": [{"type": "object", "minProperties": 2}, FEW_NAMES]}, False),
    ],
    ids=spelled,
)
def test_an_array_is_easy_where_it_completes_whatever_its_items_are(schema: Any, is_easy: bool) -> None:
    watched = watched_items(expand(schema))
    assert watched is not None
    assert watched.is_easy == is_easy


@pytest.mark.parametrize(
    ("schema", "differ"),
    [
        ({"type": "object", "minProperties": 2, "properties": {"q": INTEGER}, "required": ["q"]}, False),
        ({"type": "object", "minProperties": 3, "properties": {"q": INTEGER}, "required": ["q"]}, True),
        ({"type": "object", "minProperties": 3, "additionalProperties": False}, False),
        ({"type": "object", "properties": {"q": INTEGER}}, False),
    ],
    ids=spelled,
)
def test_names_must_differ_where_undeclared_ones_are_counted(schema: Any, differ: bool) -> None:
    watched = watched_items(expand({"properties": {"x": unique(INTEGER), "o": schema}, "type": "object"}))
    assert watched is not None
    spots = watched.spots
    assert spots[spots[0].names[b"o"]].names_differ == differ
    assert spots[spots[0].names[b"o"]].pointer == ("/properties/o" if differ else "")
    assert spots[spots[0].names[b"x"]].pointer == "/properties/x"


def test_each_member_and_each_item_leads_to_the_arrays_in_it() -> None:
    schema = {
        "type": "object",
        "properties": {
            "t": unique(STRING),
            'q"': INTEGER,
            "a": {"type": "array", "prefixItems": [INTEGER, unique(FEW)]},
        },
        "additionalProperties": unique(INTEGER),
    }
    watched = watched_items(expand(schema))
    assert watched is not None
    spots = watched.spots

    def is_unique(*path: bytes | int) -> bool:
        spot = spots[0]
        for part in path:
            inner = spot.items[min(part, len(spot.items) - 1)] if isinstance(part, int) else None
            spot = spots[spot.names.get(part, spot.other) if isinstance(part, bytes) else inner or 0]
        return spot.unique

    unique_places = [(b"t",), (b"zzz",), (b"a", 1)]
    others: list[tuple[bytes | int, ...]] = [(), (b'q\\"',), (b"a",), (b"a", 0), (b"a", 2), (b"t", 0), (b"zzz", 5)]
    assert [path for path in [*unique_places, *others] if is_unique(*path)] == unique_places


def test_an_item_of_the_prefix_that_must_match_leads_to_the_array_in_it() -> None:
    pairs = {"type": "array", "items": INTEGER}
    schema = {"type": "array", "prefixItems": [pairs], "items": INTEGER, "contains": unique(True)}
    watched = watched_items(expand(schema))
    assert watched is not None
    assert [watched.spots[item].unique for item in watched.spots[0].items] == [True, False]


def test_values_that_a_schema_lists_lead_to_the_arrays_in_them() -> None:
    nested = {"anyOf": [unique(unique(INTEGER)), {"const": [[1, 2], {"a": [2]}]}]}
    watched = watched_items(expand(nested))
    assert watched is not None
    spots = watched.spots
    first, second, further = (spots[item] for item in spots[0].items)
    assert first.unique
    assert second.unique
    assert further.unique
    assert first.fresh == (False,) * 3, "the list [1, 2] may be the one that is open"
    assert further.fresh == (True,)
    assert len(spots[second.names[b"a"]].items) == 2, "the list [2] has one item"


@pytest.mark.parametrize(
    ("other", "narrowed"),
    [
        ({"const": [1, 1]}, [""]),
        ({"const": [1, 2]}, []),
        ({"const": [[1], [1.0]]}, [""]),
        ({"const": 1}, []),
        ({"type": "array", "items": STRING, "maxItems": 1}, []),
        ({"type": "array", "items": STRING, "maxItems": 2}, [""]),
    ],
    ids=spelled,
)
def test_an_array_is_narrowed_where_a_value_beside_it_may_repeat_an_item(
    other: Mapping[str, Any], narrowed: list[str]
) -> None:
    watched = watched_items(expand({"anyOf": [unique({"type": ["array", "integer"]}), other]}))
    assert watched is not None
    assert [*watched.narrowed] == narrowed


def test_a_schema_of_more_sets_of_nodes_than_are_kept_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = expand(unique({"type": "array", "items": INTEGER}))
    watched = watched_items(shapes)
    assert watched is not None
    for most, is_watched in ((len(watched.spots), True), (len(watched.spots) - 1, False)):
        monkeypatch.setattr(arrays, "MAX_SPOTS", most)
        assert (watched_items(shapes) is not None) == is_watched


def test_the_time_limit_of_a_request_holds_while_arrays_are_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = expand(unique(INTEGER))
    with pytest.raises(OutOfTime), time_limit(0.0):
        watched_items(shapes)
    pattern = expand(unique({"type": "string", "pattern": "^(ab)*$"}))
    checks: list[None] = []
    monkeypatch.setattr(arrays, "check_time", lambda: checks.append(None))
    assert unique_spots(pattern) is not None
    assert len(checks) > len(unique_spots(pattern) or ()), "in each state of the pattern too"
