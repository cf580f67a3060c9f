"""Which task of a log a reply is linked to: by what is named, by what fits and by what is left; and how it is told."""

from __future__ import annotations

from typing import Any

import pytest

from espalier.trace.foreign.coverage import Coverage
from espalier.trace.foreign.matching import APART, ENOUGH, UNSHARED, LogLink, MatchError, Survey, TaskFit
from espalier.trace.foreign.tasks import TaskKey
from tests.unit.trace.test_survey import event, survey


def fit(bits: float = 0.0, **more: Any) -> TaskFit:
    """Of a task whose events agree with the reply, if they are worth any bits."""
    found = {"events": 1, "bits": bits, "last": 0 if bits else -1, "steps": {0}, "by_probability": int(bits > 0)}
    return TaskFit(**found | more)


def log(tasks: dict[TaskKey, TaskFit], **more: Any) -> Survey:
    here = survey(is_alone=True, **more)
    here.found.update(tasks)
    for latest, one in enumerate(tasks.values()):
        one.latest = latest if one.latest < 0 else one.latest
    here.is_complete = True
    return here


def chosen(here: Survey, **told: Any) -> tuple[str, TaskKey | None]:
    link = here.choose(**told)
    assert link.fit is None or link.key is None or here.found[link.key] is link.fit
    return link.how, link.key


A, B, C = TaskKey(1, 0), TaskKey(2, 0), TaskKey(3, 1)


def test_a_request_that_both_sides_name_is_taken_before_all_else() -> None:
    mine, other = TaskKey(1, 0, request="r"), TaskKey(2, 0, request="s")
    here = log({mine: fit(), other: fit(99.0)})
    assert chosen(here, request="r") == chosen(here, own="r") == ("request", mine)
    assert here.choose(own="r").reason == "by its request 'r'"
    assert chosen(here, own="r", task=1) == ("request", mine)
    assert chosen(here, task=2) == ("task", other)
    assert here.choose(task=2).reason == "by the task 2"


@pytest.mark.parametrize(("output", "key"), [(0, 0), (1, 1), (2, 1)])
def test_of_a_requests_outputs_the_replys_own_is_taken(output: int, key: int) -> None:
    keys = [TaskKey(number, 0, request="r", output=number) for number in (0, 1)]
    here = log({keys[0]: fit(1.0), keys[1]: fit(1.0 + APART)})
    assert chosen(here, request="r", output=output) == ("request", keys[key])


@pytest.mark.parametrize(("lead", "is_told"), [(APART, True), (APART - 0.5, False), (APART + 1, True)])
def test_of_several_tasks_that_are_named_the_best_must_lead(lead: float, is_told: bool) -> None:
    weak, strong = TaskKey(1, 0), TaskKey(1, 1)
    here = log({weak: fit(4.0), strong: fit(4.0 + lead)})
    if is_told:
        assert chosen(here, task=1) == ("task", strong)
        return
    with pytest.raises(
        MatchError, match=r"2 tasks of the log fit task 1: task 1 \(slot 1\), task 1 \(slot 0\)"
    ) as told:
        here.choose(task=1)
    assert told.value.candidates == (strong, weak)
    assert told.value.field == "task"


def test_what_is_named_and_contradicts_the_reply_is_taken_by_force_alone() -> None:
    keys = [TaskKey(1, slot) for slot in range(3)]
    here = log(
        {
            key: fit(conflicts=2, events=3, first_conflict=f"c{key.slot}", latest=(5, 9, 1)[key.slot or 0])
            for key in keys
        }
    )
    link = here.choose(task=1)
    reason = "2 of its 3 events contradict the response, the first: c1"
    assert (link.how, link.key, link.reason) == ("none", keys[1], f"task 1 does not fit: {reason}")
    link = here.choose(task=1, force=True)
    assert (link.how, link.key, link.reason) == ("forced", keys[1], f"task 1 is taken by force: {reason}")
    here.found[keys[2]] = fit()
    assert chosen(here, task=1, force=True) == ("task", keys[2])


def test_a_slot_leaves_the_other_slots_out() -> None:
    here = log({A: fit(30.0), C: fit()})
    assert chosen(here, slot=1) == ("only", C)
    assert chosen(here, slot=0) == ("fit", A)
    assert chosen(here, reported_slot=1) == ("only", C)
    assert chosen(here, slot=1, reported_slot=0) == ("only", C), "what the caller says counts"
    unsaid, named = TaskKey(4, None), TaskKey(5, 0, request="r")
    here = log({A: fit(), unsaid: fit(), named: fit()})
    assert set(here.options(reported_slot=1)) == {unsaid, named}
    assert set(here.options(own="s")) == {A, unsaid}
    assert set(here.options(own="s", reported_slot=1)) == {unsaid}
    assert set(here.options()) == {A, unsaid, named}


@pytest.mark.parametrize(("bits", "how"), [(ENOUGH, "fit"), (ENOUGH - 0.5, "only")])
def test_a_task_fits_by_more_than_chance(bits: float, how: str) -> None:
    here = log({A: fit(bits), B: fit(conflicts=1)})
    assert chosen(here) == (how, A)
    weak = " weak" if how == "only" else ""
    said = (
        f"the only one of the log's 2 tasks that contradicts nothing; evidence{weak}: {bits:.1f} bits (task 1 (slot 0))"
    )
    assert here.choose().reason == (f"task 1 (slot 0) fits: {here.found[A]}" if how == "fit" else said)
    assert here.choose().is_weak == (how == "only")


def test_a_task_that_may_as_well_be_the_replys_is_told() -> None:
    best, rival = fit(30.0), fit(25.0)
    here = log({A: best, B: rival, C: fit(9.0, conflicts=1)})
    with pytest.raises(MatchError, match="2 tasks of the log fit this response") as told:
        here.choose()
    assert told.value.candidates == (A, B)
    assert "--most-recent" in str(told.value.hint)
    assert chosen(here, most_recent=True) == ("recent", B)
    said = "most recent of 2 tasks that contradict nothing; evidence: 25.0 bits (task 2 (slot 0))"
    assert here.choose(most_recent=True).reason == said
    best.latest = 99
    assert chosen(here, most_recent=True) == ("recent", A)


def test_what_is_left_is_taken_where_it_is_one_task() -> None:
    here = log({A: fit()})
    assert here.choose().reason == "only task in the log; evidence weak: 0.0 bits (task 1 (slot 0))"
    here = log({A: fit(), B: fit(2.0), C: fit(events=0)})
    with pytest.raises(MatchError, match="2 tasks of the log contradict nothing, and the evidence") as told:
        here.choose()
    assert told.value.candidates == (A, B)
    assert "task 2 (slot 0): 1 events, 2.0 bits" in str(told.value)
    assert "--most-recent takes task 2 (slot 0)" in str(told.value.hint)
    here.found[A].latest = 7
    with pytest.raises(MatchError) as told:
        here.choose()
    assert "--most-recent takes task 1 (slot 0)" in str(told.value.hint)


def test_where_each_task_contradicts_the_reply_the_most_recent_one_says_why() -> None:
    here = log({A: fit(conflicts=1, first_conflict="a"), B: fit(conflicts=1, first_conflict="b")})
    link = here.choose()
    assert (link.how, link.key) == ("none", B)
    assert link.reason == "none of the log's 2 tasks agrees with the response; the first: a"
    assert chosen(here, force=True) == ("none", B), "nothing was asked for"
    assert chosen(here, most_recent=True, force=True) == ("forced", B)
    said = "the most recent task is taken by force: 1 of its 1 events contradict the response, the first: b"
    assert here.choose(most_recent=True, force=True).reason == said
    here.found[A].latest = 9
    assert chosen(here) == ("none", A)
    here._is_after = True
    assert here.choose().reason.endswith("the first: the log was begun after the response had ended")
    lacking = log({A: fit(steps={0})}, proves={1})
    assert lacking.choose().reason.endswith("the first: it proves rejections that the task does not have")
    mixed = log({A: fit(steps={0}), B: fit(conflicts=1, first_conflict="b")}, proves={1})
    assert mixed.choose().reason.endswith("the first: b")


@pytest.mark.parametrize(("closed", "proves", "how"), [(True, (), "empty"), (False, (), "empty"), (True, {1}, "none")])
def test_a_log_without_events_says_that_nothing_was_refused(closed: bool, proves: Any, how: str) -> None:
    here = survey(proves=proves)
    here.close(is_closed=closed)
    link = here.choose()
    assert link.how == how
    words = "the response proves rejections, and the log has none of them"
    assert link.reason == (words if proves else "the log has no events, so that no draw was refused")
    here = survey(proves=proves)
    here.close(is_closed=False, is_cut=True)
    assert here.choose().reason == "the log has no events that could be this response's"


def test_tasks_that_share_a_reply_are_told_by_age_with_the_gaps_of_all() -> None:
    here = survey(keep=True)
    draws = {"rejected": {"id": 3, "text": "x"}, "resampled": {"id": 4, "text": "y"}}
    for step, task, taken in ((1, 2, "y"), (1, 1, "y"), (2, 1, "y"), (3, 1, "z"), (3, 2, "y")):
        here.add(event(step, task_id=task, slot_id=task, **draws | {"resampled": {"id": 4, "text": taken}}))
    first, second = TaskKey(1, 1), TaskKey(2, 2)
    here.found[first].coverage.gaps = [(8, 9)]
    here.found[second].coverage.gaps = [(6, 7)]
    link = here.shared("why", [second, first])
    assert (link.how, link.reason, link.candidates, link.is_weak) == ("shared", "why", (first, second), True)
    assert link.fit is not None
    assert link.fit.steps == set()
    assert sorted(link.fit.coverage.gaps) == [(1, 2), (1, 2), (2, 3), (3, 4), (3, 4), (6, 7), (8, 9)]
    link = here.shared("why", [second, first], has_one=True)
    assert link.fit is not None
    assert link.fit.steps == {1}
    assert sorted(link.fit.coverage.gaps) == [(2, 3), (3, 4), (3, 4), (6, 7), (8, 9)]
    assert [one["step"] for one in here.common_events(link)] == [1]


@pytest.mark.parametrize(
    ("bits", "shared", "more", "is_enough"),
    [
        (ENOUGH, 0.0, {"same_token": 1}, True),
        (ENOUGH, 0.5, {"same_token": 1}, False),
        (ENOUGH + 0.5, 0.5, {"same_token": 1}, True),
        (ENOUGH, 0.0, {"drawn": UNSHARED}, True),
        (ENOUGH, 0.0, {"drawn": UNSHARED - 0.5}, False),
        (ENOUGH, 0.0, {"proven": 1}, True),
    ],
)
def test_evidence_must_be_unlikely_by_chance_and_for_the_same_prompt(
    bits: float, shared: float, more: dict[str, Any], is_enough: bool
) -> None:
    here = survey()
    here.is_complete = True
    mark, own = (0, "x"), (1, "y")
    agreed = [(mark, shared), (own, bits - shared)]
    here.found.update({A: fit(bits, agreed=agreed, **more), B: fit(0.1, agreed=[(mark, 0.1)], by_probability=0)})
    here.found[B].conflicts = 0
    counts = {mark: 2, own: 1}
    assert here._is_enough(here.found[A], counts) == is_enough


def test_a_complete_log_is_needed_where_only_the_lack_of_events_speaks() -> None:
    for length, last, is_complete, is_enough in (
        (4, 3, True, True),
        (4, 2, True, False),
        (4, 9, True, True),
        (4, 3, False, False),
    ):
        here = survey(length, bits=UNSHARED / 4)
        here.is_complete = is_complete
        assert here._is_enough(fit(ENOUGH, last=last), {}) == is_enough


def test_links_say_which_are_weak() -> None:
    for how, is_weak in (("only", True), ("recent", True), ("shared", True), ("empty", True), ("forced", True)):
        assert LogLink(how=how, reason="").is_weak == is_weak
    for how in ("request", "task", "fit", "none"):
        assert not LogLink(how=how, reason="").is_weak
    assert Coverage().knows(0)
