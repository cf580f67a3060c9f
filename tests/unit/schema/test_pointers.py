"""JSON pointers and local references: escapes, steps into lists, dangling pointers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.schema.pointers import (
    MAX_REFERENCES,
    DanglingPointer,
    below,
    dereference,
    escape,
    follow,
    is_pointer,
    local_pointer,
    split,
    split_reference,
    trail,
    unescape,
)

RFC_6901 = {"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "m~n": 8, " ": 7, "~1": 9}


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("", RFC_6901),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/m~0n", 8),
        ("/ ", 7),
        ("/~01", 9),
    ],
)
def test_the_examples_of_rfc_6901(pointer: str, value: Any) -> None:
    assert follow(RFC_6901, pointer) == value


@pytest.mark.parametrize(
    "pointer", ["/nothing", "/foo/2", "/foo/00", "/foo/-", "/foo/-1", "/foo/x", "/foo/0/x", "/a~1b/0"]
)
def test_a_pointer_to_nothing_is_named(pointer: str) -> None:
    with pytest.raises(DanglingPointer, match=pointer):
        follow(RFC_6901, pointer)


@given(st.lists(st.text() | st.integers(min_value=0, max_value=99)))
def test_split_undoes_below(steps: list[str | int]) -> None:
    assert split(below("", *steps)) == [str(step) for step in steps]


@given(st.text())
def test_unescape_undoes_escape(step: str) -> None:
    assert unescape(escape(step)) == step
    assert "/" not in escape(step)


def test_a_trail_names_every_value_on_the_way() -> None:
    document = {"a/b": [{"c": True}]}
    assert list(trail(document, "/a~1b/0/c")) == [
        ("/a~1b", [{"c": True}]),
        ("/a~1b/0", {"c": True}),
        ("/a~1b/0/c", True),
    ]
    assert list(trail(document, "")) == []


def test_references_are_split_at_the_fragment() -> None:
    assert split_reference("http://example.com/s#/a%20b") == ("http://example.com/s", "/a b")
    assert split_reference("other.json") == ("other.json", "")
    assert is_pointer("")
    assert is_pointer("/a")
    assert not is_pointer("anchor")


@pytest.mark.parametrize(
    ("reference", "pointer"),
    [("#", ""), ("#/a%2Fb", "/a/b"), ("#/$defs/a~1b%25c", "/$defs/a~1b%c"), ("#anchor", None), ("other.json#/a", None)],
)
def test_only_pointers_into_the_same_document_are_local(reference: str, pointer: str | None) -> None:
    assert local_pointer(reference) == pointer


def test_references_are_followed_over_several() -> None:
    schema = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "string"}, "no": False}}
    assert dereference({"$ref": "#/$defs/a"}, schema) == {"type": "string"}
    assert dereference({"$ref": "#/$defs/no"}, schema) is False
    assert dereference({"type": "null"}, schema) == {"type": "null"}
    assert dereference(True, schema) is True


@pytest.mark.parametrize("reference", ["#/$defs/gone", "#/$defs", "#anchor", "other.json", 3])
def test_a_reference_that_cannot_be_followed_is_left_as_it_is(reference: Any) -> None:
    schema = {"$defs": [{"type": "string"}]}
    assert dereference({"$ref": reference}, schema) == {"$ref": reference}


def test_references_in_a_circle_come_to_an_end() -> None:
    schema = {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    assert dereference({"$ref": "#/$defs/a"}, schema) in schema["$defs"].values()
    assert MAX_REFERENCES > 0
