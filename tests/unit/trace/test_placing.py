"""Which token each entry of a reply belongs to, against all arrangements that the reply permits."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from espalier.trace.foreign.placing import placed
from espalier.trace.foreign.responses import ApiChoice, ApiStep


def entry(text: str, number: int | None = None) -> ApiStep:
    return ApiStep(id=number, text=text, bytes=tuple(text.encode()), logprob=-1.0, top=())


def choice(
    *entries: ApiStep, total: int | None, tokens: tuple[int, ...] | None = None, finish: str = "length"
) -> ApiChoice:
    return ApiChoice(index=0, text="", reasoning="", finish_reason=finish, steps=entries, tokens=tokens, total=total)


def arrangements(entries: list[ApiStep], total: int, tokens: list[int] | None) -> list[tuple[int, ...]]:
    """Positions of the entries: before each may be missing as many tokens as its character has bytes beside one."""
    valid = []
    for positions in combinations(range(total), len(entries)):
        gaps = [after - before - 1 for before, after in zip((-1, *positions), positions, strict=False)]
        fits = all(gap < len(one.text.encode()) for gap, one in zip(gaps, entries, strict=True))
        if tokens is not None:
            fits &= all(one.id in (None, tokens[at]) for one, at in zip(entries, positions, strict=True))
        if fits:
            valid.append(positions)
    return valid


ENTRIES = st.lists(st.builds(entry, st.sampled_from(["a", "é", "€"]), st.sampled_from([None, 1, 2])), max_size=4)


@example([entry("é", 1), entry("é", 1)], 1, [1] * 8)
@given(ENTRIES, st.integers(0, 4), st.none() | st.lists(st.sampled_from([1, 2]), min_size=8, max_size=8))
def test_an_entry_is_sure_exactly_where_all_arrangements_agree(
    entries: list[ApiStep], missing: int, ids: list[int] | None
) -> None:
    total = len(entries) + missing
    tokens = None if ids is None else ids[:total]
    sequence = placed(choice(*entries, total=total, tokens=None if tokens is None else tuple(tokens)))
    assert len(sequence.steps) == len(sequence.sure) == total
    assert sequence.is_whole
    if not missing:
        assert sequence.steps == tuple(entries)
        assert all(sequence.sure)
        return
    possible = arrangements(entries, total, tokens) or arrangements(entries, total, None)
    taken_by = [{positions[index] for positions in possible} for index in range(len(entries))]
    for index, places in enumerate(taken_by):
        first = min(places)
        assert sequence.steps[first].text == entries[index].text
        assert sequence.sure[first] == (len(places) == 1)
    for position, (step, is_sure) in enumerate(zip(sequence.steps, sequence.sure, strict=True)):
        if step.is_missing and is_sure:
            assert not any(position in positions for positions in possible), "surely none belongs there"


def test_ids_that_are_not_those_of_the_entries_say_nothing() -> None:
    sequence = placed(choice(entry("a", 5), entry("b", 6), total=3, tokens=(7, 8, 9)))
    assert [step.id for step in sequence.steps] == [5, 6, None]
    sequence = placed(choice(entry("a", 5), entry("b"), total=3, tokens=(5, 8, 9)))
    assert [step.id for step in sequence.steps] == [5, 8, 9]


def test_entries_as_many_as_the_tokens_are_each_at_their_own() -> None:
    whole = choice(entry("a", 5), entry("é"), entry("b"), total=3, tokens=(7, 8, 9))
    sequence = placed(whole)
    assert (sequence.steps, sequence.sure, sequence.is_whole) == (whole.steps, (True, True, True), True)


@pytest.mark.parametrize("total", [None, 1])
def test_without_a_count_entries_are_sure_up_to_the_first_gap(total: int | None) -> None:
    sequence = placed(choice(entry("a"), entry("b"), entry("é"), entry("c"), total=total))
    assert sequence.sure == (True, True, False, False)
    assert not sequence.is_whole
    assert placed(choice(entry("a"), total=total if total is None else 0)).sure == (True,)


def test_a_server_that_gives_each_token_an_entry_leaves_none_out_before_one() -> None:
    given = replace(choice(entry("a"), entry("é"), entry("b"), total=None), has_all=True)
    assert placed(given).sure == (True, True, True)
    ended = placed(replace(given, total=4, finish_reason="stop"))
    assert (ended.sure[:3], [step.text for step in ended.steps[:3]]) == ((True, True, True), ["a", "é", "b"])


def test_a_server_that_lists_parts_of_characters_leaves_none_out() -> None:
    part = ApiStep(id=None, text="\ufffd", bytes=(0xC3,), logprob=-1.0, top=())
    sequence = placed(choice(part, entry("é"), total=None))
    assert sequence.sure == (True, True)


@pytest.mark.parametrize(("finish", "is_missing"), [("stop", False), ("length", True)])
def test_the_token_that_ended_the_text_is_not_missing(finish: str, is_missing: bool) -> None:
    sequence = placed(choice(entry("a"), total=2, finish=finish))
    assert sequence.steps[-1].is_missing == is_missing
    assert sequence.sure == (True, True)
    assert not placed(choice(entry("a"), total=1, finish="stop")).steps[-1].is_missing


def test_what_follows_an_unsure_entry_is_unsure_and_what_stands_before_it_is_not() -> None:
    """A token may be missing before `é`."""
    sequence = placed(choice(entry("a"), entry("é"), total=4))
    assert sequence.sure == (True, False, False, False)
    assert [step.text for step in sequence.steps] == ["a", "é", "", ""]
    assert placed(choice(entry("a"), entry("b"), entry("é"), entry("c"), total=6)).sure == (True, True, *[False] * 4)


def test_entries_that_take_too_long_to_place_are_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = choice(entry("a"), entry("b"), total=4)
    monkeypatch.setattr("espalier.trace.foreign.placing.MOST_WORK", 2 * 2)
    assert placed(reply).sure[:2] == (True, True)
    monkeypatch.setattr("espalier.trace.foreign.placing.MOST_WORK", 2 * 2 - 1)
    assert placed(reply).sure[:2] == (False, False)
