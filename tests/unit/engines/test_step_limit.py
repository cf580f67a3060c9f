"""A plan whose constraint thinks for too long ends alone, by the scheduler's own clock; the others never notice."""

from __future__ import annotations

from typing import Any, cast

import pytest

import espalier
from espalier import Regex
from espalier.api import make_request
from espalier.decoding.plan import Outcome, Plan
from espalier.decoding.ports import Append, Need
from espalier.engines.local.engine import LocalEngine
from espalier.engines.scheduling.costly import COSTLY_SECONDS, CostlyKeys
from espalier.engines.scheduling.lanes import Ticket
from espalier.engines.scheduling.scheduler import STEP_SHARE
from espalier.errors import InputError, LimitExceeded
from espalier.time_limit import check, time_limit
from tests.serving_laws import StrictModel, World, alone, greedy, ticket


def test_a_step_that_takes_too_long_ends_its_own_plan() -> None:
    world = World(StrictModel(slots=4, room=1000), step_seconds=3.0, prefix_tokens=0)
    prompt = (1, 2, 3)

    def thinks_at(step: int) -> Plan:
        plan = greedy(prompt, 9)
        answer = None
        for count in range(100):
            if count == step:
                world.now += 4
                check()
            answer = yield plan.send(answer)
        raise AssertionError

    slow = world.submit(Ticket(plan=thinks_at(5), prompt=prompt, size=20))
    other = world.submit(ticket("greedy", prompt, 9))
    world.run()
    last = world.end_of(slow)
    assert isinstance(last, LimitExceeded)
    assert "one step of the constraint takes longer than 3 s" in last.message
    assert world.said[other] == alone("greedy", prompt, 9)
    world.close()


def test_time_between_steps_does_not_count() -> None:
    world = World(StrictModel(slots=4, room=1000), step_seconds=3.0, prefix_tokens=0)
    one = world.submit(ticket("greedy", (1, 2, 3), 5))
    while world.round():
        world.now += 100
    assert world.said[one] == alone("greedy", (1, 2, 3), 5)
    world.close()


@pytest.mark.parametrize("name", ["step_seconds", "plan_seconds"])
@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_limit_that_is_none_is_refused(name: str, seconds: float) -> None:
    with pytest.raises(InputError, match=name):
        World(StrictModel(slots=1, room=10), **{name: seconds})


def costly(world: World, seconds: float, *, looks: bool = True, length: int = 200, **more: Any) -> Ticket:
    """A plan each of whose steps, but the first, takes so long, if nothing stops it."""
    prompt = (1, 2, 3)

    def plan() -> Plan:
        steps = greedy(prompt, length)
        answer = None
        while True:
            if answer is not None:
                world.now += min(seconds, 0.51) if looks else seconds
                check()
            try:
                answer = yield steps.send(answer)
            except StopIteration as end:
                return cast(Outcome, end.value)

    return Ticket(plan=plan(), prompt=prompt, size=3 + length, **more)


def waits(world: World, one: Ticket) -> list[float]:
    """Seconds before each thing that is said to it, to its end."""
    found, last = [], world.now
    while not one.is_over:
        before = len(world.said.get(one, ()))
        world.round()
        if len(world.said.get(one, ())) > before:
            found.append(world.now - last)
            last = world.now
    return found


def test_eight_lanes_that_burn_their_step_limit_make_a_bystander_wait_for_one_limit() -> None:
    world = World(StrictModel(slots=16, room=10_000), step_seconds=0.5, prefix_tokens=0)
    hostile = [world.submit(costly(world, 9.0, cost_key="nest", owner="h")) for _ in range(8)]
    other = world.submit(ticket("greedy", (1, 2, 3), 9, owner="b"))
    assert sum(waits(world, other)) < 2 * 0.5
    assert world.said[other] == alone("greedy", (1, 2, 3), 9)
    messages = [str(world.end_of(one)) for one in hostile]
    assert sum("one step of the constraint takes longer than 0.5 s" in one for one in messages) == 1
    assert sum("another request with it" in one for one in messages) == 7
    world.close()


def test_lanes_of_different_costly_constraints_take_one_limit_a_round_together() -> None:
    world = World(StrictModel(slots=16, room=10_000), step_seconds=0.5, prefix_tokens=0)
    for number in range(8):
        world.submit(costly(world, 9.0, cost_key=number, owner="h"))
    other = world.submit(ticket("greedy", (1, 2, 3), 9, owner="b"))
    assert max(waits(world, other)) <= 2 * 0.51 + 1e-9, "each is stopped at its first look after 0.5 s"
    world.run()
    world.close()


def test_what_has_been_too_costly_is_refused_for_its_owner_for_a_minute() -> None:
    world = World(StrictModel(slots=2, room=10_000), step_seconds=0.5, prefix_tokens=0)
    first = world.submit(costly(world, 9.0, cost_key="nest", owner="h"))
    running, waiting = (world.submit(costly(world, 9.0, cost_key="nest", owner="h")) for _ in range(2))
    others = world.submit(costly(world, 0.0, cost_key="nest", owner="b", length=4))
    world.run()
    assert all(isinstance(world.end_of(one), LimitExceeded) for one in (first, running, waiting))
    assert isinstance(world.end_of(others), Outcome), "another's text need not be as costly"
    with pytest.raises(LimitExceeded, match="takes too long") as refused:
        world.submit(costly(world, 0.0, cost_key="nest", owner="h"))
    assert refused.value.hint
    world.submit(ticket("greedy", (1, 2, 3), 2, owner="h"))
    world.submit(costly(world, 0.0, cost_key="nest", owner="b", length=4))
    world.now += COSTLY_SECONDS
    again = world.submit(costly(world, 0.0, cost_key="nest", owner="h", length=4))
    world.run()
    assert isinstance(world.end_of(again), Outcome)
    world.close()


def test_a_limit_of_another_kind_ends_no_other_plan() -> None:
    """That an automaton grew too large says nothing of the time that others take."""
    world = World(StrictModel(slots=4, room=1000), prefix_tokens=0)

    def fails() -> Plan:
        yield Need(append=(Append(branch=0, tokens=(1, 2)),))
        raise LimitExceeded("too many states")

    world.submit(Ticket(plan=fails(), prompt=(1, 2), size=9, cost_key="k"))
    other = world.submit(costly(world, 0.0, cost_key="k", length=4))
    world.run()
    assert isinstance(world.end_of(other), Outcome)
    world.close()


def test_steps_that_each_keep_below_the_limit_end_in_the_end() -> None:
    world = World(StrictModel(slots=4, room=1000), step_seconds=0.5, plan_seconds=3.0, prefix_tokens=0)
    slow = world.submit(costly(world, 0.4, cost_key="slow"))
    fast = world.submit(costly(world, STEP_SHARE, cost_key="fast", length=150))
    world.run()
    last = world.end_of(slow)
    assert isinstance(last, LimitExceeded)
    assert "takes longer than 3 s in all" in last.message
    assert len(world.said[slow]) == 10, "nine steps of 0.4 s, each with its share"
    assert isinstance(world.end_of(fast), Outcome), "its steps took 7.5 s, no more than their share"
    world.close()


def test_an_owner_whose_steps_take_long_goes_on_in_the_next_round_and_says_the_same() -> None:
    world = World(StrictModel(slots=8, room=10_000), step_seconds=0.5, prefix_tokens=0)
    slow = [world.submit(costly(world, 0.3, length=6, owner="h")) for _ in range(5)]
    other = world.submit(ticket("greedy", (1, 2, 3), 9, owner="b"))
    assert max(waits(world, other)) <= 0.6 + 1e-9, "two steps of the five in each round"
    world.run()
    assert [world.said[one] for one in slow] == [alone("greedy", (1, 2, 3), 6)] * 5
    world.close()


def test_the_first_mask_is_asked_for_where_nobody_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    request = make_request("hi", constraint=Regex(pattern="[a-z]+"))
    with espalier.load("fake") as loaded:
        engine = cast(LocalEngine, loaded.engine)
        kind = type(engine.compiler.compile(request.constraint).matcher())
        asked = []
        plain = kind.mask

        def mask(self: Any) -> Any:
            asked.append(self)
            check()
            return plain(self)

        monkeypatch.setattr(kind, "mask", mask)
        engine.prepare(request)
        assert asked == [], "without a limit nobody is spared anything"
        with time_limit(100):
            engine.prepare(request)
        assert len(asked) == 1
        monkeypatch.setattr(kind, "mask", lambda self: (time_over(), check()))
        now = [0.0]

        def time_over() -> None:
            now[0] = 11.0

        with pytest.raises(LimitExceeded), time_limit(10, clock=lambda: now[0]):
            engine.prepare(request)


def test_what_is_costly_is_forgotten_after_so_many_others() -> None:
    found = CostlyKeys(seconds=10, most=2)
    for number in range(3):
        found.add(number, float(number))
    assert [found.has(number, 3.0) for number in range(4)] == [False, True, True, False]
    assert [found.has(number, 11.5) for number in (1, 2)] == [False, True]


def test_a_bystander_waits_for_one_slow_step_of_many_keys_at_most() -> None:
    world = World(StrictModel(slots=32, room=10_000), step_seconds=0.5, prefix_tokens=0)
    other = world.submit(ticket("greedy", (1, 2, 3), 9, owner="b"))
    for _ in range(4):
        world.round()
    for number in range(20):
        world.submit(costly(world, 0.4, length=30, owner=f"h{number}"))
    assert max(waits(world, other)) <= 0.4 + 1e-9
    world.run()
    world.close()


def test_time_that_others_use_is_charged_to_nobody() -> None:
    """The clock runs on during a step, as on a busy machine, while the step itself takes no CPU time."""
    used = [0.0]
    world = World(StrictModel(slots=4, room=1000), step_seconds=0.5, plan_seconds=1.0, cpu=lambda: used[0])
    victim = world.submit(costly(world, 5.0, looks=False, length=6))
    world.run()
    assert isinstance(world.end_of(victim), Outcome)
    world.close()
