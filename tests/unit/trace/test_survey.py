"""For which steps a log is complete, what belongs to which task, and what contradicts a reply, by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from espalier.trace.foreign.coverage import ENDLESS, Coverage
from espalier.trace.foreign.evidence import EventComparison, Evidence
from espalier.trace.foreign.matching import LogLink, Survey, TaskFit
from espalier.trace.foreign.placing import placed
from espalier.trace.foreign.responses import ApiChoice, ApiStep
from espalier.trace.foreign.tasks import MAX_NAMED, REMEMBERED, TaskKey, Tasks, named_tasks


def event(step: int, number: int | None = None, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"step": step, "task_id": 1, "slot_id": 0, **more}
    return fields if number is None else fields | {"number": number}


def covered(*events: dict[str, Any]) -> Coverage:
    coverage = Coverage()
    for each in events:
        coverage.add(each)
    return coverage


def test_a_lost_number_leaves_a_gap_between_its_neighbours() -> None:
    coverage = covered(event(2, 0), event(4, 1), event(9, 3))
    assert coverage.gaps == [(5, 9)]
    assert [coverage.knows(step) for step in (4, 5, 8, 9)] == [True, False, False, True]
    assert covered(event(3, 1)).gaps == [(0, 3)], "the first one is lost"


@pytest.mark.parametrize(("count", "gaps"), [(2, []), (3, [(5, ENDLESS)]), (1, [])])
def test_a_run_whose_last_events_are_lost_is_not_known_after_the_last_one(count: int, gaps: list[Any]) -> None:
    coverage = covered(event(2, 0), event(4, 1))
    coverage.end({"events": count})
    assert coverage.gaps == gaps
    coverage.end({"events": 9})
    coverage.close(is_complete=False)
    assert coverage.gaps == gaps, "it has ended once"


def test_without_the_note_of_its_end_a_numbered_run_is_open() -> None:
    coverage = covered(event(2, 0))
    coverage.end({})
    coverage.close(is_complete=True)
    assert coverage.gaps == [(3, ENDLESS)]


@pytest.mark.parametrize(
    ("is_complete", "is_late", "gaps"),
    [(True, False, []), (False, False, [(8, ENDLESS)]), (True, True, [(0, 2)]), (False, True, [(8, ENDLESS), (0, 2)])],
)
def test_a_log_without_numbers_is_known_as_far_as_it_was_read(
    is_complete: bool, is_late: bool, gaps: list[tuple[int, int]]
) -> None:
    coverage = covered(event(2), event(7))
    coverage.close(is_complete=is_complete, is_late=is_late)
    assert coverage.gaps == gaps


def test_a_late_log_that_has_the_first_step_lacks_nothing_before_it() -> None:
    coverage = covered(event(0), event(7))
    coverage.close(is_complete=True, is_late=True)
    assert coverage.knows(0)
    assert coverage.knows(3)
    empty = Coverage()
    empty.close(is_complete=True, is_late=True)
    assert empty.knows(0)


def test_steps_of_a_task_grow_and_a_smaller_one_is_another_task() -> None:
    tasks = Tasks()
    keys = [tasks.key(event(step)) for step in (0, 3, 2, 4)]
    assert [key and key.part for key in keys] == [0, 0, 1, 1]
    assert tasks.key(event(4)) is None, "it has been read before"
    assert tasks.key(event(5, rejected={"id": 1})) == TaskKey(1, 0, 1)


def test_numbered_events_say_themselves_what_they_belong_to() -> None:
    tasks = Tasks()
    assert tasks.key(event(5, 0, request_id="r", output=2)) == TaskKey(1, 0, 0, "r", 2)
    assert tasks.key(event(3, 1, request_id="r", output=2)) == TaskKey(1, 0, 0, "r", 2)
    assert tasks.key(event(3, 1, request_id="r", output=2)) is None
    assert tasks.key(event(9, 0, request_id="r", output=2)) is None
    assert tasks.key(event(9, 0, request_id="s")) == TaskKey(1, 0, 0, "s", 0)


def test_only_so_many_events_are_remembered() -> None:
    tasks = Tasks()
    for step in range(REMEMBERED + 1):
        assert tasks.key(event(step)) is not None
    assert tasks.key(event(REMEMBERED)) is None
    assert tasks.key(event(0)) is not None, "the oldest is forgotten"


def test_tasks_are_named_and_the_others_counted() -> None:
    keys = [TaskKey(number, 0) for number in range(MAX_NAMED + 2)]
    assert named_tasks([]) == "no task"
    assert named_tasks(keys[:2]) == "task 0 (slot 0), task 1 (slot 0)"
    assert named_tasks(keys).endswith("task 7 (slot 0) and 2 more")
    assert "more" not in named_tasks(keys[:MAX_NAMED])
    assert str(TaskKey(3, 1, 1)) == "task 3 (slot 1, part 2)"


def survey(length: int = 4, *, keep: bool = False, total: int | None = -1) -> Survey:
    steps = tuple(ApiStep(id=None, text="a", bytes=(97,), logprob=-1.0, top=()) for _ in range(length))
    reply = ApiChoice(
        index=0, text="", reasoning="", finish_reason="length", steps=steps, total=length if total == -1 else total
    )
    return Survey(Evidence(placed(reply), None), keep=keep)


def test_a_slot_that_goes_on_to_a_later_task_ends_the_one_before() -> None:
    for numbers, is_over in (((1, 2), True), ((2, 1), False), ((1, None), False), ((None, 1), False)):
        here = survey()
        for number in numbers:
            here.add(event(0, rejected={"id": number or 0}, task_id=number))
        first = TaskKey(numbers[0], 0)
        assert here.found[first].coverage.is_over == is_over, numbers
    here = survey()
    here.add(event(0, 0, task_id=1))
    here.add(event(0, 0, task_id=2))
    assert not here.found[TaskKey(1, 0)].coverage.is_over, "a numbered run says itself when it ends"


@pytest.mark.parametrize(("tokens", "conflicts"), [(3, 1), (4, 0), (5, 0), (6, 1)])
def test_a_run_of_another_length_is_not_the_replys(tokens: int, conflicts: int) -> None:
    """One token more may be the one that ends the text."""
    here = survey(4)
    here.end({"task_id": 1, "slot_id": 0, "steps": tokens, "events": 0})
    fit = here.found[TaskKey(1, 0)]
    assert (fit.tokens, fit.conflicts) == (tokens, conflicts)
    assert bool(fit.first_conflict) == bool(conflicts)
    here.end({"task_id": 1, "slot_id": 0, "steps": tokens, "events": 0})
    assert fit.conflicts == conflicts, "it counts once"
    open_end = survey(4, total=None)
    open_end.end({"task_id": 1, "slot_id": 0, "steps": tokens, "events": 0})
    assert not open_end.found[TaskKey(1, 0)].conflicts


def test_what_several_tasks_have_in_common_is_told_without_their_names() -> None:
    here = survey(keep=True)
    draws = {"rejected": {"id": 3, "text": "x"}, "resampled": {"id": 4, "text": "y"}}
    for task in (1, 2):
        here.add(event(1, task_id=task, slot_id=task, **draws))
    here.add(event(2, task_id=2, slot_id=2, **draws))
    for task, taken in ((1, "y"), (2, "z")):
        here.add(event(3, task_id=task, slot_id=task, **draws | {"resampled": {"id": 4, "text": taken}}))
    here.add(event(4, task_id=1, slot_id=1, **draws))
    keys = (TaskKey(1, 1), TaskKey(2, 2))
    link = LogLink(how="shared", reason="", fit=TaskFit(steps={1}), candidates=keys)
    assert list(here.common_events(link)) == [{"step": 1, **draws}]
    assert list(here.common_events(LogLink(how="shared", reason="", fit=TaskFit(), candidates=keys))) == []
    assert list(here.common_events(LogLink(how="none", reason=""))) == []
    assert [each["step"] for each in here.events(keys[1])] == [1, 2, 3]
    assert list(survey().events(keys[1])) == []


def test_the_evidence_counts_each_event_once_by_all_that_agrees() -> None:
    here, fit = survey(), TaskFit()
    here._agree(fit, event(1), EventComparison(by_id=True, by_text=True, probabilities=1, bits=2.0))
    here._agree(fit, event(2), EventComparison(by_text=True, probabilities=5, bits=1.5))
    here._agree(fit, event(3), EventComparison(by_text=True, is_proven=True, is_same_token=True))
    assert (fit.by_id, fit.by_text, fit.by_probability, fit.proven, fit.same_token) == (1, 3, 2, 1, 1)
    assert (fit.bits, fit.last) == (3.5, 3)


def test_a_token_counts_as_drawn_again_by_its_probability() -> None:
    here, fit = survey(), TaskFit()
    for drawn in (0.25, 1.0, 0.0, None, 0.5):
        here._agree(fit, event(1), EventComparison(by_id=True, drawn=drawn))
    assert fit.drawn == 3.0
