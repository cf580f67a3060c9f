"""Compositions end to end on the bundled model: texts that every member accepts, and who removed how much."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import espalier
from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.free import Free, Region
from espalier.trace.records import Trace
from tests.server_app import client

PROMPT = "Generate user info"


@pytest.fixture(scope="module")
def eng(demo_engine):
    return demo_engine


def test_json_without_banned_phrases_shares_out_what_was_removed(eng):
    plain = eng.generate(PROMPT, constraint=espalier.JsonObject(), temperature=0, max_tokens=120)
    (key, *_) = plain.parsed
    spec = AllOf(espalier.JsonObject(), Ban([f'"{key}"']))
    result = eng.generate(PROMPT, constraint=spec, temperature=0, max_tokens=120)
    assert result.verdict.valid is True
    assert result.parsed == json.loads(result.text)
    assert key not in result.parsed
    for step in result.trace.steps:
        assert [name for name, _ in step.removed_by] == ["all_of[0].json_object", "all_of[1].ban", "all_of"]
        assert sum(mass for _, mass in step.removed_by) == pytest.approx(step.removed_mass, abs=1e-9)
    means = result.trace.summary()["removed_by"]
    assert means["all_of[1].ban"] > 0
    assert sum(means.values()) == pytest.approx(result.trace.mean_removed_mass, abs=1e-9)
    assert any(step.blame and step.blame.member == "all_of[1].ban" for step in result.trace.steps)
    assert Trace.from_json(json.loads(json.dumps(result.trace.to_json()))) == result.trace
    assert "all_of[1].ban" in result.trace._repr_html_()


def test_other_constraints_have_nothing_to_share_out(eng):
    result = eng.generate(PROMPT, constraint=espalier.Regex("[a-z]{1,8}"), temperature=0, max_tokens=8)
    assert result.trace.summary()["removed_by"] is None


def test_free_text_holds_a_region_to_its_constraint(eng):
    held = espalier.Regex(r"\"[a-z]+\": \d{2}")
    spec = Free({"{": Region(held, end="}")})
    result = eng.generate(PROMPT, constraint=spec, temperature=0, max_tokens=60)
    before, begun, rest = result.text.partition("{")
    region, ended, _ = rest.partition("}")
    assert before.startswith("Sure")  # the model goes on as it likes until it opens a brace
    assert begun
    assert ended
    assert espalier.compile(held).accepts(region)
    assert result.verdict.valid is True
    blamed = {step.blame.rule for step in result.trace.steps if step.blame}
    assert blamed == {"free[{].regex"}
    opened = next(i for i, step in enumerate(result.trace.steps) if "{" in step.text)
    assert all(step.removed_mass < 0.01 for step in result.trace.steps[:opened])


SAFE = AllOf(espalier.JsonObject(), espalier.Safety("minimal"), espalier.Regex(r"[^\n]{2,50}"))


@pytest.mark.parametrize("stream", [False, True])
def test_a_json_object_of_50_characters_beside_safety_over_http(eng, stream):
    body = {"messages": [{"role": "user", "content": PROMPT}], "seed": 1, "stream": stream, "max_tokens": 60}
    with client(engine=eng) as http:
        reply = http.post("/v1/chat/completions", json=body | {"espalier": {"constraint": SAFE.to_json()}})
    assert reply.status_code == 200, reply.text
    if stream:
        chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
        texts = [one["choices"][0]["delta"].get("content") for one in chunks if one["choices"]]
        assert len([text for text in texts if text]) > 5  # it is not held back
        text = "".join(text or "" for text in texts)
    else:
        text = reply.json()["choices"][0]["message"]["content"]
    assert isinstance(json.loads(text), dict)
    assert len(text) <= 50


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["mask", "jump", pytest.param("beam", marks=pytest.mark.slow)])
def test_every_member_holds_under_other_strategies_and_a_token_limit(eng, strategy):
    result = eng.generate(PROMPT, constraint=SAFE, strategy=strategy, temperature=0, max_tokens=12, on_budget="close")
    assert result.verdict.valid is True
    assert isinstance(result.parsed, dict)
    assert len(result.token_ids) <= 12
    assert result.trace.rewinds == ()
