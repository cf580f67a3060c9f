"""The rule of what holds together, by its functions: no model, no edge."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Literal, Optional

import numpy as np
import pytest

from espalier.automata.reasons.blame import Blame
from espalier.constraints.ban import Ban
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.joining.named import read_constraint, read_grammar
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
from espalier.constraints.spec import Choice, JsonSchema, Regex
from espalier.constraints.words.spec import Wordlist
from espalier.decoding.rewinding.strategy import MAX_SHOWN, RewindQuestions, _RewindingRun
from espalier.errors import CapabilityError, InputError
from espalier.tokens.vocab import Vocab

BYTES = Compiler(Vocab.bytes())
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


@pytest.mark.parametrize("value", [int, list[int], int | None, Optional[int], Literal["a", 3], dict[str, int]])  # noqa: UP045
def test_every_form_of_a_python_type_is_a_constraint(value: Any) -> None:
    assert isinstance(read_constraint(value), JsonSchema)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (["a", "b"], "choice="),
        (("a",), "choice="),
        ({"a"}, "choice="),
        (frozenset({"a"}), "choice="),
        ("a", "regex="),
        (3, "a type such as"),
        (None, "a type such as"),
    ],
)
def test_what_is_no_constraint_is_refused_with_the_option_that_takes_it(value: Any, hint: str) -> None:
    with pytest.raises(InputError) as told:
        read_constraint(value)
    assert told.value.field == "constraint"
    assert hint in str(told.value.hint)


@pytest.mark.parametrize(
    ("options", "has_space"),
    [("", True), (', "x-guidance": {}', True), (', "x-guidance": {"whitespace_flexible": false}', False)],
)
def test_a_schema_in_a_grammar_of_larks_form_has_the_white_space_it_asks_for(options: str, has_space: bool) -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]' + options + "}"
    compiled = BYTES.compile(read_grammar(f"start: a\na: %json {schema}\n"))
    assert compiled.accepts('{"a":1}')
    assert compiled.accepts('{"a": 1}') == has_space


def test_a_dead_end_after_many_rewinds_names_the_last_ones() -> None:
    rewinds = [SimpleNamespace(text=f"t{number}") for number in range(MAX_SHOWN + 2)]
    run: Any = SimpleNamespace(_rewinds=rewinds, _can_rewind=True, generated=[])
    message = str(_RewindingRun._dead_end_error(run, "no token", [], None))
    assert f"{MAX_SHOWN + 2} times" in message
    assert [number for number in range(MAX_SHOWN + 2) if f"'t{number}'" in message] == [*range(2, MAX_SHOWN + 2)]


def test_what_took_a_token_back_is_told_beside_all_that_may_be_tried() -> None:
    questions = RewindQuestions(None)  # type: ignore[arg-type]  # no members
    questions.strict, questions.undoable = np.array([0b0011], np.int32), np.array([0b0100], np.int32)
    assert questions.member_masks() == []
    questions.forbidden = {4: Blame(member="ban", reason="a phrase")}
    (_, whole), (member, mask) = questions.member_masks()
    assert whole.tolist() == [0b10111]
    assert (member, mask.tolist()) == ("ban", [~0b10000])
    assert questions.strict.tolist() == [0b0011]
    questions.undoable = None
    assert questions.member_masks()[0][1].tolist() == [0b10011]
