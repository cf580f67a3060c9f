"""The parts of remembering unique items: when values are equal, where arrays are nested, how a token ends an item."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from espalier.constraints.unique.endings import ENDLESS, ItemEnding, ending_of
from espalier.constraints.unique.room import MOST_DIGITS, ItemRoom
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


@pytest.mark.parametrize(
    ("data", "in_string", "ending"),
    [
        (b'"', True, (b'"', None)),
        (b'",', True, (b'"', b"")),
        (b'", ', True, (b'"', b" ")),
        (b'", "b', True, (b'"', b' "b')),
        (b'"]', True, (b'"', None)),
        (b'"] more', True, (b'"', None)),
        (b'"]["', True, None),
        (b'a"', True, None),
        (b"1", False, None),
        (b"1]", False, (b"1", None)),
        (b"1,", False, (b"1", b"")),
        (b"1, 2", False, (b"1", b" 2")),
        (b"1, 2,", False, None),
        (b'"a"', False, (b'"a"', None)),
        (b'"a", "', False, (b'"a"', b' "')),
        (b'"a", "\\', False, None),
        (b'"a", [', False, None),
        (b"{}", False, None),
        (b'"a\\"', False, None),
    ],
)
def test_what_a_token_ends_an_item_with(
    data: bytes, in_string: bool, ending: tuple[bytes, bytes | None] | None
) -> None:
    assert ending_of(data, in_string=in_string) == (None if ending is None else ItemEnding(*ending))


def test_the_next_item_is_open_where_the_token_begins_it() -> None:
    assert ItemEnding(b"1", None).next_item() is None
    number, string = ItemEnding(b"1", b" 2").next_item(), ItemEnding(b"1", b' "').next_item()
    assert number is not None
    assert string is not None
    assert (number.depth, number.in_string, number.is_escaped) == (0, False, False)
    assert string.in_string


@pytest.mark.parametrize(
    ("following", "is_left"),
    [(b"1" * MOST_DIGITS, True), (b"1" * (MOST_DIGITS + 1), False), (b"1e", False), (b"1E", False), (None, True)],
)
def test_a_long_number_may_have_no_further_digits(following: bytes | None, is_left: bool) -> None:
    room = ItemRoom(999, is_number=True)
    assert ItemEnding(b"1", following).limited(room) == (room if is_left else ItemRoom())
    strings = ItemRoom(ENDLESS)
    assert ItemEnding(b"1", following).limited(strings) == strings
