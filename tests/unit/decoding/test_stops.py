import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.decoding.text.stops import TextAssembler


def run(data: bytes, cuts, stops=()):
    """Feed `data` in pieces cut at `cuts`; returns (pieces, stop)."""
    assembler = TextAssembler(tuple(stops))
    edges = sorted({0, len(data), *(c for c in cuts if 0 < c < len(data))})
    pieces, stop = [], None
    for start, end in itertools.pairwise(edges):
        piece = assembler.feed(data[start:end])
        pieces.append(piece.text)
        stop = stop or piece.stop
    tail = assembler.finish()
    pieces.append(tail.text)
    assert "".join(pieces) == assembler.text
    return pieces, stop or tail.stop


@given(st.text(), st.lists(st.integers(0, 200)))
def test_pieces_put_together_are_the_text_however_it_is_cut(text, cuts):
    pieces, stop = run(text.encode(), cuts)
    assert "".join(pieces) == text
    assert stop is None
    assert "\ufffd" not in "".join(pieces) or "\ufffd" in text


ALPHABET = st.text(alphabet="abé", max_size=20)


@given(ALPHABET, st.lists(st.text(alphabet="abé", min_size=1, max_size=3), max_size=3), st.lists(st.integers(0, 40)))
def test_nothing_of_a_stop_text_is_ever_shown(text, stops, cuts):
    pieces, stop = run(text.encode(), cuts, stops)
    found = [text.find(s) for s in stops if s in text]
    if not found:
        assert ("".join(pieces), stop) == (text, None)
        return
    shown = "".join(pieces)
    assert stop in stops
    assert text.startswith(shown + stop)
    assert not any(s in shown for s in stops)


@given(st.binary(max_size=60), st.lists(st.integers(0, 60)))
def test_bytes_that_are_not_utf8_are_replaced_and_never_lost_or_raised(data, cuts):
    pieces, _ = run(data, cuts)
    assert "".join(pieces) == data.decode("utf-8", "replace")


def test_a_character_is_held_until_it_is_whole_and_replaced_if_it_is_cut():
    assembler = TextAssembler()
    first, rest = "é".encode()[:1], "é".encode()[1:]
    assert assembler.feed(first).text == ""
    assert assembler.feed(rest).text == "é"
    assert assembler.feed(first).text == ""
    assert assembler.finish().text == "\ufffd"


def test_what_could_be_a_stop_text_is_held_and_then_given_back():
    assembler = TextAssembler(("<end>",))
    assert [assembler.feed(c.encode()).text for c in "a<en"] == ["a", "", "", ""]
    assert assembler.feed(b"x").text == "<enx"
    assert assembler.feed(b"<end>ignored").stop == "<end>"
    assert assembler.feed(b"more").text == ""
    assert assembler.text == "a<enx"


@pytest.mark.parametrize("stops", [("ab", "abc"), ("abc", "ab")])
@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4]])
def test_of_two_stops_at_one_place_the_shorter_is_named(stops, cuts):
    pieces, stop = run(b"xabcd", cuts, stops)
    assert ("".join(pieces), stop) == ("x", "ab")


@given(ALPHABET, st.lists(st.text(alphabet="abé", min_size=1, max_size=4), max_size=3), st.lists(st.integers(0, 40)))
def test_the_stop_does_not_depend_on_how_the_bytes_are_cut(text, stops, cuts):
    whole, one = run(text.encode(), [], stops)
    pieces, other = run(text.encode(), cuts, stops)
    assert ("".join(pieces), other) == ("".join(whole), one)
