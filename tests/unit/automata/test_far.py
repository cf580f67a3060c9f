"""Automata from worker processes are those that are built here, and their errors are the same."""

from __future__ import annotations

import random

import numpy as np
import pytest

from espalier.automata.languages import far
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.far import MOST_NEAR, AutomatonSource, FarAutomata, Want, _pack_automaton, _read
from espalier.automata.languages.network import Network, states_about
from espalier.confined import builds
from espalier.confined.pool import is_supported
from espalier.errors import EspalierError, GrammarError, RegexError, UnsupportedError
from espalier.time_limit import OutOfTime, time_limit

pytestmark = pytest.mark.skipif(not is_supported(), reason="no worker processes on this system")
SOURCES = (
    AutomatonSource(form="regex", text=r"(?:[a-z]{1,4}\d)*é|\p{Lu}+"),
    AutomatonSource(form="regex", text="(a|b)*a(a|b){5}"),
    AutomatonSource(form="words", words=("one", "", "two", "twelve")),
    AutomatonSource(form="gbnf", text='root ::= "(" root ")" | <[5]> | !<think> | [0-9]+'),
    AutomatonSource(form="gbnf", text='top ::= "a" b | "c"\nb ::= "b"+', root="top"),
)
WRONG = (
    AutomatonSource(form="regex", text="a{2,1}"),
    AutomatonSource(form="regex", text=r"(a)\1"),
    AutomatonSource(form="regex", text="[^\\s\\S]"),
    AutomatonSource(form="gbnf", text="root ::= nowhere"),
)


@pytest.fixture(scope="module")
def automata() -> FarAutomata:
    return FarAutomata()


def same(one: Dfa | Network, other: Dfa | Network) -> bool:
    if isinstance(one, Dfa):
        assert isinstance(other, Dfa)
        return (one.start, one.table.tolist(), one.classes.tolist(), one.accepting.tolist()) == (
            other.start,
            other.table.tolist(),
            other.classes.tolist(),
            other.accepting.tolist(),
        )
    assert isinstance(other, Network)
    plain = ("moves", "calls", "tokens", "final", "pure", "least", "rule", "leaf", "refs", "start")
    return all(getattr(one, name) == getattr(other, name) for name in plain) and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in ("which", "classes")
    )


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES, ids=lambda one: one.text[:12] or one.form)
def test_an_automaton_of_a_process_is_the_one_that_is_built_here(
    source: AutomatonSource, automata: FarAutomata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "NEAR_SECONDS", 0.0)
    wants: tuple[Want, ...] = ("machine", "language", "plain")
    for want in wants:
        with time_limit(30):
            assert same(automata.build(source, want), source.automaton(want))


@pytest.mark.parametrize("source", WRONG, ids=lambda one: one.text)
def test_an_error_of_a_process_is_the_one_that_is_raised_here(
    source: AutomatonSource, automata: FarAutomata, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((RegexError, GrammarError, UnsupportedError)) as here:
        source.automaton("machine")
    monkeypatch.setattr(builds, "NEAR_SECONDS", 0.0)
    with time_limit(30), pytest.raises(EspalierError) as there:
        automata.build(source)
    assert type(there.value) is type(here.value)
    assert (str(there.value), vars(there.value)) == (str(here.value), vars(here.value))


def test_who_has_no_time_left_is_told_the_limit_that_was_set_and_not_what_was_left(automata: FarAutomata) -> None:
    clock = iter([0.0, *[10.0] * 3])
    with time_limit(7, clock=lambda: next(clock, 11.0)), pytest.raises(OutOfTime, match="takes longer than 7 s"):
        automata.build(SOURCES[0])


def test_a_build_over_the_callers_limit_ends_in_the_process(
    automata: FarAutomata, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "NEAR_SECONDS", 0.0)
    with time_limit(0.4), pytest.raises(OutOfTime):
        automata.build(AutomatonSource(form="regex", text="((a{1,30}){1,30}){1,30}"))
    with time_limit(30):
        assert isinstance(automata.build(AutomatonSource(form="regex", text="a")), Dfa)


def test_without_a_limit_nothing_is_sent_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds.Builds, "_start_processes", lambda self: pytest.fail("a process was started"))
    assert isinstance(FarAutomata().build(AutomatonSource(form="regex", text="a{1,200}")), Dfa)


def test_quick_builds_stay_in_the_callers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds.Builds, "_start_processes", lambda self: pytest.fail("a process was started"))
    with time_limit(10):
        assert isinstance(FarAutomata().build(AutomatonSource(form="regex", text="[ab]{1,5}")), Dfa)


@pytest.mark.parametrize(
    "large",
    [
        AutomatonSource(form="regex", text="(?:[a-z]{1,40}[0-9]{1,40}){1,900}"),
        AutomatonSource(form="regex", text="a{0,333000}b"),
        AutomatonSource(form="gbnf", text='root ::= ("a" [b-z]?){1,100000}'),
    ],
    ids=lambda one: one.text,
)
def test_what_cannot_be_built_quickly_is_not_begun_in_the_callers_thread(
    large: AutomatonSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty clients who sent such a pattern and left took the interpreter from all streams for half a second, and what
    was built for nothing kept 45 MB from the system."""
    known = _pack_automaton(AutomatonSource(form="regex", text="a").automaton("machine"))
    monkeypatch.setattr(builds.Builds, "_far", lambda self, run, given: known)
    monkeypatch.setattr(far, "build_network", lambda *_, **__: pytest.fail("it was begun"))
    with time_limit(30):
        assert isinstance(FarAutomata().build(large), Dfa)


def test_states_are_counted_before_any_is_made() -> None:
    counts = [states_about(AutomatonSource(form="regex", text=f"[a-z]{{{n}}}").grammar()) for n in (10, 1000, 900_000)]
    assert counts[0] < 50 < counts[1] < MOST_NEAR < counts[2]


def test_what_is_written_is_read_as_it_was() -> None:
    rng = random.Random(7)
    for _ in range(20):
        words = tuple("".join(rng.choice("abé") for _ in range(rng.randrange(5))) for _ in range(4))
        found = AutomatonSource(form="words", words=words).automaton("machine")
        assert same(_read(_pack_automaton(found)), found)
