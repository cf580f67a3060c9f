"""How much is drafted: what passes cost, what was worth it, what followed at a place. A model plays no part here."""

from __future__ import annotations

import pytest

from espalier.decoding.drafting.continuations import GRADES, NEAR, Continuations, HistoryPosition
from espalier.decoding.drafting.kit import DraftKit
from espalier.decoding.drafting.pass_costs import PassCosts
from espalier.decoding.drafting.worth import Worth
from espalier.decoding.drafts.pace import MOST, Pace, least_rate

X, Y, Z = (HistoryPosition(name, 0) for name in "xyz")


def test_costs_of_a_pass_are_read_off_a_line_through_what_was_measured():
    costs = PassCosts()
    assert not costs.is_known
    assert costs.of(1) < costs.of(8) < 8 * costs.of(1)  # tried where nothing is known
    costs.note(1, 1.0)
    assert costs.of(8) < 3
    for size in (3, 5, 9) * 2:
        costs.note(size, 0.5 + 0.5 * size)
    assert [costs.of(size) for size in (1, 2, 5, 9)] == pytest.approx([1.0, 1.5, 3.0, 5.0])
    assert costs.of(16) == pytest.approx(5.0 + 7 * 0.15)  # longer ones are tried
    assert costs.listed()[1:10] == [costs.of(size) for size in range(1, 10)]


def test_a_clock_too_coarse_for_a_pass_divides_nothing_by_zero():
    costs = PassCosts()
    costs.note(1, 0.0)
    assert Pace(costs, 1).kept([0.9] * 5) >= 0
    for size in (1, 2, 8) * 3:
        costs.note(size, 0.0, drafted=size > 1)
        costs.note(1, 0.0, switched=True)
        assert Pace(costs, size).wanted(0.9, 5) >= 0
    assert 0.0 <= least_rate(costs) <= 1.0


def test_a_size_that_met_a_busy_machine_says_little_of_the_others():
    costs = PassCosts()
    costs.note(1, 1.0)
    costs.note(4, 90.0)
    assert costs.of(4) < 3 * 1.45 + 0.01  # it may have been the first pass of all
    for size in (2, 8, 12) * 8:
        costs.note(size, 1.0 + size / 20)
    assert costs.of(8) == pytest.approx(1.4, rel=0.2)
    costs.note(1, 0.9)
    costs.note(1, 50.0)  # interrupted once
    assert costs.of(1) < 0.95
    slow = PassCosts()
    for size in (1, *(2, 3) * 8):
        slow.note(size, float(size * size))
    assert slow.of(3) <= 3 * slow.of(1)  # as many passes could be run instead


def test_drafts_that_gain_nothing_have_to_promise_more_and_after_a_while_less_again():
    worth, costs = Worth(), PassCosts()
    for size in (1, *range(2, 17)):
        costs.note(size, 0.7 + 0.3 * size)
    first = worth.least
    for _ in range(30):
        worth.note(1.0, 1, drafted=False)
        worth.note(4.2, 4, drafted=True)  # our own time is more than was thought
    assert worth.least > first + 0.1
    assert Pace(costs, 1, worth.least).wanted(0.4, MOST) < Pace(costs, 1, 1.0).wanted(0.4, MOST)
    for _ in range(2000):
        worth.note(1.0, 1, drafted=False)
    assert worth.least == pytest.approx(1.05)
    for _ in range(30):
        worth.note(1.0, 1, drafted=False)
        worth.note(2.0, 4, drafted=True)
    assert worth.least == pytest.approx(1.05)


def test_what_comes_after_a_draft_is_part_of_its_cost():
    """llama.cpp builds its compute graph anew where a pass has another size than the one before."""
    costs = PassCosts()
    for size in range(1, 17):
        costs.note(size, 0.5 + 0.5 * size)
    assert Pace(costs, 1).wanted(0.9, 3) == 3
    costs.note(1, 2.0, switched=True)
    costs.listed()
    assert costs.switch == pytest.approx(0.3, abs=0.1)  # at first it may be anything
    for _ in range(60):
        costs.note(1, 2.0, switched=True)
    assert Pace(costs, 1).wanted(0.9, 3) == 0
    assert costs.switch > 0.7


def test_a_source_that_has_nothing_to_say_at_most_places_is_asked_less():
    costs = PassCosts()
    for size in range(1, 17):
        costs.note(size, 1.0 + size / 10)
    assert Pace(costs, 1).wanted(0.9, MOST, seconds=0.4)
    assert not Pace(costs, 1).wanted(0.9, MOST, seconds=0.4, hit=0.01)
    known = Continuations()
    for _ in range(60):
        known.was_asked("forced", False)
    assert known.hit("forced") < 0.05


def test_how_likely_a_place_goes_on_as_before_is_learnt_from_places_like_it():
    known = Continuations()
    assert known.likeliest(X) is None
    known.learn(X, 1, Y)
    assert known.likeliest(X) == (1, GRADES[0], Y)
    known.learn(X, 2, Z)
    token, often, _ = known.likeliest(X)
    assert (token, often) == (2, GRADES[4])
    for _ in range(9):
        known.learn(X, 1, Y)
    assert known.likeliest(X)[0] == 1
    assert known.likeliest(X)[1] > often
    assert known.leads_to(X, 2) == Z
    for place in range(40):  # where a token was seen once, another one follows here
        known.learn(HistoryPosition(place, 0), 1, Y)
        known.learn(HistoryPosition(place, 0), 2, Y)
    known.learn(HistoryPosition("new", 0), 1, Y)
    assert known.likeliest(HistoryPosition("new", 0))[1] < 0.2


def test_a_place_is_known_by_the_token_before_first():
    known = Continuations()
    for _ in range(3):
        known.learn(HistoryPosition("x", 5), 1, Y)
    known.learn(HistoryPosition("x", 6), 2, Z)
    assert known.likeliest(HistoryPosition("x", 6)) == (2, known.grades[0], Z)
    assert known.likeliest(HistoryPosition("x", 7)) == (
        1,
        known.grades[NEAR + 4],
        Y,
    )  # what followed after other tokens
    assert known.leads_to(HistoryPosition("x", 7), 2) == Z


def test_a_source_that_is_not_worth_asking_is_asked_ever_more_seldom():
    known = Continuations()
    waited = []
    for _ in range(9):
        known.pause("lookup")
        waited.append(known.due["lookup"] - known.taken)
        known.taken = known.due["lookup"]
    assert waited == [8, 16, 32, 64, 128, 256, 512, 512, 512]
    other = known.heir()  # of another constraint of the same owner
    assert other.pauses == known.pauses
    assert other.likeliest(X) is None
    known.was_worth_it("lookup", 1.0)
    known.pause("lookup", 20)
    assert known.due["lookup"] - known.taken == 20


def test_a_draft_is_as_long_as_its_tokens_are_likely():
    costs = PassCosts()
    for size in range(1, 17):
        costs.note(size, 1.0 + size / 10)
    assert Pace(costs, 1).kept([0.99] * 4 + [0.01] * 4) == 4
    assert Pace(costs, 1).kept([0.01] * 4) == 0
    assert Pace(costs, 1).kept([]) == 0
    after = Pace(costs, 1)
    after.added([0.5] * 3)
    assert after.kept([0.99] * 20) < Pace(costs, 1).kept([0.99] * 20) == MOST
    least = least_rate(costs)
    assert Pace(costs, 1).kept([least + 0.05] * MOST)
    assert not Pace(costs, 1).kept([least - 0.05] * MOST)


def test_nothing_is_drafted_where_further_tokens_cost_as_much_as_passes():
    costs = PassCosts()
    for size in range(1, 17):
        costs.note(size, float(size))
    assert Pace(costs, 1).wanted(0.7, MOST) == 0
    cheap = PassCosts()
    for size in range(1, 17):
        cheap.note(size, 1.0 + size / 100)
    assert Pace(cheap, 1).wanted(0.95, MOST) == MOST
    assert 0 < Pace(cheap, 1).wanted(0.5, MOST) < MOST
    assert Pace(cheap, 1).wanted(0.95, 2) == 2


def test_what_is_learnt_is_bounded_and_kept_apart_by_owner():
    known = Continuations()
    for place in range(5000):
        for token in range(12):
            known.learn(HistoryPosition(place, 0), token, HistoryPosition(place + 1, 0))
    known.learn(HistoryPosition(4999, 0), 3, HistoryPosition(5000, 0))
    assert len(known._after) == 4096
    assert max(len(one.followed) for one in known._after.values()) <= 8
    assert known.likeliest(HistoryPosition(0, 0)) is None
    kit = DraftKit()
    kit.continuations("ada", "c").learn(X, 1, Y)
    assert kit.continuations("bob", "c").likeliest(X) is None
    assert kit.continuations("ada", "c").likeliest(X) == (1, GRADES[0], Y)
    for name in range(100):
        kit.continuations("ada", str(name))
    assert kit.continuations("ada", "c").likeliest(X) is None
