"""Safety filters in a whole generation: what is counted, what is streamed, and what cannot be joined."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier import After, AllOf, AnyOf, Choice, Regex, Safety
from espalier.api import make_request
from espalier.constraints.joining.rule import filters_in, together
from espalier.constraints.safety.judge import find
from espalier.engines.base import FinishEvent
from espalier.trace.recorders.memory import MemoryRecorder
from espalier.trace.records import Trace
from tests.examples import examples
from tests.server_app import client, fake_engine

WISH = "please run rm -rf / and password=hunter2 ok"
PLAIN = Regex("[ -~]*")
SHELL_AND_KEYS = {
    mode: Safety(patterns=["rm -rf", {"regex": "password=[a-z]"}], mode=mode) for mode in ("mask", "rewind")
}
LEVELS = ("summary", "steps", "full")


def generate(spec, level="summary", wish=WISH, **options):
    with fake_engine(wish) as engine:
        return engine.generate(
            "hi", constraint=spec, trace=level, **{"temperature": 0, "seed": 1, "max_tokens": 60} | options
        )


def counted(result, key="refused_favourites"):
    return result.trace.safety_counts().get(key, {}).get("custom", {})


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("mode", ["mask", "rewind"])
def test_what_was_refused_and_taken_back_is_counted_the_same_at_every_level(mode, joined):
    spec = AllOf(PLAIN, SHELL_AND_KEYS[mode]) if joined else SHELL_AND_KEYS[mode]
    summed, steps, full = (generate(spec, level) for level in LEVELS)
    assert summed.trace.summary() == steps.trace.summary() == full.trace.summary()
    assert summed.trace.safety_counts() == steps.trace.safety_counts() == full.trace.safety_counts()
    assert counted(steps)["rm -rf"] == sum(
        s.blame is not None and s.blame.rule == "custom/rm -rf" for s in steps.trace.steps
    )
    assert counted(steps)["rm -rf"] >= 1
    assert mode == "rewind" or counted(steps)["password=[a-z]"] == 1
    taken_back = counted(steps, "taken_back")
    assert sum(taken_back.values()) == len(steps.trace.rewinds)
    assert ("rm -rf" in taken_back) == (mode == "rewind")
    assert Trace.from_json(json.loads(json.dumps(summed.trace.to_json()))) == summed.trace


def test_a_drawn_token_that_was_refused_is_counted():
    result = generate(SHELL_AND_KEYS["mask"], strategy="rejection")
    assert counted(result) == {"rm -rf": 1, "password=[a-z]": 1}
    assert result.trace.summary()["rejected_steps"] == 2


def test_without_a_filter_nothing_is_counted_and_nothing_more_is_asked():
    result = generate(Choice(["please walk"]))
    assert result.trace.changed_steps > 0
    assert result.trace.safety_counts() == {}
    assert all(record.blame is None for record in result.records)
    assert (result.trace.summary()["refused_favourites"], result.trace.summary()["taken_back"]) == (None, None)
    assert generate(SHELL_AND_KEYS["mask"], "off").trace is None


def test_a_recorder_that_wants_more_changes_no_count():
    alone = generate(SHELL_AND_KEYS["rewind"])
    told = generate(SHELL_AND_KEYS["rewind"], recorders=(MemoryRecorder(level="full"),))
    assert told == alone
    assert told.records == alone.records


def test_filters_are_found_however_deep():
    one, other = SHELL_AND_KEYS["mask"], Safety("minimal")
    assert filters_in(None) == ()
    assert filters_in(PLAIN) == ()
    assert filters_in(AnyOf(PLAIN, AllOf(Regex("a+"), one), other)) == (one, other)


PIECES = ["krump", "krump t", "krump them", "kru", "a ", "zorb", "zo", "é", "日", " them", "krukrump them", "."]
REWINDING = Safety(patterns=["krump them", {"regex": "zor+b"}], mode="rewind")


@settings(max_examples=examples(12), deadline=None)
@given(
    wish=st.lists(st.sampled_from(PIECES), max_size=8).map("".join),
    temperature=st.sampled_from([0.0, 1.0]),
    seed=st.integers(0, 99),
    joined=st.booleans(),
)
def test_rewinding_never_changes_what_was_streamed(wish, temperature, seed, joined):
    spec = AllOf(Regex("(?s:.*)"), REWINDING) if joined else REWINDING
    shown = ""
    with fake_engine(wish) as engine:
        asked = {"constraint": spec, "temperature": temperature, "seed": seed, "max_tokens": 40}
        for event in engine.stream("hi", **asked):
            shown += event.text
            assert find(REWINDING, shown) == []
            if isinstance(event, FinishEvent):
                result = event.result
        service = engine.serve()
        (served,) = [e.result for e in service.submit(make_request("hi", **asked)) if isinstance(e, FinishEvent)]
        service.close()
    assert served.text == result.text
    assert served.trace.rewinds == result.trace.rewinds
    assert shown == result.text
    assert result.trace.text == result.text
    assert all(one.blame.member.endswith("safety") for one in result.trace.rewinds)


def test_what_may_go_back_is_not_streamed():
    with fake_engine("we krump them all") as engine:
        events = list(engine.stream("hi", constraint=REWINDING, temperature=0, max_tokens=60))
    assert events[-1].result.trace.rewinds
    assert "krump the" not in "".join(event.text for event in events)


def test_a_filter_stands_beside_what_begins_after_a_marker_and_in_it():
    result = generate(together(After("run", Choice(["a"])), SHELL_AND_KEYS["mask"]))
    assert "rm -rf" not in result.text
    # What comes after the marker can be filtered.
    result = generate(After("run", SHELL_AND_KEYS["mask"]))
    assert "rm -rf" not in result.text
    assert counted(result) == {"rm -rf": 1, "password=[a-z]": 1}


def test_the_reply_of_the_server_has_the_counts():
    asked = {"patterns": ["rm -rf"], "mode": "rewind"}
    body = {"model": "fake", "messages": [{"role": "user", "content": "x"}], "temperature": 0, "max_tokens": 40}
    with client(WISH) as http:
        reply = http.post("/v1/chat/completions", json=body | {"espalier": {"safety": asked}}).json()
        (output,) = reply["espalier"]["outputs"]
        assert "rm -rf" not in reply["choices"][0]["message"]["content"]
        assert output["safety"]["taken_back"]["custom"]["rm -rf"] == len(output["rewinds"]) >= 1
        reply = http.post("/v1/chat/completions", json=body | {"espalier": {}}).json()
        assert "safety" not in reply["espalier"]["outputs"][0]
