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
