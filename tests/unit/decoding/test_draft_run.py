"""What sources propose at the ends of a text, a vocabulary or a model's room, and what a run learns of its passes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from espalier.decoding.drafting.continuations import FIRST_HIT, PAUSE, Continuations
from espalier.decoding.drafting.kit import DraftKit
from espalier.decoding.drafting.pass_costs import LISTED, PassCosts
from espalier.decoding.drafts import strategy
from espalier.decoding.drafts.forced import ForcedDrafter
from espalier.decoding.drafts.model import ModelDrafter
from espalier.decoding.drafts.pace import MOST, Pace
from espalier.decoding.drafts.source import DraftText
from espalier.decoding.drafts.strategy import SAMPLED, SURE_STEP, WINDOW, _DraftRun
from espalier.errors import LimitExceeded


class OneWay:
    """A matcher that allows one sequence of tokens. A finished one may not be asked anything."""

    def __init__(self, way: Sequence[int], at: int = 0) -> None:
        self._way, self._at = way, at

    @property
    def is_finished(self) -> bool:
        return self._at == len(self._way)

    def fork(self) -> OneWay:
        return OneWay(self._way, self._at)

    def allows(self, token: int) -> bool:
        return not self.is_finished and self._way[self._at] == token

    def advance(self, token: int) -> None:
        assert self.allows(token)
        self._at += 1

    def forced(self) -> bytes:
        assert not self.is_finished
        return bytes(self._way[self._at :])

    def mask(self) -> Any:
        raise AssertionError("not asked here")


def text(*, matcher: Any = None, sibling: Any = None, prompt: Sequence[int] = (1, 2)) -> DraftText:
    job: Any = SimpleNamespace(matcher=matcher, encode=None, prompt=tuple(prompt), kit=SimpleNamespace(sibling=sibling))
    return DraftText(job, [], Continuations())


def test_what_is_forced_is_drafted_up_to_the_end_of_the_text_and_not_beyond() -> None:
    drafter = ForcedDrafter(text(matcher=OneWay([5, 6, 7])))
    assert list(drafter.propose([], 9)) == [5, 6, 7]
    assert list(drafter.propose([], 2)) == [5, 6]
    assert list(drafter.propose([5], 9)) == [6, 7]
    assert list(drafter.propose([5, 6, 7], 9)) == []
    assert list(drafter.propose([9], 9)) == [], "what is before it is not allowed"
    assert list(ForcedDrafter(text(matcher=OneWay([]))).propose([], 9)) == []
    assert list(ForcedDrafter(text()).propose([], 9)) == []


class Sibling:
    """A small model: after a token it wishes for the next number. Its cache has room for `max_positions`."""

    can_truncate = True

    def __init__(self, max_positions: int, room: int = 99) -> None:
        self.max_positions, self.room = max_positions, room
        self.held: list[int] = []
        self.live = 0

    def new(self) -> int:
        self.live += 1
        return 0

    def free(self, sequence: int) -> None:
        self.live -= 1

    def truncate(self, sequence: int, length: int) -> None:
        del self.held[length:]

    def extend(self, wanted: Sequence[Any]) -> list[Any]:
        [one] = wanted
        if len(self.held) + len(one.tokens) > self.room:
            raise LimitExceeded("the cache is full")
        self.held += one.tokens
        assert len(self.held) <= self.max_positions
        row = np.zeros((1, 64), dtype=np.float32)  # (1, V)
        row[0, one.tokens[-1] + 1] = 1.0
        return [row]


@pytest.mark.parametrize("positions", range(2, 8))
def test_a_smaller_model_drafts_no_further_than_it_has_positions(positions: int) -> None:
    sibling = Sibling(positions)
    drafter = ModelDrafter(text(sibling=sibling))
    assert list(drafter.propose([], 4)) == [3, 4, 5, 6][: positions - 1]
    drafter.close()
    assert sibling.live == 0


def test_a_smaller_model_whose_cache_is_full_drafts_what_it_had_room_for() -> None:
    assert list(ModelDrafter(text(sibling=Sibling(99, room=3))).propose([], 4)) == [3, 4]
    assert list(ModelDrafter(text(sibling=Sibling(99, room=1))).propose([], 4)) == []


def test_without_a_smaller_model_and_behind_what_is_not_allowed_nothing_is_drafted() -> None:
    assert list(ModelDrafter(text()).propose([], 4)) == []
    assert list(ModelDrafter(text(sibling=Sibling(99), matcher=OneWay([5]))).propose([6], 4)) == []
    assert list(ModelDrafter(text(sibling=Sibling(99), matcher=OneWay([5]))).propose([5], 4)) == []


def test_a_long_feed_leaves_room_in_the_list_of_costs() -> None:
    costs = PassCosts()
    for size in (1, *(2, 8, 30) * 3):
        costs.note(size, 1.0 + size / 100)
    for fed in (1, LISTED - MOST - 1, LISTED - MOST, LISTED, 500):
        pace = Pace(costs, fed)
        assert pace.kept([1.0] * 20) == MOST
        pace.added([1.0] * MOST)
        assert pace.kept([1.0] * 20) == 0


def test_what_a_switch_costs_is_beside_how_long_passes_without_drafts_usually_take() -> None:
    costs = PassCosts()
    costs.note(1, 1.0)
    for _ in range(200):
        costs.note(8, 3.0, drafted=True)
        costs.note(8, 2.0, drafted=True)
    for _ in range(60):
        costs.note(1, 1.4, switched=True)
    costs.note(1, 1.0)
    costs._listed = []
    costs.listed()
    usual, after = costs._over[0], costs._after[1]
    assert usual != pytest.approx(costs._over[1], rel=0.05)
    assert costs.switch == pytest.approx(after / usual - 1.0)


def run(**state: Any) -> Any:
    """The state of a run, as far as one of its methods looks at it."""
    kit, known = DraftKit(), Continuations()
    job = SimpleNamespace(kit=kit, clock=None, vocab=SimpleNamespace(width=4, real_ids=np.array([1, 1, 0, 1], bool)))
    seen = SimpleNamespace(known=known)
    return SimpleNamespace(**{"job": job, "_seen": seen, "_misses": 0, "_woken": {"sure": 0}, "feed": ()} | state)


def test_a_source_that_is_asked_at_every_place_learns_of_sixteen_misses_at_once() -> None:
    state = run()
    known = state._seen.known
    for _ in range(SAMPLED - 1):
        _DraftRun._was_asked(state, "sure", 0.0)
    assert "sure" not in known.hits
    _DraftRun._was_asked(state, "sure", 0.0)
    kept = (1 - SURE_STEP) ** SAMPLED
    assert known.hit("sure") == pytest.approx(FIRST_HIT * kept)
    for _ in range(2):
        _DraftRun._was_asked(state, "sure", 0.0)
    _DraftRun._was_asked(state, "sure", 0.5)
    assert known.hit("sure") == pytest.approx(1 - (1 - FIRST_HIT * kept) * (1 - SURE_STEP) ** 3)
    assert known.saved["sure"] == 0.5
    before = known.hit("sure")
    _DraftRun._was_asked(state, "sure", 0.5)
    assert known.hit("sure") == pytest.approx(1 - (1 - before) * (1 - SURE_STEP))


@pytest.mark.parametrize(
    ("taken", "cost", "pauses"), [(WINDOW, 0.6, True), (WINDOW - 1, 0.6, False), (WINDOW, 0.4, False)]
)
def test_it_pauses_where_asking_takes_longer_than_its_drafts_save(taken: int, cost: float, pauses: bool) -> None:
    asked: list[int] = []
    state = run(_pause=lambda name, least: (asked.append(least), state._seen.known.due.update({name: 7})))
    known = state._seen.known
    known.taken, known.hits, known.saved = taken, {"sure": 1.0}, {"sure": 0.5}
    state.job.kit.asking["sure"] = cost
    _DraftRun._was_asked(state, "sure", 0.5)
    assert asked == ([2 * WINDOW] if pauses else [])
    assert state._woken["sure"] == (7 if pauses else 0)
    assert known.pauses["sure"] == PAUSE


def test_all_time_around_a_pass_counts_for_what_drafts_are_worth() -> None:
    noted: list[Any] = []
    clock = iter([10.0, 13.0, 20.0])
    state = run(_ended=None, _spent=0.0, _before=2, _is_drafts=True, text=SimpleNamespace(tokens=[0] * 5))
    state.job.clock = lambda: next(clock)
    state.job.kit.worth = SimpleNamespace(note=lambda *given, drafted: noted.append((*given, drafted)))
    assert _DraftRun.begins(state) == 10.0
    assert noted == []
    state._ended, state._spent = 11.5, 1.5
    assert _DraftRun.begins(state) == 13.0
    assert noted == [(3.0, 3, True)]
    assert state.job.kit.is_wanted


@pytest.mark.parametrize(
    ("proposed", "taken"), [([0, 1, 3], [0, 1, 3]), ([4], []), ([1, 4, 1], [1]), ([-1, 1], []), ([3, 2, 1], [3])]
)
def test_an_id_that_is_none_ends_a_draft(
    proposed: list[int], taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    state = run(_sure={}, _now=lambda: 0.0, _asking=0.0, _learning=0.0)
    drafter: Any = SimpleNamespace(propose=lambda ahead, most: proposed)
    assert _DraftRun._ask_source(state, "lookup", drafter, [], 9) == taken
    assert _DraftRun._ask_source(state, "lookup", drafter, [], 1) == taken[:1]


@pytest.mark.parametrize("size", [1, 2, 29, 30, 31, 40])
def test_a_feed_as_long_as_the_list_of_costs_is_passed(size: int) -> None:
    state = run(feed=(0,) * size)
    state.job.kit.listed = [1.0 + number / 100 for number in range(LISTED)]
    assert _DraftRun._is_short(state) == (size + 1 < LISTED)
    state.job.kit.listed = []
    assert _DraftRun._is_short(state), "no pass is known yet"


def test_the_constants_of_the_strategy_fit_the_list_of_costs() -> None:
    assert max(strategy.TRIED) <= MOST < LISTED
