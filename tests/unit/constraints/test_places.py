"""What it costs to read places of a text late: each token is walked once, whatever forks and rollbacks there were."""

from __future__ import annotations

import threading

import pytest

from espalier.automata.masks.machine import State
from espalier.automata.reasons.explain import PlainExplainer
from espalier.constraints.matching.automaton import CompiledAutomaton, compile_grammar
from espalier.constraints.spec import Gbnf
from espalier.errors import LimitExceeded
from espalier.grammar.parser import parse
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab

LENGTH = 1500  # more than Python may recurse
SOURCE = f'root ::= "a"{{0,{LENGTH + 1}}}'  # its states count the tokens


class Walked:
    """The machine of an explainer, which counts its advances. left: how many there may still be."""

    def __init__(self, found: CompiledAutomaton) -> None:
        self._machine = found.machine
        self.start = found.machine.start
        self.count = 0
        self.left = 10**9

    def advance(self, state: State, token: int) -> State | None:
        if not self.left:
            raise LimitExceeded("no time is left")
        self.left -= 1
        self.count += 1
        return self._machine.advance(state, token)


def counted() -> tuple[CompiledAutomaton, Walked]:
    vocab = Vocab.bytes()
    found = compile_grammar(parse(SOURCE), Gbnf(SOURCE), vocab, build_trie(vocab.tokens))
    walked = Walked(found)
    found.explain_with(lambda _: PlainExplainer(walked))
    return found, walked


def go_on(matcher, how, *, drafts=1):
    """Fork, or take tokens back that another text might have had; the matcher that goes on."""
    if how == "fork":
        return matcher.fork()
    for _ in range(drafts):
        matcher.advance(ord("a"))
    matcher.place()
    matcher.rollback(drafts)
    return matcher


def places_of(found, how, every, length=LENGTH):
    """The places of a text and the states that they should find."""
    matcher = found.matcher()
    places, states = [matcher.place()], [matcher.state]
    for i in range(1, length + 1):
        matcher.advance(ord("a"))
        places.append(matcher.place())
        states.append(matcher.state)
        if i % every == 0:
            matcher = go_on(matcher, how)
    return places, states


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("how", ["fork", "rollback"])
def test_places_read_late_walk_each_token_once(how, every, order):
    found, walked = counted()
    places, states = places_of(found, how, every)
    assert [place.state() for place in places[::order]] == states[::order]
    assert walked.count == LENGTH


def test_forks_of_one_place_share_what_lies_before_them():
    found, walked = counted()
    matcher = found.matcher()
    for _ in range(100):
        matcher.advance(ord("a"))
    matcher.place()
    forks = [matcher.fork() for _ in range(50)]
    for fork in forks:
        fork.advance(ord("a"))
        assert fork.place().state() == fork.state
    assert walked.count == 150


def test_a_rollback_past_earlier_forks_and_rollbacks_finds_its_place():
    found, _ = counted()
    matcher = found.matcher()
    places, states = [], []
    for count in (0, 1, 3, 7, 2, 12, 5, 30, 1):
        matcher.rollback(min(count, len(matcher._history)))
        for i in range(6):
            places.append(matcher.place())
            states.append(matcher.state)
            matcher.advance(ord("a"))
            if i % 4 == 2:
                matcher = matcher.fork()
    assert [place.state() for place in places] == states


def test_drafts_taken_back_at_one_place_are_not_kept():
    found, _ = counted()
    matcher = found.matcher()
    matcher.advance(ord("a"))
    matcher.place()
    for _ in range(20):
        matcher = go_on(matcher, "rollback", drafts=3)
        matcher = go_on(matcher, "fork")
    depth, trail = 0, matcher.place().trail
    while trail.before is not None:
        depth, trail = depth + 1, trail.before.trail
    assert depth == 1


@pytest.mark.parametrize("how", ["fork", "rollback"])
def test_a_walk_that_a_limit_cuts_off_goes_on_at_the_next_try(how):
    found, walked = counted()
    places, states = places_of(found, how, 10, length=100)
    tries = 0
    state = None
    while state is None and tries < 100:
        walked.left, tries = 7, tries + 1
        try:
            state = places[-1].state()
        except LimitExceeded:
            continue
    assert state == states[-1]
    assert tries == 15
    assert walked.count == 100


def test_threads_that_walk_one_text_find_the_same():
    found, _ = counted()
    places, states = places_of(found, "fork", 10)
    failures: list[int] = []

    def work(first: int) -> None:
        failures.extend(i for i in range(first, len(places), 3) if places[i].state() != states[i])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
