"""What the x-ray remembers of a server."""

from __future__ import annotations

import pytest

from espalier.errors import LimitExceeded
from espalier.tokens.vocab import Vocab
from espalier.upstream.xray import known
from espalier.upstream.xray.grammar import matcher
from espalier.upstream.xray.known import KEPT, ServerTokens


def test_a_grammar_in_steady_use_was_read_again_after_many_others(monkeypatch) -> None:
    read: list[str] = []
    compiled = known.compile_program
    monkeypatch.setattr(known, "compile_program", lambda grammar, **more: read.append("") or compiled(grammar, **more))
    here = ServerTokens(Vocab.bytes())
    for number in range(2 * KEPT):
        here.borrow('root ::= "a"')  # and not given back: another request has it still
        here.borrow(f'root ::= "{number}"')
    assert len(read) == 2 * KEPT + 1


GRAMMAR = 'root ::= ("a" | "b") [c-e]{0,3}'


@pytest.mark.parametrize(("limit", "sizes"), [("MOST_STATES", "_states"), ("MOST_STACKS", "_tops")])
def test_the_states_of_a_grammar_are_kept_for_the_next_request_unless_they_have_grown_large(
    limit: str, sizes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ServerTokens(Vocab.bytes())
    states = here.borrow(GRAMMAR)
    states.mask(states.start, matcher.WHOLE)
    size = len(getattr(states, sizes))
    here.give_back(GRAMMAR, states)
    assert here.borrow(GRAMMAR) is states
    assert here.borrow(GRAMMAR) is not states, "another request has them"
    monkeypatch.setattr(matcher, limit, 10 * size + 10)
    here.give_back(GRAMMAR, states)
    assert here.borrow(GRAMMAR) is states
    monkeypatch.setattr(matcher, limit, 10 * size)
    here.give_back(GRAMMAR, states)
    assert here.borrow(GRAMMAR) is not states


@pytest.mark.parametrize(("limit", "sizes"), [("MOST_STATES", "_states"), ("MOST_STACKS", "_tops")])
def test_a_grammar_with_more_states_than_are_followed_is_an_error(
    limit: str, sizes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = ServerTokens(Vocab.bytes()).borrow(GRAMMAR)
    free.mask(free.start, matcher.WHOLE)
    monkeypatch.setattr(matcher, limit, len(getattr(free, sizes)))
    states = ServerTokens(Vocab.bytes()).borrow(GRAMMAR)
    assert (states.mask(states.start, matcher.WHOLE) == free.mask(free.start, matcher.WHOLE)).all()
    monkeypatch.setattr(matcher, limit, len(getattr(free, sizes)) - 1)
    states = ServerTokens(Vocab.bytes()).borrow(GRAMMAR)
    with pytest.raises(LimitExceeded, match="than are followed"):
        states.mask(states.start, matcher.WHOLE)


def test_the_states_that_were_given_back_last_are_kept() -> None:
    here = ServerTokens(Vocab.bytes())
    lent = {f'root ::= "{number}"': here.borrow(f'root ::= "{number}"') for number in range(KEPT + 1)}
    for grammar, states in lent.items():
        here.give_back(grammar, states)
    assert [here.borrow(grammar) is states for grammar, states in lent.items()] == [False] + [True] * KEPT
