"""What a matcher is asked for the record of a step, and what it may cost where it is answered later."""

from __future__ import annotations

import numpy as np
import pytest

from espalier.automata.reasons.blame import Blame
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Gbnf
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.step.decide import decide
from espalier.decoding.step.record import Watch
from espalier.errors import LimitExceeded
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext
from espalier.time_limit import OutOfTime, check, granted, is_limited, left, time_limit
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from tests.unit.decoding.test_late_records import VOCAB, WIDTH, chain_of

A, B = 5, 6


class Slow:
    """A place that answers nothing before its time is up."""

    def __init__(self):
        self.asked = 0

    def rule_of(self, token):
        self.asked += 1
        while is_limited():
            check()
        raise AssertionError("nothing limits this")

    explain = rule_of


class AtPlace:
    """A matcher that stands at one place."""

    def __init__(self, place):
        self._place = place

    def place(self):
        return self._place

    def rule_of(self, token):
        raise AssertionError("the place is asked")

    def allows(self, token):
        return False

    explain = rule_of


class Asked:
    """A matcher that cannot answer later and counts what it is asked; it refuses `B`."""

    def __init__(self):
        self.explained = 0

    def allows(self, token):
        return token != B

    def explain(self, token):
        self.explained += 1
        return Blame(member="asked", reason="it is B")

    def rule_of(self, token):
        return "rule"


def test_an_answer_that_is_worked_out_later_takes_no_longer_than_a_step():
    questions = MatcherQuestions(AtPlace(Slow()))
    with time_limit(0.01):
        kept = questions.kept(None, A, B)
    assert kept.rule_of(A) is None
    assert MatcherQuestions(AtPlace(Slow())).kept(None, A, B)._seconds is None  # as long as it takes, as the step


def test_a_run_whose_explanation_ran_out_of_time_tries_no_more():
    place = Slow()
    questions = MatcherQuestions(AtPlace(place))
    with time_limit(0.01):
        kept = [questions.kept(None, A, B) for _ in range(3)]
        forked = questions.about(AtPlace(place)).kept(None, A, B)
    assert [one.why_refused(B) for one in kept] == [None] * 3
    assert [one.rule_of(A) for one in (*kept, forked)] == [None] * 4
    assert place.asked == 1


def test_a_reader_without_time_spoils_no_answer_for_the_next():
    class Late(Slow):
        def rule_of(self, token):
            while self.asked == 0 and left():
                pass
            self.asked += 1
            check()
            return "rule"

    with time_limit(100.0):
        kept = MatcherQuestions(AtPlace(Late())).kept(None, A, None)
    with time_limit(0.005), pytest.raises(OutOfTime):
        kept.rule_of(A)
    assert kept.rule_of(A) == "rule"


def test_a_place_that_cannot_be_had_leaves_the_step_alone():
    class Nowhere(AtPlace):
        def place(self):
            raise LimitExceeded("too large")

        def rule_of(self, token):
            return "rule"

    questions = MatcherQuestions(Nowhere(None))
    assert questions.place() is None
    assert questions.kept(None, A, None).rule_of(A) == "rule"


def test_a_limit_says_what_it_gave():
    assert granted() is None
    with time_limit(5.0):
        assert granted() == 5.0
        with time_limit(None, cancelled=lambda: False):
            assert granted() == 5.0
        with time_limit(0.1):
            assert granted() == 0.1
        with time_limit(50.0):  # the earlier end counts
            assert granted() == 5.0
    with time_limit(None, cancelled=lambda: False):
        assert granted() is None


@pytest.mark.parametrize("is_refused", [False, True])
@pytest.mark.parametrize("watch", [Watch("summary"), Watch("summary", counts=True)])
def test_a_reason_is_asked_for_only_where_the_record_gives_one(watch, is_refused):
    matcher, row = Asked(), np.zeros(WIDTH, dtype=np.float32)
    row[B if is_refused else A] = 5.0
    found = decide(
        row,
        masks.from_bool(np.arange(WIDTH) == A),
        vocab=VOCAB,
        chain=chain_of("default", []),
        stream=RandomStream(0),
        context=FilterContext(step=0, prompt=(), generated=()),
        watch=watch,
        questions=MatcherQuestions(matcher),
    ).written()
    assert matcher.explained == (watch.counts and is_refused)
    assert (found.was_changed, found.rule) == (is_refused, "rule")
    assert (found.blame is not None) == (watch.counts and is_refused)
    assert matcher.explained == (watch.counts and is_refused)


@pytest.mark.parametrize("token", [300, 257, -1])
def test_a_place_says_of_an_id_outside_the_vocabulary_what_its_matcher_says(token):
    matcher = Compiler(Vocab.bytes()).compile(Gbnf('root ::= "ab"')).matcher()
    assert matcher.place().explain(token) == matcher.explain(token)
    assert matcher.place().explain(token).reason == "there is no such token"
