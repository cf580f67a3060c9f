"""A response and a rejection log become one. Every fault of the original tracer that can occur here has a test."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.errors import InputError
from espalier.trace.foreign.evidence import Evidence
from espalier.trace.foreign.log_reader import LogReader
from espalier.trace.foreign.matching import LogLink, MatchError, Unmatched
from espalier.trace.foreign.merge import (
    LONGEST,
    CombinedTrace,
    _is_after,
    _is_late,
    _step,
    estimate,
    merge,
    merge_files,
    text_of,
)
from espalier.trace.foreign.placing import placed
from espalier.trace.foreign.responses import ApiStep, ResponseError, read_response
from espalier.trace.foreign.tasks import TaskKey, Tasks


def token(id_: int, text: str, logprob: float, *top: tuple[int, str, float]) -> dict[str, Any]:
    near = [{"id": i, "token": t, "bytes": list(t.encode()), "logprob": lp} for i, t, lp in top]
    return {"id": id_, "token": text, "bytes": list(text.encode()), "logprob": logprob, "top_logprobs": near}


STEPS = [
    token(11, "a", -0.1, (11, "a", -0.1), (12, "b", -3.0)),
    token(12, "b", -2.0, (13, "-info", -0.2), (12, "b", -2.0)),
    token(13, "-info", -0.5, (13, "-info", -0.5), (11, "a", -1.5)),
]


def response(steps: Sequence[Any] = STEPS, **more: Any) -> dict[str, Any]:
    text = "".join(one["token"] for one in steps)
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "logprobs": {"content": list(steps)},
    }
    return {"id": "chatcmpl-1", "model": "m", "created": 5, "object": "chat.completion", "choices": [choice], **more}


def event(task: int, step: int, taken: dict[str, Any] | int, *, slot: int = 0, **more: Any) -> dict[str, Any]:
    found = taken if isinstance(taken, dict) else STEPS[taken]
    return {
        "task_id": task,
        "slot_id": slot,
        "step": step,
        "rejected": {"id": 99, "text": "<x>", "prob": 0.9},
        "pre_masking": [{"id": 99, "text": "-infinite", "prob": 0.9}],
        "post_grammar": [{"id": 99, "text": "<x>", "logit": -math.inf}],
        "post_chain": [],
        "resampled": {"id": found["id"], "text": found["token"], "prob": 1.0},
        **more,
    }


def written(events: Sequence[dict[str, Any]], *, closed: bool = True) -> str:
    body = ",".join(json.dumps(one).replace("-Infinity", "-inf") for one in events)
    return '{"log_version":"2","timestamp":"then","events":[' + body + ("]}" if closed else "")


def merged(data: dict[str, Any], log: str, **told: Any) -> CombinedTrace:
    """Task 7, unless another is told: these logs are too short for a fit."""
    return fitted(data, log, **{"task": 7, **told})


def fitted(data: dict[str, Any], log: str, **told: Any) -> CombinedTrace:
    return merge(read_response(json.dumps(data)), lambda: LogReader(io.BytesIO(log.encode())), **told)


def rejected(found: CombinedTrace) -> list[int]:
    return [one["step"] for one in found.data["steps"] if one["rejection_sampling"]["was_rejected"]]


def unknown(found: CombinedTrace) -> list[int]:
    return [one["step"] for one in found.data["steps"] if one["rejection_sampling"]["was_rejected"] is None]


def test_the_combined_form_has_every_field_of_the_original_and_those_its_readme_leaves_out():
    found = merged(response(), written([event(7, 1, 1)]))
    assert found.data == {
        "metadata": {
            "request_id": "chatcmpl-1",
            "model": "m",
            "created": 5,
            "rejection_log_version": "2",
            "rejection_log_timestamp": "then",
            "link": found.data["metadata"]["link"],
        },
        "steps": [
            {
                "step": place,
                "token": {"id": one["id"], "text": one["token"], "bytes": one["bytes"], "logprob": one["logprob"]},
                "api_top_logprobs": one["top_logprobs"],
                "rejection_sampling": found.data["steps"][place]["rejection_sampling"],
            }
            for place, one in enumerate(STEPS)
        ],
        "summary": {
            "total_steps": 3,
            "rejected_steps": 1,
            "rejection_rate": 1 / 3,
            "final_output": "ab-info",
            "accepted_steps": 2,
            "unknown_steps": 0,
        },
    }
    assert list(found.data["steps"][1]["rejection_sampling"]) == [
        "task_id",
        "slot_id",
        "was_rejected",
        "rejected",
        "pre_masking",
        "post_grammar",
        "post_chain",
        "resampled",
    ]
    assert list(found.data["steps"][0]["rejection_sampling"]) == ["was_rejected", "note"]
    assert json.loads(text_of(found))["steps"][1]["rejection_sampling"]["post_grammar"][0]["logit"] is None
    assert text_of(found).startswith('{\n  "metadata": {\n    "request_id"')


def test_fault_1_minus_inf_within_a_text_stays_as_it_is():
    told = merged(response(), written([event(7, 1, 1)])).data
    assert told["steps"][2]["token"]["text"] == "-info"
    assert told["steps"][1]["rejection_sampling"]["pre_masking"][0]["text"] == "-infinite"


@pytest.mark.parametrize("closed", [True, False])
def test_fault_2_a_log_merges_whether_it_was_closed_or_cut(closed):
    found = merged(response(), written([event(7, 1, 1)], closed=closed))
    assert (rejected(found), unknown(found)) == ([1], [])
    cut = merged(response(), written([event(7, 0, 0), event(7, 1, 1)])[:-40])
    assert (rejected(cut), unknown(cut)) == ([0], [1, 2])


def test_fault_3_a_later_task_does_not_overwrite_the_steps_of_an_earlier_one():
    log = written([event(7, 0, 0), event(8, 1, STEPS[0]), event(7, 1, 1), event(8, 2, STEPS[0])])
    found = merged(response(), log)
    assert (rejected(found), found.task.task if found.task else None) == ([0, 1], 7)


def test_fault_4_the_rejections_of_another_request_are_not_this_ones():
    found = fitted(response(), written([event(8, 1, STEPS[0]), event(8, 2, STEPS[0])]))
    assert (rejected(found), unknown(found), found.is_matched) == ([], [0, 1, 2], False)
    assert "none of the log's 1 tasks agrees" in found.warnings[0]


GREEDY = {"generation_settings": {"temperature": 0.0}}


def test_an_ambiguous_match_is_refused_unless_told():
    first = {"id": 13, "text": "-info", "prob": 0.9}  # which the response proves at temperature 0
    log = written([event(7, 1, 1, rejected=first), event(8, 1, 1, slot=1, rejected=first)])
    with pytest.raises(MatchError, match=r"task 7 \(slot 0\), task 8 \(slot 1\)"):
        fitted(response(__verbose=GREEDY), log)
    assert rejected(merged(response(), log, task=8)) == [1]
    told = fitted(response(__verbose=GREEDY), log, slot=0)
    assert told.data["steps"][1]["rejection_sampling"]["task_id"] == 7
    told = fitted(response(__verbose=GREEDY | {"id_slot": 1}), log)
    assert told.data["steps"][1]["rejection_sampling"]["task_id"] == 8


def test_a_task_that_is_told_and_contradicts_the_response_is_not_taken():
    found = merged(response(), written([event(8, 1, STEPS[0])]), task=8)
    assert (rejected(found), found.is_matched) == ([], False)
    assert "task 8 does not fit: 1 of its 1 events contradict the response" in found.warnings[0]


def test_a_task_or_slot_that_the_log_does_not_have_is_refused():
    for told in ({"task": 9}, {"slot": 9}):
        with pytest.raises(MatchError, match="the log has no"):
            merged(response(), written([event(7, 1, 1)]), **told)


def test_a_server_that_was_started_again_counts_its_tasks_anew():
    log = written([event(7, 1, STEPS[0]), event(7, 2, STEPS[0]), event(7, 0, 0), event(7, 1, 1)])
    found = merged(response(), log)
    assert (rejected(found), found.task.part if found.task else None) == ([0, 1], 1)


def test_fault_6_a_response_without_log_probabilities_is_merged_from_the_log_alone():
    bare = response(usage={"completion_tokens": 3})
    bare["choices"][0]["logprobs"] = None
    found = fitted(bare, written([event(7, 1, 1)]))
    assert (rejected(found), unknown(found), found.data["summary"]["rejection_rate"]) == ([1], [], 1 / 3)
    assert "no log probabilities" in found.data["metadata"]["note"]
    assert [one["token"]["text"] for one in found.data["steps"]] == ["", "b", ""]
    with pytest.raises(ResponseError, match="choice 0 of the response has no log probabilities"):
        estimate(read_response(json.dumps(bare)))


def test_a_response_without_log_probabilities_or_a_count_has_the_steps_up_to_the_last_event():
    bare = response()
    bare["choices"][0]["logprobs"] = None
    found = fitted(bare, written([event(7, 1, 1)]))
    assert [one["token"]["text"] for one in found.data["steps"]] == ["", "b"]
    assert (rejected(found), found.data["summary"]["total_steps"]) == ([1], 2)
    found = fitted(bare, written([event(7, 1, 1), event(7, 2, 2)]))
    assert (rejected(found), found.data["summary"]["total_steps"]) == ([1, 2], 3)


def test_what_a_caller_names_counts_before_the_task_that_the_reply_states():
    log = written([event(7, 1, 1), event(8, 0, 0, slot=1), event(9, 1, 1, slot=2, request_id="r")])

    def link(**told: Any) -> Any:
        return fitted(response(task_id=7), log, **told).data["metadata"]["link"]

    assert (link()["task_id"], link()["by"]) == (7, "task")
    assert link(task=8)["task_id"] == 8
    assert link(slot=1)["task_id"] == 8
    assert link(request="r")["task_id"] == 9


def test_a_log_is_late_or_too_late_by_the_times_that_both_tell() -> None:
    for created, seconds, begun, is_late, is_after in (
        (1000, 3.0, 996.0, False, False),
        (1000, 3.0, 996.5, True, False),
        (1000, 3.0, 1005.0, True, False),
        (1000, 3.0, 1005.5, True, True),
        (1000, 0.0, 1000.0 - LONGEST - 1, False, False),
        (1000, 0.0, 1000.5 - LONGEST - 1, True, False),
        (1000, 0.0, 1000.0 + LONGEST + 2, True, False),
        (1000, 0.0, 1000.5 + LONGEST + 2, True, True),
        (1, 1.0, 9.0, True, True),
        (0, 1.0, 9.0, False, False),
        (1000, 3.0, None, False, False),
    ):
        reply: Any = SimpleNamespace(created=created, seconds=seconds)
        assert (_is_late(reply, begun), _is_after(reply, begun)) == (is_late, is_after), (created, seconds, begun)


@pytest.mark.parametrize(
    ("begun", "timings", "is_after"),
    [
        (5, {"prompt_ms": 1000, "predicted_ms": 2000}, False),
        (6, {"prompt_ms": 1000, "predicted_ms": 2000}, True),
        (602, {}, False),
        (603, {}, True),
        (None, {}, False),
    ],
)
def test_a_log_is_too_late_for_a_reply_that_ended_two_seconds_before_it(
    begun: int | None, timings: dict[str, int], is_after: bool
) -> None:
    made = 1_800_000_000
    log = written([event(7, 1, 1)])
    if begun is not None:
        log = log.replace('"then"', json.dumps(datetime.fromtimestamp(made + begun, UTC).isoformat()))
    found = fitted(response(created=made, **({"timings": timings} if timings else {})), log)
    assert any("begun after the response had ended" in one for one in found.warnings) == is_after
    assert found.is_matched == (not is_after)
    assert fitted(response(created=0), log).is_matched, "it does not say when it was made"


def test_what_is_unmatched_says_how_its_task_is_taken_all_the_same() -> None:
    for key, forced in (
        (TaskKey(7, 0), "--task 7 --force takes it all the same; "),
        (TaskKey(None, 0), ""),
        (None, ""),
    ):
        link = LogLink(how="none", reason="it contradicts", key=key)
        with pytest.raises(Unmatched, match="nothing is written: it contradicts") as told:
            CombinedTrace(data={}, warnings=(), link=link).check()
        assert told.value.hint == f"{forced}--estimate does without a log"
    CombinedTrace(data={}, warnings=(), link=LogLink(how="fit", reason="it fits")).check()
    CombinedTrace(data={}, warnings=(), link=None).check()


def test_one_task_number_in_two_slots_is_refused_unless_the_slot_is_told():
    log = written([event(7, 1, 1), event(7, 1, 1, slot=1)])
    with pytest.raises(MatchError):
        fitted(response(), log, task=7)
    assert rejected(fitted(response(), log, task=7, slot=1)) == [1]


def test_the_text_of_a_token_is_the_replys_and_the_logs_only_where_the_reply_lacks_it():
    step = ApiStep(id=None, text="b", bytes=None, logprob=-1.0, top=())
    lacking = ApiStep(id=None, text="", bytes=None, logprob=None, top=(), is_missing=True)
    taken, sampled = {"resampled": {"id": 4, "text": "log"}}, {"was_rejected": True}
    assert _step(0, step, sampled, taken)["token"]["text"] == "b"
    assert _step(0, step, sampled, taken)["token"]["id"] == 4
    assert _step(0, lacking, sampled, taken)["token"]["text"] == "log"
    assert _step(0, lacking, sampled, {"resampled": {"id": 4, "text": None}})["token"]["text"] == ""
    assert _step(0, lacking, {"was_rejected": False}, taken)["token"]["id"] is None
    assert _step(0, lacking, sampled, taken)["token"]["is_missing"] is True
    assert "is_missing" not in _step(0, step, sampled, taken)["token"]


def test_a_task_whose_words_are_not_in_the_text_is_not_merged_into_a_response_without_log_probabilities():
    bare = response(usage={"completion_tokens": 40})
    bare["choices"][0] |= {"logprobs": None, "message": {"content": "Ada lives in a small walled garden in the north"}}
    other = {"id": 5, "token": "Paris"}
    found = fitted(bare, written([event(7, 3, other)]))
    assert not found.is_matched
    assert "does not go on with" in found.warnings[0]
    assert fitted(bare, written([event(7, 3, other), event(8, 3, {"id": 6, "token": "walled"})])).task.task == 8


def test_choices_without_one_are_a_clear_error():
    with pytest.raises(ResponseError, match="no choices"):
        fitted(response() | {"choices": []}, written([]))


def test_fault_8_of_several_choices_the_one_that_is_asked_for_is_merged():
    data = response()
    data["choices"].append({"index": 1, "message": {"content": "b"}, "logprobs": {"content": [STEPS[1]]}})
    found = merged(data, written([event(7, 0, 1)]), choice=1)
    assert (rejected(found), found.data["summary"]["final_output"]) == ([0], "b")
    assert "2 choices" in found.warnings[-1]
    with pytest.raises(ResponseError, match="no choice 2"):
        fitted(data, written([]), choice=2)


def test_fault_7_a_recorded_stream_merges_as_the_whole_response_does():
    lines = [": comment"]
    for place, one in enumerate(STEPS):
        delta = {"index": 0, "delta": {"content": one["token"]}, "logprobs": {"content": [one]}}
        lines.append("data: " + json.dumps({"id": "chatcmpl-1", "model": "m", "created": 5, "choices": [delta]}))
        lines += ["", f"id: {place}"]
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    lines += ["data: " + json.dumps({"id": "chatcmpl-1", "choices": [end]}), "data: [DONE]"]
    log = written([event(7, 1, 1)])
    found = merge(read_response("\n".join(lines)), lambda: LogReader(io.BytesIO(log.encode())), task=7)
    assert found.data == merged(response(), log).data


def test_llama_servers_own_route_and_probabilities_after_sampling_are_read():
    native = {"content": "ab", "stop_type": "eos", "id_slot": 0, "completion_probabilities": STEPS[:2]}
    assert (
        read_response(json.dumps(native)).choice().steps
        == read_response(json.dumps(response(STEPS[:2]))).choice().steps
    )
    after = [{"id": 11, "token": "a", "bytes": [97], "prob": 0.5, "top_probs": [{"id": 11, "token": "a", "prob": 0.5}]}]
    found = merged(native | {"completion_probabilities": after}, written([event(7, 0, 0)]))
    assert found.data["steps"][0]["token"]["logprob"] == math.log(0.5)
    assert found.data["metadata"]["post_sampling_probs"] is True
    with pytest.raises(InputError, match="after sampling"):
        estimate(read_response(json.dumps(native | {"completion_probabilities": after})))


def test_the_first_shape_of_completions_is_matched_by_text():
    old = {
        "tokens": ["a", "b"],
        "token_logprobs": [-0.1, -2.0],
        "top_logprobs": [{"a": -0.1}, {"-info": -0.2, "b": -2}],
    }
    data = {"id": "c", "model": "m", "created": 1, "choices": [{"index": 0, "text": "ab", "logprobs": old}]}
    found = merged(data, written([event(7, 1, 1)]))
    assert rejected(found) == [1]
    assert found.data["steps"][0]["token"] == {"id": None, "text": "a", "bytes": None, "logprob": -0.1}


def test_an_event_beyond_the_response_or_of_another_token_contradicts_it():
    compare = Evidence(
        placed(read_response(json.dumps(response(usage={"completion_tokens": 3}))).choice()), None
    ).compare
    assert compare(event(1, 1, 1)).by_id
    assert "beyond" in compare(event(1, 3, 1)).conflict
    assert "took token 11, the response has 12" in compare(event(1, 1, 0)).conflict
    assert not compare({"step": 1, "resampled": None}).conflict


def test_files_are_named_where_they_cannot_be_read(tmp_path):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(response()))
    with pytest.raises(InputError, match=r"nothing\.json"):
        merge_files(path, tmp_path / "nothing.json")
    with pytest.raises(InputError, match=r"nowhere\.json"):
        merge_files(tmp_path / "nowhere.json", path)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "empty"),
        ("[1]", "no object but a list"),
        ("{", "no JSON"),
        ("hello", "neither a JSON object nor a recorded stream"),
        ('{"error": {"message": "model not found"}}', "model not found"),
        ('{"choices": [1]}', r"choices\[0\] is no object"),
        ('{"choices": [{"logprobs": {"content": [3]}}]}', r"content|logprobs\[0\]"),
        ("data: {bad}\n\n", "line 1 of the stream"),
        ("data: [DONE]\n", "holds no choice"),
        ('{"foo": 1}', "no choices"),
    ],
)
def test_what_is_no_response_is_said(text, fault):
    with pytest.raises(ResponseError, match=fault):
        read_response(text)


def test_a_stream_whose_last_line_is_cut_keeps_what_came_before():
    one = {"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [STEPS[0]]}}]}
    text = "data: " + json.dumps(one) + "\n\ndata: " + json.dumps(one)[:30]
    assert read_response(text).choice().text == "a"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1), st.integers(0, 5)), max_size=30))
def test_within_one_task_steps_only_grow(raw):
    tasks = Tasks()
    last: dict[Any, int] = {}
    for task, slot, step in raw:
        key = tasks.key({"task_id": task, "slot_id": slot, "step": step})
        if key is not None:
            assert step > last.get(key, -1)
            last[key] = step


# Estimates


def settled(**settings: Any) -> dict[str, Any]:
    return response(__verbose={"generation_settings": settings})


def verdicts(data: dict[str, Any], **told: Any) -> list[str]:
    found = estimate(read_response(json.dumps(data)), **told)
    return [one["rejection_sampling"]["verdict"] for one in found.data["steps"]]


def test_at_temperature_0_every_step_is_certain():
    found = estimate(read_response(json.dumps(settled(temperature=0.0))))
    assert [one["rejection_sampling"]["verdict"] for one in found.data["steps"]] == ["accepted", "rejected", "accepted"]
    step = found.data["steps"][1]["rejection_sampling"]
    assert step["rejected"] == {"id": 13, "text": "-info", "prob": math.exp(-0.2)}
    assert step["removed_mass"]["lower"] == pytest.approx(math.exp(-0.2))
    assert step["removed_mass"]["upper"] == pytest.approx(1 - math.exp(-2.0))
    assert found.data["metadata"]["estimated"] is True
    summary = found.data["summary"]
    assert (summary["rejected_steps"], summary["estimated"], summary["unknown_steps"]) == (1, True, 0)


def test_an_estimate_says_of_how_many_steps_it_says_nothing() -> None:
    first = "rejections are estimated from the response alone"
    assert estimate(read_response(json.dumps(settled(temperature=0.0)))).warnings == (first,)
    unsure = estimate(read_response(json.dumps(response())))
    said = "of 3 of 3 steps it cannot be told whether a token was rejected"
    assert unsure.warnings == (first, said)


def test_a_greedy_draw_of_the_likeliest_token_contradicts_an_event_of_another_server_than_ours() -> None:
    data, log = settled(temperature=0.0), written([event(7, 0, 0)])
    assert not merged(data, log).is_matched
    assert merged(data | {"request_id": "r"}, log).is_matched, "ours need not draw before it masks"


def test_nothing_is_certain_where_the_temperature_is_not_told_or_penalties_are_on():
    assert verdicts(response()) == ["unknown"] * 3
    assert verdicts(response(), temperature=0.0)[1] == "rejected"
    assert verdicts(settled(temperature=0.0, repeat_penalty=1.1)) == ["unknown"] * 3


def test_a_token_that_the_samplers_would_have_taken_away_was_drawn_a_second_time():
    order = ["penalties", "top_k", "min_p", "temperature"]
    assert verdicts(settled(temperature=0.8, top_k=1, samplers=order))[1] == "rejected"
    assert verdicts(settled(temperature=0.8, top_k=40, min_p=0.3, samplers=order))[1] == "rejected"
    assert verdicts(settled(temperature=0.8, top_k=40, min_p=0.05, samplers=order)) == ["unknown"] * 3
    heated = ["temperature", "min_p"]
    assert verdicts(settled(temperature=0.8, min_p=0.3, samplers=heated)) == ["unknown"] * 3


def test_equal_probabilities_are_no_rejection():
    tied = [token(12, "b", -0.69315, (11, "a", -0.69314), (12, "b", -0.69315))]
    data = response(tied, __verbose={"generation_settings": {"temperature": 0.0}})
    assert verdicts(data) == ["accepted"]
