"""The parts of remembering unique items: when values are equal, where arrays are nested, which items a token ends."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from espalier.constraints.unique.endings import items_after
from espalier.constraints.unique.spots import Spot, is_nested
from espalier.constraints.unique.values import keys

JSON = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, -0.0, 1e2, 100, 2.5]) | st.sampled_from(["", "a", "1"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
UNIQUE = Draft202012Validator({"uniqueItems": True})


@given(JSON, JSON, st.booleans())
def test_values_share_a_key_where_a_validator_calls_them_equal(one: Any, other: Any, spaced: bool) -> None:
    written = json.dumps(one, indent=1 if spaced else None).encode()
    shared = set(keys(written)) & set(keys(json.dumps(other).encode()))
    assert bool(shared) == (not UNIQUE.is_valid([one, other]))


@pytest.mark.parametrize(
    ("one", "other", "is_equal"),
    [
        ("0.1", "0.1000000000000000055", True),
        ("9007199254740993", "9007199254740993.0", True),
        ("9007199254740993.0", "9007199254740992", True),
        ("9007199254740993", "9007199254740992", False),
        ("[0.1]", "[0.1000000000000000055]", True),
        ('{"a": 0.1}', '{"a": 0.1000000000000000055}', True),
        ('"\\u0061"', '"a"', True),
        ("true", "1", False),
        ("1e0", "1", True),
        ("1.50", "15e-1", True),
        ("-0", "0.0e3", True),
        ("0.1", "1e-1", True),
        ("1E+2", "100", True),
        ("1e14", "100000000000000", True),
        ("123456789012345678", "123456789012345678.0", True),
        ("1e-30", "0.000000000000000000000000000001", True),
        ('"\\""', '"\\u0022"', True),
        ('"null"', "null", False),
    ],
)
def test_numbers_are_compared_as_written_and_as_floats(one: str, other: str, is_equal: bool) -> None:
    assert bool(set(keys(one.encode())) & set(keys(other.encode()))) == is_equal


def spot(*items: int, names: dict[bytes, int] | None = None, other: int = 0, unique: bool = False) -> Spot:
    return Spot(names=names or {}, other=other, items=items, unique=unique)


@pytest.mark.parametrize(
    ("spots", "expected"),
    [
        ((spot(0),), False),
        ((spot(1), spot(2, unique=True), spot(2, other=2)), False),
        ((spot(1, unique=True), spot(1, unique=True, other=1)), True),
        ((spot(1, unique=True), spot(2, names={b"a": 2}, other=2), spot(2, unique=True, other=2)), True),
        ((spot(1, unique=True), spot(2, other=2), spot(3, other=3), spot(3, unique=True, other=3)), True),
        ((spot(1, unique=True), spot(1, names={b"a": 2}, other=1), spot(2, unique=True, other=2)), True),
        ((spot(1, 2), spot(1, unique=True, other=1), spot(2, other=2)), True),
    ],
)
def test_arrays_are_nested_where_one_is_inside_an_item_of_another(spots: tuple[Spot, ...], expected: bool) -> None:
    assert is_nested(spots) == expected


def ends(*items: str) -> list[tuple[int, bytes, bool, bool]]:
    """Ends of items: `0+"` adds a quotation mark to the open one, `0=1` is a whole one, `1+]c` makes a container."""
    return [(int(item[0]), item[2:].removesuffix("c").encode(), item[1] == "+", item.endswith("c")) for item in items]


@pytest.mark.parametrize(
    ("data", "levels", "in_string", "ended", "is_open"),
    [
        ('"', (0,), True, ends('0+"'), None),
        ('",', (0,), True, ends('0+"'), ((0,), False)),
        ('", ', (0,), True, ends('0+"'), ((0,), False)),
        ('", "b', (0,), True, ends('0+"'), ((0,), True)),
        ('"]', (0,), True, ends('0+"'), None),
        ('"] more', (0,), True, ends('0+"'), None),
        ('a"', (0,), True, ends('0+a"'), None),
        ("1", (0,), False, [], ((0,), False)),
        ("1]", (0,), False, ends("0+1"), None),
        ("1 ]", (0,), False, ends("0+1"), None),
        ("]", (0,), False, ends("0+"), None),
        ("1,", (0,), False, ends("0+1"), ((0,), False)),
        ("1, 2", (0,), False, ends("0+1"), ((0,), False)),
        ("1, 2,", (0,), False, ends("0+1", "0=2"), ((0,), False)),
        ('"a"', (0,), False, ends('0+"a"'), None),
        ('"a", "', (0,), False, ends('0+"a"'), ((0,), True)),
        ('"a", {"b', (0,), False, ends('0+"a"'), ((1,), True)),
        ("{}", (0,), False, ends("0+{}c"), None),
        ('"}', (1,), True, ends('0+"}c'), None),
        ('"},', (1,), True, ends('0+"}c'), ((0,), False)),
        ('"},{"a":"', (1,), True, ends('0+"}c'), ((1,), True)),
        ('","b":', (1,), True, [], ((1,), False)),
        ('"}', (2,), True, [], ((1,), False)),
        ("],[", (0, 1), False, ends("0+", "1+]c"), ((1,), False)),
        (",", (0, 1), False, ends("0+"), ((0, 1), False)),
        ("]]", (0, 1), False, ends("0+", "1+]c"), None),
        ("]", (0, 1), False, ends("0+", "1+]c"), None),
        ("]", (0, 2), False, ends("0+"), ((1,), False)),
        ('"', (0, 1), True, ends('0+"'), ((1,), False)),
        ('"', (0, 1, 3), True, ends('0+"'), ((1, 3), False)),
        ("}", (1, 3), False, ends("0+}c"), ((2,), False)),
        ("}]", (1, 3), False, ends("0+}c"), ((1,), False)),
        ("}]}]", (1, 3, 6), False, ends("0+}c", "1+}]}c"), ((2,), False)),
    ],
)
def test_the_items_that_some_bytes_end_and_the_one_that_is_open_then(
    data: str,
    levels: tuple[int, ...],
    in_string: bool,
    ended: list[tuple[int, bytes, bool, bool]],
    is_open: tuple[tuple[int, ...], bool] | None,
) -> None:
    after = items_after(data.encode(), levels, in_string=in_string, is_nested=len(levels) > 1)
    assert after is not None
    assert [tuple(end) for end in after.ends] == ended
    assert is_open == (None if after.open is None else (after.open.levels, after.open.in_string))


@pytest.mark.parametrize(
    ("data", "levels", "in_string", "is_nested"),
    [
        ('"a\\', (0,), False, False),  # what the next byte is changes all
        ('"]["', (0,), True, False),  # another array may be the next to have unique items
        ("[1,", (0,), False, True),
        ("[[", (0,), False, True),
    ],
)
def test_what_is_not_known_of_a_token(data: str, levels: tuple[int, ...], in_string: bool, is_nested: bool) -> None:
    assert items_after(data.encode(), levels, in_string=in_string, is_nested=is_nested) is None


def test_lists_that_are_not_watched_may_be_opened() -> None:
    after = items_after(b"[1,[2", (0,), in_string=False, is_nested=False)
    assert after is not None
    assert after.open is not None
    assert after.open.levels == (2,)
    assert not after.ends
