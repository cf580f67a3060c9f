"""Everything that tells of a generation is read as a trace, and what it does not tell is not made up."""

import io
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

from espalier.cli.trace.show import show
from espalier.errors import EspalierError, InputError
from espalier.trace import page
from espalier.trace.files import json_text
from espalier.trace.foreign.estimate import estimates
from espalier.trace.foreign.evidence import Evidence
from espalier.trace.foreign.log_reader import LogReader
from espalier.trace.foreign.matching import MatchError
from espalier.trace.foreign.merge import estimate, merge, merge_files, save
from espalier.trace.foreign.placing import PlacedSequence
from espalier.trace.foreign.read import FormatError, has_gaps, read, read_any, trace_of
from espalier.trace.foreign.responses import ApiStep, ResponseError, read_response, response_of
from espalier.trace.records import StepRecord, Trace
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.export import to_csv, to_svg
from tests.examples import examples
from tests.traces import sample_trace

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data" / "llama-server-responses"
GREEDY = {"generation_settings": {"temperature": 0.0, "grammar": 'root ::= "ab"'}}


def token(id_: int, text: str, logprob: float, *top: tuple[int, str, float]) -> dict[str, Any]:
    near = [{"id": i, "token": t, "bytes": list(t.encode()), "logprob": lp} for i, t, lp in top]
    return {"id": id_, "token": text, "bytes": list(text.encode()), "logprob": logprob, "top_logprobs": near}


STEPS = [
    token(11, "a", -0.1, (11, "a", -0.1), (12, "b", -3.0)),
    token(12, "b", -2.0, (13, "c", -0.25), (12, "b", -2.0)),
    token(14, "", -1.5, (13, "c", -0.5), (15, "d", -1.2)),
]


def reply(steps: list[dict[str, Any]] = STEPS, **more: Any) -> dict[str, Any]:
    choice = {
        "index": 0, "message": {"role": "assistant", "content": "ab"}, "finish_reason": "stop",
        "logprobs": {"content": steps},
    }  # fmt: skip
    return {"id": "chatcmpl-1", "model": "m", "created": 5, "choices": [choice], **more}


def stream() -> str:
    lines = []
    for one in STEPS:
        choice = {"index": 0, "delta": {"content": one["token"]}, "logprobs": {"content": [one]}}
        lines.append("data: " + json.dumps({"id": "chatcmpl-1", "model": "m", "choices": [choice]}) + "\n\n")
    return "".join(lines) + "data: [DONE]\n\n"


def event(task: int, step: int, taken: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "task_id": task,
        "slot_id": 0,
        "step": step,
        "rejected": {"id": 13, "text": "c", "prob": 0.9},
        "pre_masking": [{"id": 13, "text": "c", "prob": 0.75}, {"id": 12, "text": "b", "prob": 0.125}],
        "post_grammar": [{"id": 13, "text": "c", "logit": -math.inf}, {"id": 12, "text": "b", "logit": 1.5}],
        "post_chain": [{"id": 12, "text": "b", "prob": 1.0}],
        "resampled": {"id": taken["id"], "text": taken["token"], "prob": 1.0},
        **more,
    }


def log(*events: dict[str, Any]) -> str:
    body = ",".join(json.dumps(one) for one in events).replace("-Infinity", "-inf")
    return '{"log_version":"2","timestamp":"then","events":[' + body + ","


LOG = log(event(7, 1, STEPS[1]), event(7, 2, STEPS[2]))


def combined() -> dict[str, Any]:
    return merge(read_response(json.dumps(reply())), lambda: LogReader(io.BytesIO(LOG.encode())), task=7).data


def written(folder: Path, content: Any, name: str = "x.json") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else json_text(content).encode()
                     if isinstance(content, dict | list) else content.encode())  # fmt: skip
    return path


def test_a_reply_is_a_trace_within_bounds(tmp_path: Path) -> None:
    found = read(written(tmp_path, reply(__verbose=GREEDY)))
    trace = found.trace
    assert (found.kind, found.notes) == ("response", ("rejections are estimated from the reply alone",))
    assert (trace.text, trace.model, trace.finish_reason) == ("ab", "m", "stop")
    assert trace.constraint == {"kind": "gbnf", "grammar": 'root ::= "ab"'}
    first, second, end = trace.steps
    assert {one.exactness for one in trace.steps} == {"bounded"}
    assert (first.bounds, first.was_rejected) == ((0.0, pytest.approx(1 - math.exp(-0.1))), False)
    assert second.bounds == (pytest.approx(math.exp(-0.25)), pytest.approx(1 - math.exp(-2)))
    assert (second.removed_mass, second.tax_nats) == (
        pytest.approx(math.exp(-0.25)), pytest.approx(-math.log(1 - math.exp(-0.25)))
    )  # fmt: skip
    assert second.rejected is not None
    assert (second.was_rejected, second.rejected.text, second.is_changed) == (True, "c", True)
    assert [(one.id, one.allowed) for one in second.pre_masking] == [(13, False), (12, True)]
    # What was taken stands among the candidates, also where the reply does not list it.
    assert [(one.id, one.allowed) for one in end.pre_masking] == [(13, False), (15, False), (14, True)]
    assert (end.is_special, end.bytes) == (True, b"")
    assert Trace.from_json(json.loads(json.dumps(trace.to_json()))) == trace


def test_a_recorded_stream_is_the_same_trace(tmp_path: Path) -> None:
    whole = read_any(written(tmp_path, reply()), temperature=0.0)
    streamed = read_any(written(tmp_path, stream(), "x.txt"), temperature=0.0)
    assert streamed.steps == whole.steps


def test_without_a_grammar_nothing_was_removed_and_without_a_temperature_nothing_is_certain(tmp_path: Path) -> None:
    free = {"generation_settings": {"temperature": 0.8, "grammar": ""}}
    steps = read_any(written(tmp_path, reply(__verbose=free))).steps
    assert {(one.bounds, one.was_rejected) for one in steps} == {((0.0, 0.0), False)}
    found = read(written(tmp_path, reply()))
    assert not any(one.was_rejected for one in found.trace.steps)
    assert "of 3 of 3 steps it cannot be told" in found.notes[1]


def test_the_combined_form_is_read_with_its_stages_and_the_model_s_own_candidates(tmp_path: Path) -> None:
    found = read(written(tmp_path, combined()))
    assert found.kind == "combined"
    first, second, _ = found.trace.steps
    assert (first.was_rejected, first.bounds) == (False, (0.0, pytest.approx(1 - math.exp(-0.1))))
    assert second.rejected is not None
    assert (second.rejected.id, second.rejected.prob, second.rejected.allowed) == (13, 0.9, False)
    assert [(one.id, one.prob, one.allowed) for one in second.pre_masking] == [
        (13, pytest.approx(math.exp(-0.25)), False), (12, pytest.approx(math.exp(-2)), True)
    ]  # fmt: skip
    # JSON has no -inf: null stands for it, and is a refusal too.
    assert [(one.id, one.prob, one.allowed) for one in second.post_grammar] == [(12, 1.0, True), (13, 0.0, False)]
    assert second.bounds == (pytest.approx(math.exp(-0.25)), pytest.approx(1 - math.exp(-2)))
    assert found.trace.total_tax_nats == pytest.approx(sum(one.tax_nats for one in found.trace.steps))
    assert (found.trace.text, found.trace.finish_reason) == ("ab", "unknown")


def test_what_the_tracer_s_own_proxy_saved_is_read(tmp_path: Path) -> None:
    data = combined()
    data["metadata"] = {"request_id": "r", "model": "m", "created": 5, "timestamp": "2026-01-02T03:04:05"}
    trace = read_any(written(tmp_path, data))
    assert (trace.summary()["rejected_steps"], trace.decoding["timestamp"]) == (2, "2026-01-02T03:04:05")


def test_an_estimate_that_was_saved_says_the_same_as_the_reply_itself(tmp_path: Path) -> None:
    made = estimate(read_response(json.dumps(reply(__verbose=GREEDY))))
    save(made, tmp_path / "estimated.json")
    saved, direct = read_any(tmp_path / "estimated.json"), read_any(written(tmp_path, reply(__verbose=GREEDY)))
    assert [(one.bounds, one.was_rejected) for one in saved.steps] == [
        (one.bounds, one.was_rejected) for one in direct.steps
    ]
    assert [one.pre_masking for one in saved.steps] == [one.pre_masking for one in direct.steps]
    assert saved.decoding["estimated"] is True


def test_probabilities_after_sampling_bound_nothing(tmp_path: Path) -> None:
    after = [{"id": 11, "token": "a", "bytes": [97], "prob": 0.5, "top_probs": [{"id": 11, "token": "a", "prob": 0.5}]}]
    path = written(tmp_path, {"content": "a", "completion_probabilities": after})
    for trace in (read_any(path), read_any(_merged_file(tmp_path, path))):
        (step,) = trace.steps
        assert (step.bounds, step.pre_masking) == ((0.0, 1.0), ())
        assert [(one.id, one.prob) for one in step.post_chain] == [(11, 0.5)]


def _merged_file(folder: Path, response: Path) -> Path:
    target = folder / "merged.json"
    save(merge_files(response, written(folder, '{"log_version":"2","events":[', "log.json")), target)
    return target


def test_a_rejection_log_is_read_by_task_and_knows_its_gaps(tmp_path: Path) -> None:
    path = written(tmp_path, log(event(7, 1, STEPS[1]), event(8, 0, STEPS[1]), event(7, 4, STEPS[1])))
    with pytest.raises(MatchError, match=r"2 tasks: task 7 \(slot 0\), task 8 \(slot 0\)"):
        read(path)
    found = read(path, task=7)
    assert (found.kind, [one.step for one in found.trace.steps], found.trace.text) == ("log", [1, 4], "…b…b")
    assert has_gaps(found.trace)
    assert not has_gaps(read(path, task=8).trace)
    step = found.trace.steps[0]
    assert step.bounds == (0.75, 0.875)
    assert (step.logprob, step.was_rejected) == (math.log(0.125), True)
    with pytest.raises(FormatError, match="no events of that task"):
        read(path, task=9)
    with pytest.raises(FormatError, match="has no events"):
        read(written(tmp_path, '{"events": []}'))


def test_the_older_names_of_candidates_and_logits_alone_are_read(tmp_path: Path) -> None:
    old = [{"token": 13, "str": "c", "logit": 2.0}, {"token": 12, "str": "b", "logit": 1.0}]
    step = read_any(written(tmp_path, log(event(7, 0, STEPS[1], pre_masking=old)))).steps[0]
    assert [(one.id, one.text) for one in step.pre_masking] == [(13, "c"), (12, "b")]
    assert sum(one.prob for one in step.pre_masking) == pytest.approx(1.0)


def test_a_reply_without_numbers_of_tokens_is_matched_by_bytes(tmp_path: Path) -> None:
    steps = [{name: value for name, value in one.items() if name != "id"} for one in STEPS]
    for one in steps:
        one["top_logprobs"] = [{n: v for n, v in near.items() if n != "id"} for near in one["top_logprobs"]]
    found = merge(read_response(json.dumps(reply(steps))), lambda: LogReader(io.BytesIO(LOG.encode())), task=7)
    second = read_any(written(tmp_path, found.data)).steps[1]
    assert [(one.text, one.allowed) for one in second.pre_masking] == [("c", False), ("b", True)]
    assert second.token_id == 12  # from the event


def test_parts_of_characters_are_told_apart_where_both_sides_spell_them() -> None:
    def conflict(event: dict[str, Any], step: ApiStep) -> str:
        return Evidence(PlacedSequence(steps=(step,), sure=(True,), is_whole=True), None).compare(event).conflict

    half = ApiStep(id=None, text="\ufffd", bytes=(0xC3,), logprob=-1.0, top=())
    other = {"step": 0, "resampled": {"text": "\ufffd", "bytes": [0xE2]}}
    assert conflict(other, half)
    assert not conflict({"step": 0, "resampled": {"text": "\ufffd", "bytes": [0xC3]}}, half)
    lossy = ApiStep(id=None, text="\ufffd", bytes=(239, 191, 189), logprob=-1.0, top=())
    assert not conflict(other, lossy)


def test_our_own_trace_is_read_as_it_is(tmp_path: Path) -> None:
    trace = sample_trace(30)
    trace.save(tmp_path / "t.json")
    assert read(tmp_path / "t.json") == (Trace.load(tmp_path / "t.json"), "trace", ())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "an empty file"),
        ("<!doctype html><p>", "an HTML page"),
        ("GGUF\x03", "a GGUF model"),
        ("hello", "no JSON"),
        ("[1]", "a JSON list"),
        ('{"a": 1, "b": 2}', "a JSON object with 'a', 'b'"),
        ("{}", "an empty JSON object"),
        ('{"type": "object", "properties": {}}', "a JSON Schema"),
        ('{"text": "", "usage": {}, "finish_reason": "stop"}', "which holds no steps: use --trace"),
        ('{"step": 0}\n{"end": true}\n', "lines of JSON, as JsonLinesRecorder"),
    ],
)
def test_what_tells_of_no_generation_is_named(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        read(written(tmp_path, content))


def test_what_cannot_be_opened_or_has_no_probabilities_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="cannot read"):
        read("nul\0.json")
    bare = reply()
    bare["choices"][0]["logprobs"] = None
    with pytest.raises(ResponseError, match="no log probabilities"):
        read(written(tmp_path, bare))


def test_an_option_of_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    sample_trace(5).save(tmp_path / "t.json")
    (tmp_path / "log.json").write_text(LOG)
    for name, told in (("t.json", {"task": 0}), ("t.json", {"temperature": 0.0}), ("log.json", {"choice": 1})):
        with pytest.raises(InputError, match=f"{next(iter(told))} is for a "):
            read(tmp_path / name, **told)
    with pytest.raises(InputError, match="slot is for a rejection log, and this is a reply file"):
        read(written(tmp_path, reply()), slot=0)


# Estimates that must not be sure


def test_a_reply_of_our_server_does_not_say_whether_it_drew_before_it_masked() -> None:
    told = {"__verbose": GREEDY, "request_id": "req-1"}
    found = read_response(json.dumps(reply(**told)))
    second = estimates(found, found.choice().steps or ())[1]
    assert (second.verdict, second.rejected, second.lower) == ("unknown", None, pytest.approx(math.exp(-0.25)))


def test_a_schema_is_a_constraint_where_the_grammar_is_empty() -> None:
    told = {"generation_settings": {"temperature": 0.0, "grammar": "", "json_schema": {"type": "object"}}}
    found = read_response(json.dumps(reply(__verbose=told)))
    assert [one.verdict for one in estimates(found, found.choice().steps or ())] == ["accepted", "rejected", "rejected"]


@pytest.mark.parametrize(
    "setting",
    [
        {"dynatemp_range": 0.5},
        {"xtc_probability": 0.1},
        {"typical_p": 0.9},
        {"ignore_eos": True},
        {"adaptive_target": 0.0},
        {"adaptive_target": 0.5},
    ],
)
def test_settings_that_leave_out_a_likely_token_make_nothing_certain(setting: dict[str, Any]) -> None:
    told = {"generation_settings": GREEDY["generation_settings"] | setting}
    found = read_response(json.dumps(reply(__verbose=told)))
    assert {one.verdict for one in estimates(found, found.choice().steps or ())} == {"unknown"}


def test_samplers_that_keep_a_number_of_tokens_take_none_of_those_away() -> None:
    told = {"temperature": 0.8, "min_p": 0.3, "samplers": ["min_p", "temperature"], "grammar": "x"}
    for keep, verdict in ((0, "rejected"), (2, "unknown")):
        settings_ = {"generation_settings": told | {"min_keep": keep}}
        found = read_response(json.dumps(reply(__verbose=settings_)))
        assert estimates(found, found.choice().steps or ())[1].verdict == verdict


def test_the_most_likely_candidate_is_the_one_rejected_whatever_the_order_of_the_list() -> None:
    data = reply([token(12, "b", -3.0, (13, "c", -2.0), (15, "d", -0.5))], __verbose=GREEDY)
    found = read_response(json.dumps(data))
    rejected = estimates(found, found.choice().steps or ())[0].rejected
    assert rejected is not None
    assert rejected["token"] == "d"


# Replies as they are found


def test_a_stream_with_line_separators_within_a_text_is_whole() -> None:
    for mark in ("\u2028", "\x85", "\u2029"):
        line = {"id": "x", "choices": [{"index": 0, "delta": {"content": f"a{mark}b"}}]}
        text = "data: " + json.dumps(line, ensure_ascii=False) + "\r\n\r\ndata: [DONE]\r\n\r\n"
        assert read_response(text).choices[0].text == f"a{mark}b"


def test_a_recording_may_end_within_a_character() -> None:
    line = 'data: {"id": "x", "choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
    cut = (line + 'data: {"id": "x", "choices": [{"delta": {"content": "é').encode()[:-1]
    assert read_response(cut).choices[0].text == "a"
    with pytest.raises(ResponseError, match="not UTF-8 at byte 7"):
        read_response(b"data: {\xff}\n\n")


def test_an_error_of_null_is_none() -> None:
    assert response_of(reply() | {"error": None}).choice().text == "ab"
    line = {"error": None, "choices": [{"index": 0, "delta": {"content": "a"}}]}
    text = "".join(f"data: {json.dumps(line)}\n\n" for _ in range(2))
    assert read_response(text).choices[0].text == "aa"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reply", "stream", "combined", "log", "trace"])
def test_a_file_that_is_cut_anywhere_is_read_or_refused_and_never_a_crash(name: str, tmp_path: Path) -> None:
    small = [{**one, "top_logprobs": one["top_logprobs"][:1]} for one in STEPS[:2]]
    samples = {
        "reply": json.dumps(reply(small)),
        "stream": stream(),
        "combined": json.dumps(combined()),
        "log": LOG,
        "trace": json.dumps(sample_trace(1).to_json()),
    }
    whole = samples[name].encode()
    path, read_whole = tmp_path / "x.json", 0
    for end in range(len(whole) + 1):
        path.write_bytes(whole[:end])
        try:
            read(path)
            read_whole += 1
        except EspalierError:
            continue
    assert read_whole >= 1


NAMES = (
    "choices", "content", "logprobs", "top_logprobs", "logprob", "token", "id", "bytes", "tokens", "token_logprobs",
    "completion_probabilities", "top_probs", "prob", "index", "message", "delta", "finish_reason", "error", "__verbose",
    "generation_settings", "temperature", "samplers", "grammar", "min_keep", "top_k", "min_p", "text", "stop_type",
)  # fmt: skip
COMBINED_NAMES = (
    "token", "id", "text", "bytes", "logprob", "api_top_logprobs", "rejection_sampling", "was_rejected", "rejected",
    "pre_masking", "post_grammar", "post_chain", "resampled", "prob", "logit", "estimated", "removed_mass", "lower",
    "upper", "blame", "member", "reason", "offset", "step", "task_id", "slot_id",
)  # fmt: skip
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 300), st.floats(), st.text(max_size=3),
    st.sampled_from([10**400, -(10**400), 1e308, -0.5, 0.5, "\ud800", "stop", "a"]),
)  # fmt: skip


def values(names: tuple[str, ...]) -> st.SearchStrategy[Any]:
    return st.recursive(
        LEAVES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(names), inner, max_size=5)
        ),
        max_leaves=14,
    )


STEP = st.dictionaries(st.sampled_from(("id", "token", "bytes", "logprob", "top_logprobs", "prob", "top_probs")),
                       values(NAMES), max_size=6)  # fmt: skip
SETTINGS = st.dictionaries(
    st.sampled_from(("temperature", "samplers", "grammar", "min_keep", "top_k", "min_p", "top_p", "logit_bias")), LEAVES
)
REPLIES = st.builds(
    lambda steps, told, more: {
        "choices": [{"logprobs": {"content": steps}} | more], "__verbose": {"generation_settings": told}
    },
    st.lists(STEP, max_size=3), SETTINGS, st.dictionaries(st.sampled_from(NAMES), values(NAMES), max_size=2),
)  # fmt: skip


def drawn(trace: Trace) -> None:
    """Every view of a trace that was read."""
    diagnose(trace)
    page.render(trace.to_json())
    show(trace, Console(file=io.StringIO(), width=80, markup=False, highlight=False))
    to_csv(trace)
    to_svg(trace)
    for one in trace.steps:
        lower, upper = one.bounds or (0.0, 1.0)
        assert 0.0 <= lower <= upper <= 1.0
        assert StepRecord.from_json(json.loads(json_text(one.to_json()))).bounds == one.bounds


@settings(max_examples=examples(250), deadline=None)
@given(st.one_of(values(NAMES), REPLIES), st.sampled_from([None, 0.0]))
def test_any_json_is_a_reply_or_a_typed_error(data: Any, heat: float | None) -> None:
    try:
        trace, _ = trace_of(response_of(data), temperature=heat)
    except EspalierError:
        return
    drawn(trace)


ROWS = st.lists(st.dictionaries(st.sampled_from(COMBINED_NAMES), values(COMBINED_NAMES)), max_size=3)
TOLD = st.dictionaries(st.sampled_from(("model", "created", "post_sampling_probs")), LEAVES)
PARTS = st.sampled_from(("text", "steps", "metadata", "summary"))
FILES = st.one_of(
    values(NAMES),
    st.builds(lambda told, steps: {"metadata": told, "steps": steps}, TOLD, ROWS),
    st.builds(lambda events: {"events": events}, ROWS),
    st.builds(lambda part, value: sample_trace(2).to_json() | {part: value}, PARTS, values(NAMES)),
)


@settings(max_examples=examples(200), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(FILES)
def test_any_json_file_is_a_trace_or_a_typed_error(tmp_path: Path, data: Any) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps(data))
    try:
        found = read(path)
    except EspalierError:
        return
    if found.kind != "trace":
        drawn(found.trace)


# Real replies


@pytest.mark.skipif(not SHARED.exists(), reason="replies of a real llama-server are not here")
def test_real_replies_of_llama_server_merge_estimate_and_render(tmp_path: Path) -> None:
    for name, count, rejected in (("no-grammar", 256, 0), ("with-grammar", 50, 6)):
        path = SHARED / f"{name}.json"
        trace = read_any(path)
        assert (len(trace.steps), trace.summary()["rejected_steps"]) == (count, rejected)
        drawn(trace)
    response = read_response((SHARED / "with-grammar.json").read_bytes())
    found = [place for place, one in enumerate(trace.steps) if one.was_rejected]
    assert found == [0, 1, 46, 47, 48, 49]
    said = response.choice().steps or ()
    events = []
    for place in found:
        rejected_one = trace.steps[place].rejected
        assert rejected_one is not None
        taken = {"id": said[place].id, "token": said[place].text}
        events.append(event(40, place, taken, rejected={"id": rejected_one.id, "text": rejected_one.text, "prob": 1}))
    noise = [event(41, place, {"id": 1, "token": "x"}) for place in (0, 3)]
    made = merge_files(SHARED / "with-grammar.json", written(tmp_path, log(*events, *noise), "log.json"))
    assert (made.data["summary"]["rejected_steps"], made.task and made.task.task) == (6, 40)
    save(made, tmp_path / "merged.json")
    again = read_any(tmp_path / "merged.json")
    assert [place for place, one in enumerate(again.steps) if one.was_rejected] == found
    assert again.text == trace.text
    drawn(again)
