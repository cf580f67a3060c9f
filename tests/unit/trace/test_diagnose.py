"""Each rule of the diagnosis with a trace that it must speak of, and one that it must not."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.automata.reasons.blame import Blame
from espalier.trace.records import Candidate, Rewind, StepRecord, Trace
from espalier.trace.report.diagnose import (
    DIGITS,
    HIGH_TAX,
    LIKELY,
    MAX_PERIOD,
    MISALIGNED,
    REPEATED_BYTES,
    REPEATS,
    SPACE_TOKENS,
    diagnose,
)
from tests.examples import examples
from tests.traces import sample_trace

EOS = 2
SCHEMA = {"kind": "json_schema", "schema": {"type": "object"}, "whitespace": "flexible"}


def candidate(text: str, prob: float, *, allowed: bool = True, special: bool = False) -> Candidate:
    id_ = EOS if special else 100 + sum(text.encode())
    return Candidate(id=id_, text=text, bytes=b"" if special else text.encode(), prob=prob, allowed=allowed)


def step(
    text: str,
    *,
    wish: tuple[str, float] | None = None,
    tax: float = 0.0,
    special: bool = False,
    wish_is_special: bool = False,
) -> StepRecord:
    """A token that was taken. wish: a favourite that was not allowed."""
    taken = candidate(text, 0.5, special=special)
    first = () if wish is None else (candidate(*wish, allowed=False, special=wish_is_special),)
    return StepRecord(
        step=0,
        token_id=taken.id,
        text=text,
        bytes=taken.bytes,
        logprob=-tax,
        pre_masking=(*first, taken),
        post_grammar=(taken,),
        post_chain=(taken,),
        resampled=taken,
        allowed_count=1,
        removed_mass=-math.expm1(-tax),
        tax_nats=tax,
        z_sampled=1.0,
        entropy_before=0.0,
        entropy_after=0.0,
        is_special=special,
    )


def trace(steps: Sequence[StepRecord], *, finish: str = "stop", **more: Any) -> Trace:
    numbered = tuple(
        StepRecord(**{name: getattr(one, name) for name in FIELDS} | {"step": place}) for place, one in enumerate(steps)
    )
    text = b"".join(one.bytes for one in steps).decode("utf-8", "replace")
    return Trace(steps=numbered, text=text, finish_reason=finish, **{"constraint": SCHEMA} | more)


FIELDS = (
    "token_id",
    "text",
    "bytes",
    "logprob",
    "pre_masking",
    "post_grammar",
    "post_chain",
    "resampled",
    "allowed_count",
    "removed_mass",
    "tax_nats",
    "z_sampled",
    "entropy_before",
    "entropy_after",
    "is_special",
)
END = step("<eos>", special=True)
WORDS = ("one", " two", " three", " four", " five", " six", " seven", " eight")


def codes(found: Trace) -> list[str]:
    return [one.code for one in diagnose(found)]


CASES: dict[str, tuple[list[StepRecord], list[StepRecord]]] = {
    "whitespace_loop": (
        [step("{"), *[step("\n ")] * SPACE_TOKENS, step("}"), END],
        [step("{"), *[step("\n ")] * (SPACE_TOKENS - 1), step("}"), END],
    ),
    "digit_loop": (
        [step("1"), *[step(str(n % 10)) for n in range(DIGITS - 1)], END],
        [step("1"), *[step(str(n % 10)) for n in range(DIGITS - 2)], END],
    ),
    "phrase_loop": (
        [step("so"), *[step(" it is"), step(" what")] * REPEATS, END],
        [step("so"), *[step(" it is"), step(" what")] * (REPEATS - 1), END],
    ),
    "eos_forbidden": (
        [step("a", wish=("<eos>", LIKELY), wish_is_special=True), END],
        [step("a", wish=("<eos>", LIKELY - 0.01), wish_is_special=True), END],
    ),
    "eos_forced": (
        [step("a"), step("<eos>", special=True, tax=4.0)],
        [step("a"), step("<eos>", special=True, tax=1.0)],
    ),
    "misaligned": (
        [step('"', wish=('":', 0.6))] * MISALIGNED + [END],
        [step('"', wish=('":', 0.6))] * (MISALIGNED - 1) + [END],
    ),
    "fights_the_prompt": (
        [step(one, tax=HIGH_TAX) for one in WORDS[:4]] + [END],
        [step(one, tax=HIGH_TAX) for one in WORDS[:3]] + [END],
    ),
    "reasoning_suppressed": ([step("{", wish=("<think>", 0.9)), END], [step("{", wish=("<b>", 0.9)), END]),
}


@pytest.mark.parametrize("code", CASES)
def test_a_rule_speaks_at_its_threshold_and_not_below(code):
    positive, negative = CASES[code]
    assert code in codes(trace(positive))
    assert code not in codes(trace(negative))


def test_a_text_with_nothing_wrong_has_no_finding():
    assert codes(trace([step(one) for one in WORDS] + [END])) == []


def test_a_text_that_was_cut_off_is_a_fault_and_one_that_was_closed_in_time_is_noted():
    steps = [step(one) for one in WORDS]
    assert codes(trace(steps, finish="length")) == ["cut_off"]
    assert codes(trace(steps, finish="length", closed_by_budget=True)) == ["closed_by_budget"]
    assert codes(trace(steps, finish="length", constraint=None)) == []


def test_rewinds_are_counted_and_whose_they_are_is_said():
    back = Rewind(step=1, tokens=(5, 6), text="bad", blame=Blame(member="ban", reason="no"))
    (found,) = diagnose(trace([step("a"), END], rewinds=(back, back)))
    assert (found.code, found.evidence) == ("rewinds", {"rewinds": 2, "tokens": 4})
    assert "by ban" in found.message


def test_wishes_that_were_not_recorded_are_said_to_be_missing():
    bare = StepRecord(**{name: getattr(END, name) for name in FIELDS} | {"step": 0, "pre_masking": ()})
    assert [one.code for one in diagnose(Trace(steps=(bare,), text="", finish_reason="stop"))] == ["not_recorded"]


def test_a_number_and_a_blank_line_that_repeat_are_named_once_by_their_own_rule():
    assert codes(trace([step("7")] * 40 + [END])) == ["digit_loop"]
    assert codes(trace([step("\n")] * 60 + [END])) == ["whitespace_loop"]


def test_a_phrase_is_named_by_its_shortest_period():
    (found,) = diagnose(trace([step(" blue sky")] * 12 + [END]))
    assert (found.evidence["phrase"], found.evidence["repeats"]) == (" blue sky", 12)


def test_keys_and_values_of_a_document_are_judged_apart():
    document = ['{"', "na", "me", '": ', '"', "A", "d", "a", '"', "}"]
    dear = {1, 2, 3, 0}
    found = diagnose(trace([step(one, tax=2.0 if i in dear else 0.0) for i, one in enumerate(document)] + [END]))
    assert [one.evidence["part"] for one in found if one.code == "fights_the_prompt"] == ["the keys"]


def test_remedies_that_are_not_for_this_constraint_or_are_in_force_are_left_out():
    steps = CASES["fights_the_prompt"][0]
    assert [one.action for one in diagnose(trace(steps))[0].remedies] == [
        "schema_in_prompt",
        "property_order",
        "another_strategy",
    ]
    (found,) = diagnose(trace(steps, constraint={"kind": "regex", "pattern": "x"}, strategy="smc"))
    assert found.remedies == ()
    spaces = CASES["whitespace_loop"][0]
    (compact,) = diagnose(trace(spaces, constraint=SCHEMA | {"whitespace": "compact"}))
    assert [one.action for one in compact.remedies] == ["schema_in_prompt"]


def test_findings_are_plain_json_and_faults_come_first():
    steps = [step("{", wish=("<think>", 0.9)), *[step(" ")] * 60]
    found = diagnose(trace(steps, finish="length"))
    assert [one.severity for one in found] == ["fault", "fault", "cost"]
    assert all({"code", "severity", "message", "steps", "evidence", "remedies"} == set(one.to_json()) for one in found)
    assert found[0].to_json()["remedies"][0]["change"] == {"whitespace": "compact"}


def test_a_made_up_trace_of_2000_steps_is_diagnosed():
    assert codes(sample_trace(2000)) == ["phrase_loop", "blocked_at_once", "misaligned"]
    assert "fights_the_prompt" not in codes(sample_trace(40))


def longest_run(ids: Sequence[int], at: int) -> tuple[int, int]:
    """The plain search for the run that covers most: how often a phrase comes from here, and its period."""

    def repeats(period: int) -> int:
        count = 1
        while ids[at + count * period : at + (count + 1) * period] == ids[at : at + period] and ids[at + period :]:
            count += 1
        return count

    runs = [(repeats(period), period) for period in range(1, MAX_PERIOD + 1)]
    return max((run for run in runs if run[0] >= REPEATS), key=lambda run: (run[0] * run[1], -run[1]), default=(1, 1))


@settings(max_examples=examples(200))
@given(st.lists(st.sampled_from(["word one ", "word two ", "and on "]), max_size=60))
def test_loops_are_those_of_the_plain_search(words: list[str]) -> None:
    steps = [step(word) for word in words]
    ids, at, wanted = [one.token_id for one in steps], 0, []
    while at < len(ids):
        count, period = longest_run(ids, at)
        if count >= REPEATS and sum(len(word) for word in words[at : at + count * period]) >= REPEATED_BYTES:
            wanted.append((count, count * period))
        at += count * period
    loops = [one.evidence for one in diagnose(trace(steps)) if one.code == "phrase_loop"]
    assert [(loop["repeats"], loop["tokens"]) for loop in loops] == wanted


def test_a_top_choice_that_is_blocked_at_the_first_token_names_its_remedies():
    (found,) = diagnose(trace([step("{", wish=("Sure", 0.97), tax=3.5), step("}"), END]))
    assert (found.code, found.steps) == ("blocked_at_once", (0,))
    assert "'Sure' (97%)" in found.message
    assert [one.action for one in found.remedies] == [
        "schema_in_prompt",
        "prose_first",
        "natural_layout",
        "another_strategy",
    ]
    assert codes(trace([step("{", wish=("Sure", 0.49), tax=3.5), step("}"), END])) == []
    assert codes(trace([step("{"), step("}"), *[step(" ")] * 3, step("a", wish=("Sure", 0.97), tax=3.5), END])) == []


@pytest.mark.parametrize(("place", "code"), [("na", "rename_keys"), ("Ada", "widen")])
def test_a_tax_that_sits_in_one_place_names_the_place_and_its_remedies(place, code):
    document = ['{"', "na", "me", '": "', "Ada", '", "age": ', "3", "}"]
    schema = {"kind": "json_schema", "schema": {"properties": {"name": {"enum": ["Bob"]}}}}
    found = diagnose(
        trace([step(one, tax=2.5 if one == place else 0.1) for one in document] + [END], constraint=schema)
    )
    (one,) = [one for one in found if one.code == "one_place"]
    assert one.evidence["path"] == ("" if place == "na" else "/name")
    assert code in [remedy.action for remedy in one.remedies]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"enum": ["red", "green"]}, "add to the enum at /name ('red', 'green') what the model wants, such as 'Ada'"),
        ({"$ref": "#/$defs/colour"}, "add to the enum at /name ('red') what the model wants, such as 'Ada'"),
        ({"anyOf": [{"enum": ["red"]}, {"type": "null"}]}, "add to the enum"),
        ({"const": "red"}, "allow more than the one value of /name: an enum instead of const"),
        ({"type": "string", "pattern": "x", "maxLength": 3}, "widen pattern and maxLength of /name"),
        ({"type": "string"}, "allow null at /name where the prompt does not tell the value"),
        ({"type": ["string", "null"]}, None),
        ({}, None),
    ],
)
def test_the_remedy_for_an_expensive_value_is_one_that_its_schema_has_room_for(schema, said):
    document = ['{"', "name", '": "', "red", '"', "}"]
    steps = [
        step(one, wish=("Ada", 0.9) if one == "red" else None, tax=3.0 if one == "red" else 0.1) for one in document
    ]
    whole = {"properties": {"name": schema}, "$defs": {"colour": {"enum": ["red"]}}}
    found = diagnose(trace([*steps, END], constraint={"kind": "json_schema", "schema": whole}))
    (one,) = [one for one in found if one.code == "one_place"]
    widening = [remedy.about for remedy in one.remedies if remedy.action == "widen"]
    assert len(widening) == (said is not None)
    assert all(text.startswith(said or "") for text in widening)


WORDLIST = {"kind": "wordlist", "lang": "en", "top": 300}


@pytest.mark.parametrize("constraint", [WORDLIST, {"kind": "all_of", "members": [WORDLIST, {"kind": "ban"}]}])
def test_a_word_that_the_list_lacks_is_named_with_its_flag(constraint):
    steps = [step("the"), step(" fo"), step("od", wish=("x", 0.8), tax=2.0), step(" is", wish=('{"', 0.8)), END]
    found = [one for one in diagnose(trace(steps, constraint=constraint)) if one.code == "word_not_listed"]
    assert [one.message for one in found] == ["“fox” is not in the list"]
    assert found[0].steps == (2,)
    (remedy,) = found[0].remedies
    assert remedy.said("cli") == "allow the word: --vocab-extra fox"
    assert remedy.said("http") == 'allow the word: "extra": ["fox"] in the word list'
    actions = {remedy.action for one in diagnose(trace(steps, constraint=constraint)) for remedy in one.remedies}
    assert not actions & {"widen", "schema_in_prompt", "natural_layout", "prose_first", "let_it_think"}


def test_thinking_is_a_remedy_only_where_the_model_knows_how():
    first = step("{", wish=("Sure", 0.9), tax=2.0)
    thinks = dataclasses.replace(first, pre_masking=(*first.pre_masking, candidate("<think>", 0.01, allowed=False)))
    for steps, names in (([first], False), ([thinks], True)):
        (found,) = diagnose(trace([*steps, step("}"), END]))
        assert ("let_it_think" in [remedy.action for remedy in found.remedies]) is names


@pytest.mark.parametrize(
    ("sampling", "how"),
    [
        ({}, "--strategy smc"),
        ({"top_k": 20}, "--strategy smc, --target truncated"),
        ({"top_p": 0.9}, "--strategy smc, --target truncated"),
        ({"temperature": 0.0}, None),
    ],
)
def test_another_strategy_is_named_only_as_it_would_be_taken(sampling, how):
    (found,) = diagnose(trace([step("{", wish=("Sure", 0.9), tax=2.0), step("}"), END], sampling=sampling))
    ways = [remedy.how("cli") for remedy in found.remedies if remedy.action == "another_strategy"]
    assert ways == ([how] if how else [])
