"""For which steps a log is complete, what belongs to which task, and what contradicts a reply, by themselves."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from espalier.trace.foreign.coverage import ENDLESS, Coverage
from espalier.trace.foreign.evidence import EventComparison, Evidence
from espalier.trace.foreign.matching import APART, ENOUGH, KEPT, UNSHARED, LogLink, MatchError, Survey, TaskFit
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


def test_a_run_without_events_whose_end_is_noted_lacks_nothing_in_a_late_log() -> None:
    coverage = Coverage()
    coverage.end({"events": 0})
    coverage.close(is_complete=False, is_late=True)
    assert coverage.numbered
    assert coverage.gaps == []


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


def survey(
    length: int = 4,
    *,
    keep: bool = False,
    total: int | None = -1,
    is_alone: bool = False,
    bits: float = 0.0,
    proves: Collection[int] = (),
) -> Survey:
    """bits: how unlikely each token was as a first draw. proves: steps at which the reply proves a rejection."""
    likeliest = {"id": 1, "text": "b", "logprob": -9.0}
    step = ApiStep(id=None, text="a", bytes=(97,), logprob=-9.0 - bits * math.log(2), top=(likeliest,))
    reply = ApiChoice(
        index=0,
        text="",
        reasoning="",
        finish_reason="length",
        steps=(step,) * length,
        total=length if total == -1 else total,
    )
    estimates: Any = [
        SimpleNamespace(verdict="rejected" if at in proves else "", rejected=None) for at in range(length)
    ]
    return Survey(Evidence(placed(reply), estimates if proves else None), keep=keep, is_alone=is_alone)


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


NOTHING: Counter[tuple[int, Any]] = Counter()


def test_evidence_that_another_task_of_the_log_has_in_common_counts_for_nothing() -> None:
    here, mark = survey(is_alone=True), (0, "x")
    fit = TaskFit(bits=ENOUGH + 1, agreed=[(mark, 2.0)])
    assert here._is_enough(fit, Counter({mark: 1}))
    assert not here._is_enough(fit, Counter({mark: 2}))
    assert here._is_enough(TaskFit(bits=ENOUGH), NOTHING)
    assert not here._is_enough(TaskFit(bits=ENOUGH - 0.1), NOTHING)


def test_beside_others_with_the_same_prompt_evidence_is_a_token_or_a_text_that_was_unlikely_without_rejections() -> (
    None
):
    here = survey(9, bits=2.0)
    assert not here._is_enough(TaskFit(bits=ENOUGH, last=8, proven=1), NOTHING), "events may be lost"
    assert here._is_enough(TaskFit(bits=ENOUGH, same_token=1), NOTHING)
    assert here._is_enough(TaskFit(bits=ENOUGH, drawn=UNSHARED), NOTHING)
    assert not here._is_enough(TaskFit(bits=ENOUGH, drawn=UNSHARED - 0.1), NOTHING)
    here.close(is_closed=True)
    assert here._is_enough(TaskFit(bits=ENOUGH, proven=1), NOTHING)
    assert here._is_enough(TaskFit(bits=ENOUGH, last=int(UNSHARED / 2) - 1), NOTHING)
    assert not here._is_enough(TaskFit(bits=ENOUGH, last=int(UNSHARED / 2) - 2), NOTHING)
    assert here._is_enough(TaskFit(bits=ENOUGH, last=99), NOTHING), "as far as the reply goes"


@pytest.mark.parametrize(
    ("is_closed", "is_late", "number", "is_complete"),
    [(True, False, None, True), (False, False, None, False), (True, True, None, False), (True, False, 0, False)],
)
def test_a_log_is_complete_that_was_closed_and_begun_in_time_by_another_server_than_ours(
    is_closed: bool, is_late: bool, number: int | None, is_complete: bool
) -> None:
    here = survey()
    here.add(event(1, number))
    here.close(is_closed=is_closed, is_late=is_late)
    assert here.is_complete == is_complete


def test_a_task_without_an_event_that_the_reply_proves_is_no_candidate() -> None:
    here, mine, others, unknown = survey(proves={1}), TaskKey(1, 0), TaskKey(2, 0), TaskKey(3, 0)
    here.found[mine] = TaskFit(events=1, steps={1})
    here.found[others] = TaskFit(events=1, steps={0})
    here.found[unknown] = TaskFit(events=1, steps={0}, coverage=Coverage(gaps=[(1, 2)]))
    assert set(here.candidates()) == {mine, unknown}


def test_a_task_that_agrees_by_its_tokens_alone_has_rivals_and_one_that_agrees_by_more_has_none_far_below_it() -> None:
    here, mark = survey(), (0, "x")
    best = TaskFit(events=2, bits=ENOUGH + APART)
    other = TaskFit(events=1, bits=ENOUGH, agreed=[(mark, ENOUGH)])
    assert here._is_rival(other, best)
    assert not here._is_rival(TaskFit(events=1, bits=ENOUGH - 0.1, agreed=[(mark, 1.0)]), best)
    for more in ({"by_probability": 1}, {"same_token": 1}):
        best = TaskFit(events=2, bits=ENOUGH + APART, **more)
        assert not here._is_rival(other, best)
        assert here._is_rival(TaskFit(events=1, bits=ENOUGH + 0.1, agreed=[(mark, ENOUGH)]), best), "too near"
        assert here._is_rival(TaskFit(events=1, by_probability=1, agreed=[(mark, 0.0)]), best)
        assert here._is_rival(TaskFit(events=2, agreed=[(mark, 0.0)]), best), "what does not agree may be its own"
        assert not here._is_rival(TaskFit(events=KEPT + 9, agreed=[(mark, 0.0)] * KEPT), best)
        assert not here._is_rival(TaskFit(events=1, by_probability=1, conflicts=1), best)
        assert not here._is_rival(TaskFit(events=0), best)


@pytest.mark.parametrize("is_numbered", [False, True])
def test_in_a_complete_log_a_task_is_no_rival_that_lacks_events_without_which_the_text_was_unlikely(
    is_numbered: bool,
) -> None:
    here = survey(9, bits=UNSHARED / 3, proves={8})
    here.close(is_closed=not is_numbered)

    def rival(steps: set[int], gaps: list[tuple[int, int]] | None = None) -> bool:
        other = TaskFit(
            events=1, by_probability=1, steps=steps, coverage=Coverage(numbered=is_numbered, gaps=gaps or [])
        )
        return here._is_rival(other, best)

    best = TaskFit(events=9, same_token=1, bits=99.0, steps={0, 1, 2, 99})
    assert [rival({*range(count)}) for count in range(4)] == [False, True, True, True]
    best.steps = {8}
    assert [rival(set()), rival({8})] == [False, True], "the reply proves a rejection there"
    if is_numbered:
        assert rival(set(), [(0, 9)]), "events are lost"


def test_a_task_agrees_whose_first_step_does_and_that_contradicts_nothing() -> None:
    assert TaskFit(last=0).agrees
    assert not TaskFit().agrees
    assert not TaskFit(last=3, conflicts=1).agrees


def test_a_link_is_told_with_the_evidence_and_the_tasks_that_it_may_be() -> None:
    fit = TaskFit(events=3, by_id=1, by_text=2, by_probability=1, proven=1, bits=9.4321)
    told = {"events": 3, "by_id": 1, "by_text": 2, "by_probability": 1, "proven_by_reply": 1, "bits": 9.4}
    named = LogLink(how="request", reason="r", key=TaskKey(7, 0, request="a"), fit=fit)
    assert named.to_json() == {"by": "request", "reason": "r", "task_id": 7, "slot_id": 0, "request_id": "a", **told}
    plain = LogLink(how="fit", reason="r", key=TaskKey(7, 0), fit=fit)
    assert plain.to_json() == {"by": "fit", "reason": "r", "task_id": 7, "slot_id": 0, **told}
    shared = LogLink(how="shared", reason="r", candidates=(TaskKey(7, 0), TaskKey(8, 1)))
    candidates = [{"task_id": 7, "slot_id": 0}, {"task_id": 8, "slot_id": 1}]
    assert shared.to_json() == {"by": "shared", "reason": "r", "is_weak": True, "candidates": candidates}


def test_the_end_of_a_run_is_read_from_an_event_and_from_the_logs_header() -> None:
    run = {"task_id": 7, "slot_id": 0, "steps": 4, "events": 2}
    inside, header = survey(), survey()
    inside.add(event(1, 0, task_id=8, ended=[run, "no object"]))
    header.close(is_closed=True, header={"ended": [run]})
    for here in (inside, header):
        fit = here.found[TaskKey(7, 0)]
        assert (fit.tokens, fit.coverage.is_over, fit.coverage.gaps) == (4, True, [(0, ENDLESS)])
    assert survey().found == {}


def test_only_so_many_steps_and_agreeing_events_of_a_task_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("espalier.trace.foreign.matching.MOST_STEPS", 2)
    monkeypatch.setattr("espalier.trace.foreign.matching.KEPT", 2)
    here, fit = survey(proves={3}), TaskFit()
    for step in range(4):
        here.add(event(step))
        assert bool(here.candidates()) == (step > 0), "what was not kept is not missed"
    assert here.found[TaskKey(1, 0)].steps == {0, 1}
    taken = {"id": 5, "text": "x"}
    for step in range(3):
        here._agree(fit, event(step, resampled=taken if step else None), EventComparison(by_id=True, bits=step + 0.5))
    assert [bits for _, bits in fit.agreed] == [0.5, 1.5]
    assert [step for (step, _), _ in fit.agreed] == [0, 1]
    assert fit.agreed[1][0][1] == json.dumps([5, "x"])


def test_a_reply_of_another_request_than_the_one_that_is_named_is_refused() -> None:
    here = survey()
    here.add(event(1, 0, request_id="r"))
    here.close(is_closed=True)
    with pytest.raises(MatchError, match="the response is of request 's', not of 'r'") as told:
        here.choose(request="r", own="s")
    assert told.value.field == "request"
    assert here.choose(request="r", own="r").how == here.choose(request="r").how


@pytest.mark.parametrize(
    ("told", "named"), [({"task": 9}, "task 9"), ({"slot": 9}, "slot 9"), ({"request": "x"}, "request 'x'")]
)
def test_what_is_named_and_not_in_the_log_is_refused_with_what_is(told: dict[str, Any], named: str) -> None:
    here = survey()
    here.add(event(1))
    here.close(is_closed=True)
    with pytest.raises(MatchError, match=f"the log has no {named}") as error:
        here.choose(**told)
    assert "task 1 (slot 0)" in str(error.value.hint)


def test_a_run_of_which_the_log_has_the_end_alone_is_no_task_that_could_be_the_replys() -> None:
    here = survey(4)
    here.end({"task_id": 1, "slot_id": 0, "steps": 9, "events": 0})
    here.close(is_closed=True)
    for told in ({}, {"most_recent": True}, {"most_recent": True, "force": True}):
        link = here.choose(**told)  # type: ignore[arg-type]
        assert (link.how, link.reason) == ("none", "the log has no events that could be this response's")
