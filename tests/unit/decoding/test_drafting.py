"""What drafts learn and how many tokens they propose, against plain computations of the same."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.decoding.drafting import continuations as learnt
from espalier.decoding.drafting.continuations import Continuations, HistoryPosition
from espalier.decoding.drafting.pass_costs import (
    AFTER_FALLS,
    AFTER_RISES,
    EARLY,
    FURTHER,
    HEAVIEST,
    LISTED,
    MOST_OVER,
    OVER_STEP,
    RISES,
    SWITCHED,
    PassCosts,
)
from espalier.decoding.drafting.worth import (
    CERTAIN,
    FIRST_WORTH,
    LEAST_WORTH,
    MOST_WORTH,
    WORTH_FALLS,
    WORTH_RISES,
    Worth,
)
from espalier.decoding.drafts.lookup import LONGEST, SHORTEST, LookupDrafter
from espalier.decoding.drafts.pace import MOST, Pace, least_rate

IDS = st.lists(st.integers(0, 2), max_size=14)


def plain_lookup(ids: Sequence[int], ahead: Sequence[int], most: int) -> list[int]:
    """What followed the last occurrence, before the end of the text, of the longest run of the last tokens."""
    last = [*ids, *ahead]
    for size in range(min(LONGEST, len(last), len([*ids[-LONGEST:], *ahead][-LONGEST:])), SHORTEST - 1, -1):
        run = last[-size:]
        for end in range(len(ids) - 1, size - 1, -1):
            if list(ids[end - size : end]) == run:
                return list(ids[end : end + most])
    return []


@given(IDS, IDS, st.lists(st.integers(0, 2), max_size=3), st.integers(1, 5))
def test_what_is_looked_up_is_what_followed_last(
    prompt: list[int], text: list[int], ahead: list[int], most: int
) -> None:
    shown: Any = SimpleNamespace(job=SimpleNamespace(prompt=tuple(prompt)), tokens=[])
    drafter = LookupDrafter(shown)
    for length in range(len(text) + 1):  # as the text grows
        shown.tokens = text[:length]
        assert list(drafter.propose((), most)) == plain_lookup([*prompt, *text[:length]], (), most)
    assert list(drafter.propose(ahead, most)) == plain_lookup([*prompt, *text], ahead, most)


def measured(*passes: tuple[int, float]) -> PassCosts:
    costs = PassCosts()
    for tokens, seconds in passes:
        costs.note(tokens, seconds)
    return costs


def test_before_six_longer_passes_a_further_token_costs_a_share_of_the_least() -> None:
    costs = measured((1, 1.0), *[(4, 9.0)] * 5)
    assert costs.of(1) == 1.0
    assert costs.of(3) == pytest.approx(1.0 + 2 * FURTHER)
    assert measured((2, 1.0)).of(1) == pytest.approx(1.0 - FURTHER / 2)
    assert PassCosts().of(5) == pytest.approx(1.0 + 4 * FURTHER), "nothing is known: in units of a pass"


def test_from_six_longer_passes_on_costs_are_on_the_line_of_least_squares() -> None:
    times = {1: 1.0, 2: 1.2, 4: 1.5, 9: 2.9}
    counts = {1: 3, 2: 2, 4: 3, 9: 20}
    costs = measured(*[(size, times[size]) for size, count in counts.items() for _ in range(count)])
    assert times[2] < MOST_OVER * costs.of(2)
    sizes = np.array([2.0, 4.0, 9.0])
    seconds = np.array([times[2], times[4], times[9]])
    weights = np.array([2, 3, HEAVIEST], dtype=float)
    slope, start = np.polyfit(sizes, seconds, 1, w=np.sqrt(weights))
    for size in (2, 3, 5, 9):
        assert costs.of(size) == pytest.approx(start + slope * size)
    beyond = start + slope * 9 + min(slope, FURTHER) * 3
    assert costs.of(12) == pytest.approx(beyond)


def test_one_longer_size_alone_makes_a_line_with_the_least() -> None:
    costs = measured((1, 1.0), *[(5, 2.0)] * 6)
    assert costs.of(3) == pytest.approx(1.5)
    assert costs.of(5) == pytest.approx(2.0)


def test_costs_are_never_below_the_least_pass_nor_above_passes_one_by_one() -> None:
    falling = measured((1, 1.0), *[(4, 0.5)] * 6)
    assert falling.of(3) == 1.0
    rising = measured((1, 1.0), *[(2, 3.0)] * 8)
    assert rising.of(2) == pytest.approx(2.0)


def test_a_longer_time_counts_little_and_a_shorter_one_at_once() -> None:
    costs = measured((1, 1.0))
    costs.note(1, 1.5)
    assert costs.of(1) == pytest.approx(1.0 + 0.5 * RISES)
    costs.note(1, 50.0)
    assert costs.of(1) == pytest.approx((1.0 + 0.5 * RISES) * (1 + RISES)), "no more than as long again"
    costs.note(1, 0.25)
    assert costs.of(1) == 0.25


def test_the_first_pass_of_a_size_may_take_long() -> None:
    costs = measured((1, 1.0), (2, 100.0))
    costs.note(2, 100.0)
    assert costs._known[2] == pytest.approx(MOST_OVER * (1.0 + FURTHER) * (1 + RISES))


def test_how_much_longer_passes_with_drafts_take() -> None:
    costs = measured((1, 1.0))
    costs.note(1, 2.0, drafted=True)
    assert costs.over == pytest.approx(1.0 + OVER_STEP)
    costs.note(1, 10.0)
    assert costs.over == pytest.approx((1.0 + OVER_STEP) / (1.0 + (MOST_OVER - 1) * OVER_STEP)) or costs.over == 1.0


def test_a_short_pass_after_a_longer_one_is_known_apart() -> None:
    costs = measured((1, 1.0))
    costs.note(1, 9.0, switched=True)
    costs.listed()
    assert costs.switch == pytest.approx(SWITCHED - 1.0 + (MOST_OVER - 1) * SWITCHED * AFTER_RISES, rel=0.05)
    costs.note(1, 1.1, switched=True)
    costs.listed()
    after = costs._after[1]
    assert 1.1 < after < SWITCHED + 0.1
    costs.note(1, 1.1, switched=True)
    assert costs._after[1] == pytest.approx(after + (1.1 - after) * AFTER_FALLS)
    assert costs.of(1) == 1.0


def test_the_list_is_the_line() -> None:
    costs = measured((1, 1.0), *[(4, 2.0)] * 6)
    assert costs.listed()[1:] == [costs.of(size) for size in range(1, LISTED)]
    assert costs.listed()[0] == 0.0
    assert costs.is_known
    assert not PassCosts().is_known


def plain_kept(costs: PassCosts, fed: int, rates: Sequence[float], seconds: float, worth: float) -> int:
    """The number of tokens with the most expected tokens a second, all numbers compared."""
    listed = costs.listed()
    extra = seconds + costs.switch - (listed[fed] - listed[1])

    def gain(count: int) -> float:
        return 1.0 + sum(float(np.prod(rates[:length])) for length in range(1, count + 1))

    best, speed = 0, worth / listed[1]
    for count in range(1, min(len(rates), MOST) + 1):
        reached = gain(count) / (listed[fed + count] * costs.over + extra)
        if reached > speed + 1e-12:
            best, speed = count, reached
    return best


@given(
    st.lists(st.floats(0.05, 1.0), max_size=20), st.integers(1, 4), st.floats(0, 0.5), st.sampled_from([1.0, 1.1, 1.5])
)
def test_as_many_are_drafted_as_promise_most_tokens_a_second(
    rates: list[float], fed: int, seconds: float, worth: float
) -> None:
    costs = measured((1, 1.0), *[(8, 2.0)] * 6)
    pace = Pace(costs, fed, worth)
    assert pace.kept(rates, seconds) == plain_kept(costs, fed, rates, seconds, worth)


def test_what_a_draft_saves_is_the_time_of_single_tokens_less_its_own() -> None:
    costs = measured((1, 1.0), *[(8, 1.7)] * 6)
    pace = Pace(costs, 1)
    assert pace.kept([1.0] * 3) == 3
    assert pace.saved == pytest.approx(3 * 1.0 - (costs.of(4) - 1.0))
    pace.added([1.0] * 3)
    assert pace.drafted == 3
    assert pace.kept([1.0] * 30) == MOST - 3
    assert Pace(costs, 1).kept([0.0]) == 0
    assert pace.kept([]) == 0
    assert pace.saved == 0.0


def test_a_source_that_seldom_answers_has_to_promise_more() -> None:
    costs = measured((1, 1.0), *[(8, 1.7)] * 6)
    assert Pace(costs, 1).wanted(0.9, 8, seconds=0.1, hit=1.0) > 0
    assert Pace(costs, 1).wanted(0.9, 8, seconds=0.1, hit=0.01) == 0
    assert Pace(costs, 1).wanted(1.0, 2) == 2


def test_below_the_least_rate_nothing_is_drafted() -> None:
    costs = measured((1, 1.0), *[(8, 2.0)] * 6)
    rate = least_rate(costs)
    assert 0.0 < rate < 1.0
    assert Pace(costs, 1).kept([rate + 1 / 32] * MOST)
    assert not Pace(costs, 1).kept([max(0.0, rate - 1 / 32)] * MOST)


def noted(worth: Worth, alone: float, drafted: float, times: int = 40) -> float:
    for _ in range(times):
        worth.note(alone, 1, drafted=False)
        worth.note(drafted, 1, drafted=True)
    return worth.least


def test_drafts_that_gain_have_to_promise_less_and_others_more() -> None:
    assert noted(Worth(), 1.0, 0.5) == LEAST_WORTH
    assert noted(Worth(), 1.0, 1.0, times=400) == MOST_WORTH
    nothing = Worth()
    assert nothing.least == FIRST_WORTH
    nothing.note(1.0, 1, drafted=True)
    assert nothing.least == FIRST_WORTH, "one says nothing yet"
    nothing.note(1.0, 1, drafted=False)
    assert nothing.least == pytest.approx(FIRST_WORTH - WORTH_FALLS)


def test_worth_is_known_after_some_tokens_of_each_kind() -> None:
    worth = Worth()
    worth.note(20.0, CERTAIN + 1, drafted=False)
    before = worth.least
    worth.note(20.0, CERTAIN, drafted=True)
    assert worth.least == before, "exactly as many are too few"
    worth.note(1.0, 1, drafted=True)
    assert worth.least == pytest.approx(before + WORTH_RISES)


def test_one_pass_that_was_interrupted_says_little_about_what_a_token_costs() -> None:
    worth = Worth()
    for _ in range(2 * CERTAIN):
        worth.note(1.0, 1, drafted=False)
    for _ in range(2 * CERTAIN):
        worth.note(1.2, 1, drafted=True)
    worth.note(1_000_000.0, 1, drafted=False)
    before = worth.least
    worth.note(1.2, 1, drafted=True)
    worth.note(1.2, 1, drafted=True)
    assert worth.least > before, "drafts still gain nothing"


def test_costs_are_listed_again_every_few_passes() -> None:
    costs = PassCosts()
    for _ in range(EARLY + 1):
        costs.note(1, 1.0)
    listed = costs.listed()
    costs.note(1, 0.5)
    assert costs.listed() == listed, "a few passes old"
    for _ in range(LISTED):
        costs.note(1, 0.5)
    assert costs.listed()[1] < listed[1]


A, B, C = (HistoryPosition(near=(name, 1), before=0) for name in "abc")


def test_a_place_leads_where_it_led_last_and_goes_on_as_it_did_most_often() -> None:
    known = Continuations()
    assert known.likeliest(A) is None
    assert known.leads_to(A, 1) is None
    known.learn(A, 1, B)
    assert known.likeliest(A) == (1, learnt.GRADES[0], B)
    known.learn(A, 2, C)
    known.learn(A, 2, C)
    token, _, place = known.likeliest(A) or (0, 0.0, A)
    assert (token, place) == (2, C)
    assert known.leads_to(A, 1) == B
    known.learn(A, 1, C)
    assert (known.likeliest(A) or (0,))[0] == 1, "of two the later one"
    other = HistoryPosition(near=A.near, before=9)
    assert known.leads_to(other, 1) == C, "by the last token alone"


@pytest.mark.parametrize(
    ("tokens", "grade"), [([1], 0), ([1] * 2, 1), ([1] * 3, 1), ([1] * 4, 2), ([2, 1, 1, 1, 1], 3), ([2, 1, 1, 1], 4)]
)
def test_how_likely_a_place_goes_on_is_by_how_often_it_did(tokens: list[int], grade: int) -> None:
    known = Continuations()
    for token in tokens:
        known.learn(A, token, B)
    known.grades = [float(number) for number in range(len(known.grades))]
    assert (known.likeliest(A) or (0, -1.0))[1] == grade
    near = HistoryPosition(near=A.near, before=5)
    assert (known.likeliest(near) or (0, -1.0))[1] == grade + learnt.NEAR


def test_grades_are_learnt_by_steps() -> None:
    known = Continuations()
    known.learn(A, 1, B)
    known.learn(A, 1, B)
    assert known.grades[0] == pytest.approx(learnt.GRADES[0] + learnt.GRADE_STEP * (1 - learnt.GRADES[0]))
    known.learn(A, 2, B)
    assert known.grades[1] == pytest.approx(learnt.GRADES[1] * (1 - learnt.GRADE_STEP))


def test_few_tokens_are_known_at_a_place_and_the_rarest_goes() -> None:
    known = Continuations()
    for token in [*range(learnt.MOST_BESIDE), *range(1, learnt.MOST_BESIDE)]:
        known.learn(A, token, B)
    known.learn(A, 99, B)
    assert known.leads_to(A, 0) is None
    assert known.leads_to(A, 99) == B
    assert known._after[A].total == 2 * learnt.MOST_BESIDE - 1


def test_rates_and_hits_are_learnt_by_steps() -> None:
    known = Continuations()
    assert (known.rate("s"), known.hit("s")) == (learnt.FIRST_RATE, learnt.FIRST_HIT)
    known.was_right("s", True)
    assert known.rate("s") == pytest.approx(learnt.FIRST_RATE + learnt.RATE_STEP * (1 - learnt.FIRST_RATE))
    known.was_asked("s", False)
    assert known.hit("s") == pytest.approx(learnt.FIRST_HIT * (1 - learnt.HIT_STEP))
    known.was_asked("t", True, step=0.5)
    assert known.hit("t") == pytest.approx(learnt.FIRST_HIT + 0.5 * (1 - learnt.FIRST_HIT))


def test_a_pause_doubles_up_to_the_longest_and_begins_anew() -> None:
    known = Continuations(taken=100)
    known.pause("s")
    assert (known.due["s"], known.pauses["s"]) == (100 + learnt.PAUSE, 2 * learnt.PAUSE)
    known.pause("s", least=50)
    assert (known.due["s"], known.pauses["s"]) == (150, 100)
    known.pause("s", least=10_000)
    assert (known.due["s"], known.pauses["s"]) == (100 + learnt.LONGEST, learnt.LONGEST)
    known.was_worth_it("s", 2.0)
    assert (known.pauses["s"], known.saved["s"]) == (learnt.PAUSE, 2.0)
    known.was_worth_it("s", 1.0)
    assert known.saved["s"] == pytest.approx(2.0 - learnt.ASKED_FALLS)
    known.was_worth_it("s", 2.5)
    assert known.saved["s"] == pytest.approx(1.5 + learnt.ASKED_RISES)
    heir = known.heir()
    assert heir.due == {"s": learnt.LONGEST}
    assert (heir.taken, heir.likeliest(A)) == (0, None)
    assert heir.saved == known.saved
