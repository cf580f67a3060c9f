"""Parts of a record by themselves: which candidates it lists, what is allowed, and which steps later ones confirm."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from espalier.constraints.spec import Gbnf
from espalier.grammar.parser import parse
from espalier.tokens.vocab import Vocab
from espalier.upstream.xray.distribution import ReportedTokens
from espalier.upstream.xray.follow import _spell_tokens
from espalier.upstream.xray.grammar.matcher import States
from espalier.upstream.xray.grammar.pieces import WHOLE, PartialCharacter, Pieces
from espalier.upstream.xray.grammar.program import Chars, compile_program
from espalier.upstream.xray.record import (
    LISTED,
    _Allows,
    _drawn_candidates,
    _list_tokens,
    _masses,
    _record,
    asked_constraint,
)
from espalier.upstream.xray.replay import ReplayStep, SamplerReplay, StepVerdict
from tests.unit.upstream.xray.test_reply_parts import asked

TOKENS = [*"abcxyz", "ab", "bc", "é", "東"]
PIECES = Pieces([token.encode() for token in TOKENS] + [b"\xc3", b"\xa9", b""], frozenset([12]))


def states(grammar: str) -> States:
    return States(compile_program(parse(grammar), special={}), PIECES)


def reported(*, chosen: int | None = None, chosen_logprob: float | None = None) -> Any:
    """20 tokens, 100 to 119, the best first."""
    logprobs = np.linspace(-0.5, -9.0, 20, dtype=np.float32)
    return SimpleNamespace(ids=np.arange(100, 120), logprobs=logprobs, chosen=chosen, chosen_logprob=chosen_logprob)


def test_a_step_lists_ten_tokens_and_those_that_it_is_about() -> None:
    best = [*range(100, 100 + LISTED)]
    assert [token for token, _ in _list_tokens(reported(), [])] == best
    assert [token for token, _ in _list_tokens(reported(), [103, 115, 115])] == [*best, 115]
    listed = _list_tokens(reported(chosen=7, chosen_logprob=0.25), [7, 8])
    assert [token for token, _ in listed] == [*best, 7]
    assert listed[-1] == (7, 0.0), "no probability is above 1"
    assert [token for token, _ in _list_tokens(reported(chosen=7), [7])] == best


def test_what_was_drawn_from_is_listed_without_what_had_no_chance() -> None:
    names: Any = SimpleNamespace(candidate=lambda token, prob, logit: (token, prob, logit))
    probs = np.array([0.0, 0.25, 0.75, 0.0])
    draw: Any = SimpleNamespace(ids=np.arange(50, 54), probs=probs, logits=np.arange(4, dtype=np.float32))
    assert _drawn_candidates(draw, names, 52) == ((52, 0.75, 2.0), (51, 0.25, 1.0))
    assert [row[0] for row in _drawn_candidates(draw, names, 53)] == [52, 51, 53], "the token itself is always listed"
    many: Any = SimpleNamespace(ids=np.arange(30), probs=np.full(30, 1 / 30), logits=np.zeros(30, dtype=np.float32))
    assert [row[0] for row in _drawn_candidates(many, names, 29)] == [*range(LISTED), 29]


def test_everything_is_allowed_where_nothing_constrains() -> None:
    grammar = states('root ::= "ab" "c"*')
    begin: Any = SimpleNamespace(state=grammar.start, begun=WHOLE)
    nowhere: Any = SimpleNamespace(state=None, begun=WHOLE)
    assert [_Allows(begin, grammar)(token) for token in (0, 1, 6)] == [True, False, True]
    assert _Allows(nowhere, grammar)(1)
    assert _Allows(begin, None)(1)


@pytest.mark.parametrize("grammar", ['root ::= "ab" "c"*', "root ::= [^a]+", 'root ::= "é" | "x"?'])
def test_one_token_some_tokens_and_the_mask_agree_and_a_mask_is_built_once(grammar: str) -> None:
    here = states(grammar)
    state = here.start
    mask = here.mask(state, WHOLE)
    assert here.mask(state, WHOLE) is mask
    fresh = states(grammar)
    some = np.array([3, 0, 12, 8, 10, 6, 3])
    assert fresh.allowed(fresh.start, some, WHOLE).tolist() == mask[some].tolist()
    other = states(grammar)
    assert [other.allows(other.start, int(token), WHOLE) for token in some] == mask[some].tolist()


def step(grammar: States | None, *listed: tuple[int, float], token: int = 0, **more: Any) -> ReplayStep:
    """A step at the beginning of a text. listed: tokens with their probabilities, of all tokens."""
    ids, probs = zip(*listed, strict=True)
    reported = ReportedTokens(
        ids=np.array(ids), logprobs=np.log(np.array(probs, dtype=np.float32)), width=len(PIECES.pieces)
    )
    state = None if grammar is None else grammar.start
    return ReplayStep(token, state, WHOLE, replace(reported, **more), StepVerdict("accepted"))


def test_the_removed_mass_lies_between_what_the_unlisted_tokens_have_and_what_they_may_have() -> None:
    """Of 13 tokens `a` and `ab` are allowed. No unlisted one has more than the last listed one."""
    grammar = states('root ::= "ab" "c"*')
    both = _masses(step(grammar, (0, 0.5), (1, 0.3), (6, 0.15)), grammar)
    assert (both.least, both.most) == (pytest.approx(0.35, abs=1e-4), pytest.approx(0.35, abs=1e-4))
    assert both.allowed == 2
    assert both.tax == pytest.approx(-math.log1p(-0.35), abs=1e-4)
    one = _masses(step(grammar, (0, 0.5), (1, 0.3)), grammar)
    assert one.least == pytest.approx(0.3, abs=1e-4), "`ab` may have the rest"
    assert one.most == pytest.approx(0.5, abs=1e-4), "or nothing"
    small = _masses(step(grammar, (0, 0.5), (1, 0.04)), grammar)
    assert small.least == pytest.approx(0.04 + 0.42, abs=1e-4), "`ab` has 0.04 at most"


def test_a_token_that_was_taken_was_not_removed_where_it_is_not_among_the_listed_ones() -> None:
    grammar = states('root ::= "ab" "c"*')
    taken = step(grammar, (1, 0.6), (2, 0.3), token=0, chosen=0, chosen_logprob=math.log(0.05))
    assert _masses(taken, grammar).most == pytest.approx(0.95, abs=1e-4), "all but itself may have been"


def test_how_exact_a_step_is_says_what_was_known_of_it() -> None:
    grammar = states('root ::= "ab" "c"*')
    vocab = Vocab.from_tokens(list(PIECES.pieces), eos_ids=[12])
    every = [(token, 1 / 13) for token in range(13)]

    def told(made: ReplayStep, of: States | None = grammar, **more: Any) -> tuple[str, str, Any]:
        record = _record(0, replace(made, **more), of, vocab)
        return record.exactness, record.note, record.bounds

    unknown = {"verdict": StepVerdict("unknown"), "reason": "why"}
    whole, some = step(grammar, *every), step(grammar, (0, 0.5), (1, 0.3))
    assert told(whole) == ("exact", "", None)
    assert told(some)[:2] == ("bounded", "the server listed the best tokens only")
    assert told(some, reported=None) == ("bounded", "the server listed the best tokens only", (0.0, 1.0))
    assert told(some, **unknown)[:2] == ("bounded", "why")
    assert told(whole, **unknown, reported=None) == ("untraceable", "why", (0.0, 1.0))
    free = step(None, *every)
    assert told(free, None) == ("exact", "", None), "nothing constrains it"
    assert told(free, None, **unknown) == ("untraceable", "why", (0.0, 1.0))
    assert told(free, None, reported=None) == ("bounded", "the server listed the best tokens only", (0.0, 0.0))
    assert _record(0, free, None, vocab).allowed_count == 0
    assert _record(0, free, None, vocab).entropy_before == pytest.approx(math.log(13))


@pytest.mark.parametrize(
    ("body", "constraint"),
    [
        ({"grammar": 'root ::= "a"'}, Gbnf('root ::= "a"').to_json()),
        ({"grammar": "no grammar"}, {"kind": "gbnf", "grammar": "no grammar"}),
        ({"json_schema": {"type": "object"}}, {"kind": "json_schema", "schema": {"type": "object"}}),
        ({"tools": [{}]}, {"kind": "tool_calls"}),
        ({"response_format": {"type": "json_object"}}, {"kind": "json_object"}),
    ],
)
def test_a_trace_states_what_the_request_asked_for(body: dict[str, Any], constraint: dict[str, Any]) -> None:
    assert asked_constraint(asked(**body)) == constraint


def test_what_is_left_after_the_grammar_has_shares_of_what_it_allows() -> None:
    grammar = states('root ::= "ab" "c"*')
    vocab = Vocab.from_tokens(list(PIECES.pieces), eos_ids=[12])
    record = _record(0, step(grammar, (0, 0.5), (1, 0.3), (6, 0.15)), grammar, vocab)
    after = {one.id: one.prob for one in record.post_grammar}
    assert after == {0: pytest.approx(0.5 / 0.65, abs=1e-3), 6: pytest.approx(0.15 / 0.65, abs=1e-3)}
    assert [one.id for one in record.pre_masking] == [0, 1, 6]
    assert [one.prob for one in record.pre_masking] == pytest.approx([0.5, 0.3, 0.15])
    assert record.was_changed is False
    again = _record(0, step(grammar, (0, 0.5), (1, 0.3), (6, 0.15), is_again=True), grammar, vocab)
    assert again.bounds == (pytest.approx(0.345, abs=1e-4), pytest.approx(0.355, abs=1e-4))
    assert again.note == "the server was asked again"


def test_the_first_token_of_a_vocabulary_is_spelled_and_ids_that_are_none_are_not() -> None:
    known: Any = SimpleNamespace(vocab=Vocab.from_tokens([b"zero", b"one", b""], eos_ids=[2]))
    assert _spell_tokens([0, 1, 3, -1], known) == [b"zero", b"one", b"", b""]


def test_the_search_for_what_a_grammar_allows_can_be_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> None:
        raise TimeoutError

    monkeypatch.setattr("espalier.upstream.xray.grammar.matcher.check", stop)
    with pytest.raises(TimeoutError):
        states('root ::= "ab" "c"*').start  # noqa: B018
    monkeypatch.undo()
    for begun in (WHOLE, PartialCharacter(3, 1)):
        here = states('root ::= "ab" "c"*')
        state = here.start
        monkeypatch.setattr("espalier.upstream.xray.grammar.matcher.check", stop)
        with pytest.raises(TimeoutError):
            here.mask(state, begun)
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("grammar", "shown"),
    [
        (r"root ::= [!-~]", "[!-~]"),
        (r"root ::= [ -\x7F]", r"[\u0020-\u007F]"),
        (r"root ::= [^a]", "[^a]"),
        (r"root ::= .", "any character"),
        (r'root ::= "a"', "'a'"),
    ],
)
def test_what_is_expected_is_shown_by_characters_that_can_be_seen(grammar: str, shown: str) -> None:
    here = states(grammar)
    assert here._describe_expected(here.start) == shown


def test_any_character_may_begin_with_any_part_of_one() -> None:
    anything, some = Chars(None), Chars(((0x80, 0xFF),))
    assert anything.matches_part(3, 1)
    assert some.matches_part(0x80, 0), "nothing of it is missing"
    assert not some.matches_part(0x7F, 0)
    assert some.matches_part(3, 1)
    assert not some.matches_part(7, 1)
    assert Chars(((0x80, 0xFF),), True).matches_part(7, 1)
    assert not Chars(((0x7FF, 0x7FF),)).matches_part(0, 2), "two bytes spell it"
    assert Chars(((0x800, 0x800),)).matches_part(0, 2)
    assert not Chars(((0xFFFF, 0xFFFF),)).matches_part(0, 3), "three bytes spell it"
    assert Chars(((0x10000, 0x10000),)).matches_part(0, 3)
    for nothing in (anything, some):
        assert not nothing.matches_part(1, 1), "no character is spelled so"
        assert not nothing.matches_part(3, -1)


def test_steps_up_to_the_last_checked_draw_are_confirmed() -> None:
    def path(*checked: bool) -> Any:
        before: Any = SimpleNamespace(verdict=None, before=None)
        for is_checked in checked:
            before = SimpleNamespace(verdict=SimpleNamespace(is_checked=is_checked), before=before)
        return before

    for checked, confirmed in (
        ((True, True, True), 3),
        ((True, True, False), 2),
        ((True, False, False), 1),
        ((False, True, False, False), 2),
        ((False, False), 0),
    ):
        replay: Any = SimpleNamespace(_last=[path(*checked)])
        assert SamplerReplay._confirmed(replay, len(checked)) == confirmed
    both: Any = SimpleNamespace(_last=[path(True, True), path(True, False)])
    assert SamplerReplay._confirmed(both, 2) == 1, "in every possibility"


@pytest.mark.parametrize(("among", "token"), [(None, None), ({5}, 5), ({5, 6}, None), ({7}, None)])
def test_a_token_is_predicted_where_only_one_is_possible(among: set[int] | None, token: int | None) -> None:
    def ahead(_reported: Any, _token: Any) -> list[Any]:
        taken = [SimpleNamespace(taken=SimpleNamespace(token=one)) for one in (5, 6)]
        return [SimpleNamespace(verdict=verdict) for verdict in (None, SimpleNamespace(taken=None), *taken)]

    replay: Any = SimpleNamespace(is_lost=False, _ahead=ahead)
    assert SamplerReplay.predict(replay, reported(), None if among is None else frozenset(among)) == token
    replay.is_lost = True
    assert SamplerReplay.predict(replay, reported(), frozenset([5])) is None
