"""The rule of what holds together, by its functions: no model, no edge."""

from __future__ import annotations

import pytest

from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.joining.rule import (
    filters_in,
    is_filter,
    over,
    split,
    together,
    unenforced,
    with_bad_words,
    without_filters,
)
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import Choice, Regex
from espalier.constraints.words.spec import Wordlist
from espalier.errors import CapabilityError

A, B, C = Regex("[a-c]+"), Regex("[b-d]+"), Choice(("b", "c"))
BAN = Ban(("x",))
SAFE = Safety("standard")
OTHER = Safety("strict")
WORDS = Wordlist(words=["bc"])


def dead_ends(spec: object) -> object:
    assert isinstance(spec, AllOf)
    return spec.dead_ends


@pytest.mark.parametrize("order", [("rewind", "refuse"), ("refuse", "rewind")])
def test_taking_text_back_counts_before_refusing_to_whoever_says_it(order: tuple[str, str]) -> None:
    one, other = (AllOf((A, B), dead_ends=ends) for ends in order)  # type: ignore[arg-type]
    assert dead_ends(together(one, other, C)) == "rewind"
    assert dead_ends(together(A, B, like=(one, other))) == "rewind"
    assert dead_ends(together(one, C, like=(other,))) == "rewind"


@pytest.mark.parametrize("ends", ["rewind", "refuse", "auto"])
def test_what_one_says_of_dead_ends_holds_for_the_whole(ends: str) -> None:
    said = AllOf((A, B), dead_ends=ends)  # type: ignore[arg-type]
    assert dead_ends(together(said, C)) == ends
    assert dead_ends(together(A, C, like=(said,))) == ends
    assert dead_ends(together(A, B)) == "auto"


def test_members_hold_in_their_order_once_and_filters_come_last_as_one() -> None:
    assert together() is None
    assert together(None, A) == A
    assert together(A, A) == A
    assert together(SAFE, A, BAN) == AllOf((A, BAN, SAFE))
    joined = together(SAFE, A, OTHER)
    assert isinstance(joined, AllOf)
    assert joined.members[0] == A
    assert len(joined.members) == 2
    assert len(filters_in(joined)) == 1
    assert together(AllOf((A, B)), C) == AllOf((A, B, C))


def test_what_is_a_filter() -> None:
    assert [is_filter(spec) for spec in (BAN, SAFE, WORDS, A, C)] == [True, True, True, False, False]
    assert is_filter(AllOf((BAN, SAFE)))
    assert not is_filter(AllOf((BAN, A)))


def test_the_form_of_a_preset_gives_way_to_a_form_of_the_request_or_to_its_tools_and_a_note_says_so() -> None:
    assert over([A, BAN], None, name="p").spec == AllOf((A, BAN))
    assert over([A, BAN], None, name="p").notes == ()
    replaced = over([A, BAN], C, name="p")
    assert replaced.spec == AllOf((C, BAN))
    assert replaced.notes == (
        "regex of the preset 'p' is replaced by the request's choice: both are the form of the answer",
    )
    by_tools = over([A, BAN], None, name="p", with_tools=True)
    assert by_tools.spec == BAN
    assert "by the request's tools" in by_tools.notes[0]
    beside = over([A], BAN, name="p")
    assert (beside.spec, beside.notes) == (AllOf((A, BAN)), ())
    assert over([BAN], C, name="p", with_tools=True).notes == (), "a filter is never replaced"
    assert dead_ends(over([AllOf((A, B), dead_ends="refuse")], BAN, name="p").spec) == "refuse"


def test_what_holds_for_the_content_and_what_for_all_that_is_written() -> None:
    assert split(None) == (None, ())
    assert split(A) == (A, ())
    assert split(BAN) == (None, (BAN,))
    assert split(AllOf((A, BAN))) == (A, (BAN,))
    assert split(AllOf((A, B, SAFE), dead_ends="refuse")) == (AllOf((A, B), dead_ends="refuse"), (SAFE,))
    assert split(AllOf((A, WORDS))) == (AllOf((A, WORDS)), ())


def test_words_of_a_request_are_a_ban() -> None:
    assert with_bad_words(A, []) == A
    assert with_bad_words(None, ["x"]) == BAN
    assert with_bad_words(A, ["x"]) == AllOf((A, BAN))


def test_filters_are_left_out_for_engines_without_logits_and_never_in_silence() -> None:
    assert without_filters(None) is None
    assert without_filters(A) == A
    assert without_filters(SAFE) is None
    assert without_filters(AllOf((A, SAFE))) == A
    assert without_filters(AllOf((A, B, SAFE), dead_ends="refuse")) == AllOf((A, B), dead_ends="refuse")
    with pytest.raises(CapabilityError, match="inside any_of cannot be judged alone"):
        without_filters(AnyOf((A, AllOf((B, SAFE)))))
    with pytest.raises(CapabilityError, match="must be held at every token"):
        without_filters(AllOf((A, Safety("standard", must_mask=True))))
    assert filters_in(None) == ()
    assert filters_in(AnyOf((A, AllOf((B, SAFE))))) == (SAFE,)


def test_a_category_for_which_nothing_is_enforced_has_a_note() -> None:
    assert unenforced(None) == ()
    assert unenforced(A) == ()
    assert len(unenforced(AllOf((A, OTHER)))) == sum(not entry["enforced"] for entry in OTHER.describe())
    assert all(note.startswith("safety: ") for note in unenforced(OTHER))
