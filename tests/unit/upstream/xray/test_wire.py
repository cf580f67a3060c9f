"""What the x-ray reads of a server's bytes, against other readers: JSON with its places, cut characters, entries."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.errors import UpstreamError
from espalier.upstream.xray.distribution import ReportedTokens, entries_of, entry_of, read_entry
from espalier.upstream.xray.wire.alignment import is_cut, with_entries
from espalier.upstream.xray.wire.spans import JsonMember, Value, decoded, edited, parsed, text_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text('aé"\\\n', max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=3),
    max_leaves=8,
)
SPACES = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", "\t:  ")])


def latin(value: Any, separators: tuple[str, str]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=separators).encode().decode("latin-1")


def check_places(text: str, value: Value) -> None:
    assert json.loads(text[value.start : value.end].encode("latin-1")) == decoded(value.data)
    for name, member in value.members.items():
        check_places(text, member.value)
        assert text[member.start : member.start + 1] == '"'
        start, end = member.whole
        without = json.loads((text[:start] + text[end:])[value.start : value.end - (end - start)].encode("latin-1"))
        assert without == {key: data for key, data in decoded(value.data).items() if key != text_of(name)}
    for item in value.items:
        check_places(text, item)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "é", "d"]), VALUES, max_size=4), SPACES, st.sampled_from(["", " ", "\n"])
)
def test_every_value_has_its_place_and_every_member_can_be_cut_out(
    data: dict[str, Any], separators: tuple[str, str], around: str
) -> None:
    text = around + latin(data, separators) + around
    value = parsed(text, frozenset("abcd"))
    assert decoded(value.data) == data
    check_places(text, value)


def test_what_is_not_gone_into_has_no_members_and_what_is_made_of_items_takes_their_place() -> None:
    text = '{"a": {"b": 1}, "c": [{"b": 2}, {"b": 3}]}'
    value = parsed(text, frozenset("c"))
    assert value.members["a"].value.members == {}
    assert [item.members["b"].value.data for item in value.members["c"].value.items] == [2, 3]
    made = parsed(text, frozenset("c"), {"c": lambda entry: entry["b"]})
    assert made.members["c"].value.data == [2, 3]
    assert made.members["c"].value.items[0].members == {}
    assert [item.data for item in parsed('[{"a": 1}, {"a": 2}]', frozenset("a")).items] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1",
        '"a"',
        "[]",
        "[1]",
        "[{}, 1]",
        "{",
        '{"a"',
        '{"a" 1}',
        '{"a"11}',
        '{"a": 1 "b": 2}',
        "{a: 1}",
        '{"a": }',
        "{} x",
        "[{} {}]",
    ],
)
def test_what_is_no_object_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(UpstreamError):
        parsed(text, frozenset("a"))


def test_edits_replace_parts_and_the_outer_one_wins() -> None:
    assert edited("abcdef", [(4, 5, "X"), (1, 3, "")]) == "adXf"
    assert edited("abcdef", [(2, 3, "no"), (1, 4, "Y")]) == "aYef"
    assert edited("abcdef", [(1, 2, "Y"), (1, 4, "Z"), (4, 4, "+")]) == "aZ+ef"
    assert edited("abc", []) == "abc"


def test_the_member_that_is_cut_takes_one_comma_with_it() -> None:
    value = Value(1, 5, 6)
    assert JsonMember(0, value, before=None).whole == (0, 6)
    assert JsonMember(0, value, before=None, after=8).whole == (0, 8)
    assert JsonMember(2, value, before=1, after=8).whole == (1, 6)


@given(st.text("aé€😀", max_size=4), st.integers(0, 3))
def test_a_text_is_cut_where_its_last_character_lacks_bytes(text: str, left: int) -> None:
    last = text[-1:].encode()
    left = min(left, max(0, len(last) - 1))
    spelled = text.encode()[: len(text.encode()) - left] if left else text.encode()
    assert is_cut(spelled) == bool(left)


def test_bytes_that_are_no_text_are_cut_as_llama_server_sees_it() -> None:
    assert is_cut(b"\xf0\x9f\x98")
    assert is_cut(b"\xe2\x82")
    assert not is_cut(b"\x80\x80\x80\x80")
    assert is_cut(b"a\xe2a"), "it looks at the head alone"
    for head in range(256):
        length = (head >= 0xC0) + (head >= 0xE0) + (head >= 0xF0) if head < 0xF8 else 0
        assert [is_cut(bytes([head]) + b"\x80" * more) for more in range(4)] == [more < length for more in range(4)]
    assert not is_cut(b"\xc3a")
    assert not is_cut(b"")


def test_a_token_has_an_entry_where_the_text_so_far_ends_whole() -> None:
    assert with_entries(["😀".encode()[:1], "😀".encode()[1:3], "😀".encode()[3:], b"a"]) == [False, False, True, True]
    assert with_entries([]) == []


def entry(**fields: Any) -> dict[str, Any]:
    return {"top_logprobs": [{"id": 3, "logprob": -0.5}, {"id": 1, "logprob": None}], **fields}


def test_an_entry_is_read_with_what_it_names() -> None:
    read = entry_of(entry(id=3, logprob=-0.5, bytes=[97]))
    assert (read.ids.tolist(), read.logprobs.tolist()) == ([3, 1], [-0.5, -math.inf])
    assert (read.chosen, read.chosen_logprob, read.sent, read.fault) == (3, -0.5, b"a", "")
    bare = entry_of(entry(id="3", logprob="x", bytes="a"))
    assert (bare.chosen, bare.chosen_logprob, bare.sent) == (None, None, None)
    assert entry_of(entry(bytes=[300])).sent is None


@pytest.mark.parametrize(
    "data",
    [
        None,
        {},
        {"top_logprobs": 3},
        {"top_logprobs": [{}]},
        {"id": 7, "top_logprobs": [1]},
        {"id": 7, "logprob": 10**400, "top_logprobs": []},  # more than a float holds
    ],
)
def test_an_entry_that_cannot_be_read_says_so_when_it_is_used(data: Any) -> None:
    read = entry_of(data)
    assert read.fault
    assert read.ids.size == 0
    assert read.chosen == (7 if data and data.get("id") else None)
    with pytest.raises(UpstreamError, match="cannot be read"):
        read_entry(read, 10)


@pytest.mark.parametrize(("ids", "is_known"), [([0], True), ([9], True), ([10], False), ([-1], False), ([], False)])
def test_a_token_outside_the_vocabulary_is_an_error(ids: list[int], is_known: bool) -> None:
    read = entry_of({"top_logprobs": [{"id": number, "logprob": -1.0} for number in ids]})
    if is_known:
        assert read_entry(read, 10).ids.tolist() == ids
    else:
        with pytest.raises(UpstreamError, match=r"outside 0\.\.9"):
            read_entry(read, 10)


def test_what_is_listed_has_its_mass_and_its_row() -> None:
    logprobs = np.log(np.array([0.5, 0.25], dtype=np.float32))
    listed = ReportedTokens(ids=np.array([2, 0]), logprobs=logprobs, width=3)
    assert listed.mass == pytest.approx(0.75)
    assert not listed.is_whole
    assert listed.row().tolist() == [logprobs[1], -math.inf, logprobs[0]]
    whole = ReportedTokens(ids=np.arange(3), logprobs=np.zeros(3, dtype=np.float32), width=3)
    assert whole.is_whole
    assert whole.mass == 1.0


def test_entries_are_found_in_the_replies_of_every_route() -> None:
    assert entries_of({"completion_probabilities": [1]}) == [1]
    assert entries_of({"choices": [{"logprobs": {"content": [2]}}]}) == [2]
    for data in (
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"logprobs": {}}]},
        {"choices": 3},
        {"choices": [4]},
    ):
        assert entries_of(data) == []
