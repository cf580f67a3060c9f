"""How a log is linked to a reply: each way a merge went wrong, or would have guessed, has a test here."""

from __future__ import annotations

import io
import json
import math
from random import Random
from typing import Any

import pytest

from espalier.trace.foreign.follow import LogFollower
from espalier.trace.foreign.log_reader import LogReader
from espalier.trace.foreign.matching import MatchError
from espalier.trace.foreign.merge import CombinedTrace, ReplySide, combined, merge
from espalier.trace.foreign.responses import read_response
from espalier.trace.foreign.tasks import Tasks
from tests.fuzz.merge.files import rows_of, written
from tests.fuzz.merge.run import SCHEMAS
from tests.fuzz.merge.server import HALVES, Request, Sampling, entries_of, run


def request(task: int, prompt: int, *, heat: float = 1.0, seed: int = 0, slot: int = 0) -> Request:
    found = Request(
        name=f"req-{task}",
        prompt=prompt,
        template=SCHEMAS[1],
        begin=0,
        task=task,
        slot=slot,
        sampling=Sampling(temperature=heat, top_k=40),
    )
    run(found, Random(seed), most=60)
    return found


def rows(*requests: Request, own: bool = False) -> list[dict[str, Any]]:
    return [row for one in requests for row in rows_of(one, candidates=10, is_own=own)]


def log(events: list[dict[str, Any]], *, version: str = "2") -> str:
    return f'{{"log_version":"{version}","timestamp":"then","events":[' + written(events)


def reply(one: Request, *, leaves_out: bool = False, **more: Any) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"content": ""},
        "finish_reason": one.finish,
        "logprobs": {"content": entries_of(one, top=5, leaves_out=leaves_out, with_ids=True)},
    }
    return {"id": "c", "choices": [choice], "usage": {"completion_tokens": len(one.steps)}, **more}


def merged(data: dict[str, Any], text: str, **options: Any) -> CombinedTrace:
    return merge(read_response(json.dumps(data)), lambda: LogReader(io.BytesIO(text.encode())), **options)


def truth(one: Request) -> list[bool]:
    return [step.rejected is not None for step in one.steps]


def states(found: CombinedTrace) -> list[bool | None]:
    return [one["rejection_sampling"]["was_rejected"] for one in found.data["steps"]]


MINE, OTHER = request(7, 1, seed=3), request(9, 2, seed=4)


def test_a_task_among_others_is_found_and_the_evidence_is_told() -> None:
    found = merged(reply(MINE), log(rows(OTHER, MINE)))
    assert states(found) == truth(MINE)
    link = found.data["metadata"]["link"]
    assert (link["by"], link["task_id"], link["by_id"]) == ("fit", 7, sum(truth(MINE)))
    assert link["by_probability"] > 5
    assert "agree by id" in link["reason"]


def test_a_null_draw_loses_no_events() -> None:
    events = rows(MINE, OTHER)
    events[0]["resampled"] = None
    assert states(merged(reply(MINE), log(events))) == truth(MINE)


def test_an_event_at_the_end_token_loses_no_events() -> None:
    data = reply(MINE)
    data["choices"][0]["logprobs"]["content"].pop()
    assert states(merged(data, log(rows(OTHER, MINE)))) == truth(MINE)
    del data["usage"]
    assert states(merged(data, log(rows(OTHER, MINE)))) == truth(MINE)[:-1]


def test_tokens_that_end_a_text_share_their_empty_spelling_and_contradict_nothing() -> None:
    """As our server's reply has them: no ids, and no bytes for any token that ends a text."""
    ends = {900 + place: 0.02 * (place + 1) for place in range(8)}
    data, events = reply(MINE), rows(MINE)
    for entry in data["choices"][0]["logprobs"]["content"]:
        entry["top_logprobs"] += [{"token": "", "bytes": [], "logprob": math.log(p)} for p in ends.values()]
        for one in (entry, *entry["top_logprobs"]):
            one.pop("id", None)
    for event in events:
        listed = [{"id": number, "text": "", "bytes": [], "prob": p} for number, p in ends.items()]
        event["pre_masking"] = [*listed, *event["pre_masking"]]
    found = merged(data, log(events), task=7)
    assert states(found) == truth(MINE)
    assert found.data["metadata"]["link"]["by_probability"] > 5


@pytest.mark.parametrize(
    ("spelled", "is_same"),
    [
        ("</s>", True),
        ("<|im_end|>", True),
        (" [/INST]", True),
        ("\ufffd", True),
        ("", True),
        (" of", False),
        ("1", False),
    ],
)
def test_a_token_that_the_log_leaves_empty_is_a_control_token_of_the_reply_or_another_one(
    spelled: str, is_same: bool
) -> None:
    """A draw of the token that ends a text was taken for the draw of a word in a reply without ids."""
    data, place = reply(MINE), 3
    for position, entry in enumerate(data["choices"][0]["logprobs"]["content"]):
        entry.pop("id")
        entry["top_logprobs"] = []
        if position == place:
            entry |= {"token": spelled, "bytes": list(spelled.encode())}
    event = {"task_id": 9, "slot_id": 0, "step": place, "rejected": {"id": 5, "text": "x", "prob": 0.5}}
    assert merged(data, log([event | {"resampled": {"id": 0, "text": "", "prob": 1.0}}])).is_matched == is_same


def test_gaps_in_the_log_probabilities_lose_no_events() -> None:
    found = (request(7, 1, seed=seed) for seed in range(50))
    one = next(one for one in found if any(step.token in HALVES for step in one.steps))
    data = reply(one, leaves_out=True)
    ids = [step.token for step in one.steps]
    assert len(data["choices"][0]["logprobs"]["content"]) < len(ids)
    known = merged(data | {"__verbose": {"tokens": ids}}, log(rows(one)), task=7)
    assert states(known) == truth(one)
    assert [step["token"]["id"] for step in known.data["steps"]] == ids
    for stated, true in zip(states(merged(data, log(rows(one)), task=7)), truth(one), strict=True):
        assert stated in (None, true)


def test_a_log_that_was_cut_says_nothing_of_later_steps() -> None:
    events = rows(MINE)
    text = log(events)
    cut = merged(reply(MINE), text[: text.index('"step": ', len(text) // 2) + 60], task=7)
    last = max(place for place, one in enumerate(states(cut)) if one)
    assert states(cut)[: last + 1] == truth(MINE)[: last + 1]
    assert set(states(cut)[last + 1 :]) == {None}
    assert cut.data["summary"]["unknown_steps"] == len(MINE.steps) - last - 1
    said = f"of {len(MINE.steps) - last - 1} of {len(MINE.steps)} steps the log does not say"
    assert [warning[: len(said)] for warning in cut.warnings] == [said]


@pytest.mark.parametrize("text", [log(rows(OTHER)), "", '{"log_version":"2"'])
def test_a_foreign_log_or_none_makes_every_step_unknown(text: str) -> None:
    found = merged(reply(MINE), text)
    assert set(states(found)) == {None}
    assert not found.is_matched
    summary = found.data["summary"]
    assert (summary["unknown_steps"], summary["rejection_rate"]) == (len(MINE.steps), None)


@pytest.mark.parametrize("text", [log([]), '{"log_version":"2","events":['])
def test_a_log_without_events_says_that_nothing_was_rejected_and_is_marked(text: str) -> None:
    found = merged(reply(MINE), text)
    assert set(states(found)) == {False}
    assert found.data["metadata"]["link"]["is_weak"]
    assert found.data["summary"]["rejection_rate"] == 0.0
    greedy = request(7, 1, heat=0.0)
    settings = {"__verbose": {"generation_settings": {"temperature": 0.0, "grammar": "x"}}}
    proven = merged(reply(greedy, **settings), text)
    assert (proven.is_matched, "proves rejections" in proven.warnings[0]) == (False, True)


def weak(*tasks: int) -> str:
    """A log in which each task has one event, of a token that is common to all texts."""
    one = next(row for row in rows(OTHER) if row["step"] == 0)
    return log([{**one, "pre_masking": [], "task_id": task} for task in tasks])


def test_the_only_task_of_a_log_is_merged_and_marked() -> None:
    found = merged(reply(MINE), weak(9))
    assert states(found) == [place == 0 for place in range(len(MINE.steps))]
    link = found.data["metadata"]["link"]
    assert (link["by"], link["is_weak"], link["task_id"]) == ("only", True, 9)
    assert link["reason"].startswith("only task in the log; evidence weak: 0.0 bits")
    assert found.data["summary"]["rejection_rate"] == 1 / len(MINE.steps)


def test_of_several_tasks_the_most_recent_is_taken_on_demand_and_else_they_are_listed() -> None:
    with pytest.raises(MatchError, match=r"2 tasks .*weak: task 9 .*0\.0 bits, task 4") as caught:
        merged(reply(MINE), weak(9, 4))
    assert caught.value.hint is not None
    assert "--most-recent takes task 4" in caught.value.hint
    assert [key.task for key in caught.value.candidates] == [9, 4]
    found = merged(reply(MINE), weak(9, 4), most_recent=True)
    assert (found.data["metadata"]["link"]["by"], found.data["metadata"]["link"]["task_id"]) == ("recent", 4)
    only = merged(reply(MINE), weak(9).replace("]}", "," + log(rows(OTHER)).partition("[")[2]))
    assert only.data["metadata"]["link"]["reason"].startswith("the only one of the log's 2 tasks")


def test_what_contradicts_the_reply_is_merged_by_force_only() -> None:
    text = log(rows(OTHER))
    for options in ({}, {"task": 9}, {"most_recent": True}, {"force": True}):
        assert not merged(reply(MINE), text, **options).is_matched
    for options in ({"task": 9}, {"most_recent": True}, {"slot": 0}):
        found = merged(reply(MINE), text, force=True, **options)
        assert found.data["metadata"]["link"]["by"] == "forced"
        notes = [one["rejection_sampling"].get("note", "") for one in found.data["steps"]]
        assert any("taken by force: step" in note for note in notes)


def test_a_log_that_was_begun_after_the_reply_is_not_its_own() -> None:
    text = weak(9).replace('"then"', '"2027-01-15T08:00:00Z"')
    made = {"created": 1_700_000_000, "timings": {"prompt_ms": 0, "predicted_ms": 3000}}
    found = merged(reply(MINE, **made), text)
    assert (found.is_matched, "begun after the response" in found.warnings[0]) == (False, True)


def test_in_an_open_log_a_whole_reply_has_no_unknown_steps_and_a_cut_one_has() -> None:
    """The server writes an event before it sends the token."""
    text = log(rows(MINE)).rpartition("]")[0] + ",\n"
    assert states(merged(reply(MINE), text, task=7)) == truth(MINE)
    head = {"id": "c", "model": "m"}
    entries = reply(MINE)["choices"][0]["logprobs"]["content"]
    lines = [{**head, "choices": [{"index": 0, "delta": {}, "logprobs": {"content": [one]}}]} for one in entries]
    stream = "".join(f"data: {json.dumps(one)}\n\n" for one in lines)
    last = max(place for place, is_rejected in enumerate(truth(MINE)) if is_rejected)
    events = [row for row in rows(MINE) if row["step"] < last]
    cut = merge(read_response(stream), lambda: LogReader(io.BytesIO(log(events).rpartition("]")[0].encode())), task=7)
    assert None in states(cut)


def test_another_request_with_the_same_prompt_is_not_taken_for_this_one() -> None:
    forced = [request(task, 5, seed=seed) for task, seed in ((1, 1), (2, 2))]
    for one in forced:  # cut where only fixed tokens have come
        del one.steps[6:]
        one.finish = "length"
    open_log = log(rows(forced[0])).rpartition("]")[0]
    assert merged(reply(forced[1]), open_log).data["metadata"]["link"]["is_weak"]
    if any(truth(forced[1])):
        with pytest.raises(MatchError, match="tasks of the log fit"):
            merged(reply(forced[1]), log(rows(*forced)))


def test_what_the_reply_proves_contradicts_a_wrong_claim() -> None:
    greedy = request(7, 1, heat=0.0)
    settings = {"__verbose": {"generation_settings": {"temperature": 0.0, "grammar": "x"}}}
    found = merged(reply(greedy, **settings), log(rows(greedy)))
    assert states(found) == truth(greedy)
    accepted = truth(greedy).index(False)
    false = {
        **rows(greedy)[0],
        "step": accepted,
        "resampled": None,
        "post_grammar": [],
        "rejected": {"id": 5, "text": "0", "prob": 1.0},
    }
    refuted = merged(reply(greedy, **settings), log([false]), task=7)
    assert (refuted.is_matched, "cannot have had a rejection" in refuted.warnings[0]) == (False, True)
    missing = [row for row in rows(greedy) if row["step"] != truth(greedy).index(True)]
    assert states(merged(reply(greedy, **settings), log(missing), task=7))[truth(greedy).index(True)] is None


def test_lost_events_of_a_log_with_numbers_leave_gaps_and_doubled_ones_none() -> None:
    events = rows(MINE, own=True)
    whole = merged(reply(MINE), log(events, version="espalier-1"), request="req-7")
    assert states(whole) == truth(MINE)
    twice = merged(reply(MINE), log([one for one in events for _ in "ab"], version="espalier-1"), request="req-7")
    assert states(twice) == truth(MINE)
    del events[1]
    gap = merged(reply(MINE), log(events, version="espalier-1"), request="req-7")
    for stated, true in zip(states(gap), truth(MINE), strict=True):
        assert stated in (None, true)
    assert None in states(gap)


def test_one_client_may_use_one_name_twice() -> None:
    twins = [request(task, task, seed=task) for task in (1, 2)]
    for one in twins:
        one.name = "curl"
    data = reply(twins[1]) | {"request_id": "curl"}
    assert states(merged(data, log(rows(*twins, own=True), version="espalier-1"))) == truth(twins[1])


def test_a_log_that_was_begun_later_says_nothing_of_the_first_steps() -> None:
    events = [row for row in rows(MINE) if row["step"] >= 5]
    text = log(events).replace('"then"', '"2027-01-15T08:00:02Z"')
    made = {"created": 1_800_000_003, "timings": {"prompt_ms": 0, "predicted_ms": 3000}}
    found = merged(reply(MINE, **made), text, task=7)
    first = next(place for place, one in enumerate(states(found)) if one is not None)
    assert first == events[0]["step"]


# Following


def test_fault_8_a_log_is_followed_and_linked_while_it_is_written(tmp_path: Any) -> None:
    path = tmp_path / "log.json"
    first, second = log(rows(MINE)), log(rows(OTHER))
    with LogFollower(path) as follower:
        assert follower.poll().events == []
        path.write_text(first[: len(first) // 2])
        events = follower.poll().events
        assert 0 < len(events) < sum(truth(MINE))
        with path.open("a") as file:
            file.write(first[len(first) // 2 :])
        news = follower.poll()
        events += news.events
        assert (len(events), news.is_closed, news.files) == (sum(truth(MINE)), True, 1)
        path.rename(tmp_path / "log.json.1")
        path.write_text(second)
        assert len(follower.poll().events) == sum(truth(OTHER))
        path.write_text(first[:-4])  # truncated and begun again
        again = follower.poll()
        assert (len(again.events), again.files, again.is_closed) == (sum(truth(MINE)), 3, False)
        assert follower.poll().events == []
    sides = ReplySide.of(read_response(json.dumps(reply(MINE))))
    survey = sides.survey(keep=True)
    for event in (*events, *again.events):
        survey.add(event)
    survey.close(is_closed=True)
    link = survey.choose()
    assert link.key is not None
    made = combined(sides, link, survey.events(link.key), log_version="2", timestamp="then")
    assert states(made) == truth(MINE)


def test_a_bare_minus_inf_is_compared_as_a_refusal() -> None:
    event = {**rows(MINE)[0], "post_grammar": [{"id": MINE.steps[rows(MINE)[0]["step"]].token, "logit": -math.inf}]}
    assert "masked token" in merged(reply(MINE), log([event]), task=7).warnings[0]


def test_tasks_of_one_number_are_kept_apart_after_a_restart() -> None:
    tasks = Tasks()
    keys = [tasks.key({"task_id": 0, "slot_id": 0, "step": step}) for step in (0, 4, 2, 3)]
    assert [key.part for key in keys if key is not None] == [0, 0, 1, 1]
