"""`draft` on the bundled model, with transformers and llama.cpp: the tokens of `mask`, in fewer passes."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import espalier
from espalier.decoding.drafting.kit import DraftKit
from espalier.decoding.drafting.pass_costs import PassCosts
from espalier.wiring import demo_model

USER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["administrator", "advisor", "member"]},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
    },
    "required": ["name", "kind", "age"],
    "additionalProperties": False,
}
SPECS = {
    "none": None,
    "compact": espalier.JsonSchema(USER, whitespace="compact"),
    "spaced": espalier.JsonSchema(USER),
    "object": espalier.JsonObject(),
    "regex": espalier.Regex(r"(GET|POST) /api/v1/(users|orders)/[0-9]{3} HTTP/1\.1"),
    "grammar": espalier.Gbnf('root ::= "<answer>" ("yes" | "no") "</answer>, said the " ("fox" | "dog") "."'),
    "choice": espalier.Choice(["administrator", "advisory board", "el niño está aquí"]),
    "words": espalier.Wordlist(["the", "dog", "fox", "says", "quick"]),
    "ban": espalier.Ban(["the", "lazy"]),
}
SAMPLERS = {
    "greedy": {"temperature": 0},
    "usual": {},
    "warm": {"temperature": 1.2, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "dry": {"temperature": 0.9, "dry_multiplier": 1.0},
    "mirostat": {"temperature": 1.0, "mirostat": 2, "mirostat_tau": 4.0},
    "xtc": {"temperature": 1.0, "xtc_probability": 0.5, "xtc_threshold": 0.1},
}
SEEDS = int(os.environ.get("TEST_DRAFT_SEEDS") or 3)
"""For each constraint, sampler and engine; with 20 they are 2,160 runs and as many of `mask`, a quarter of an hour."""
QUICK = [*zip(SPECS, [*SAMPLERS, *SAMPLERS], strict=False)]
RUNS = [
    pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.slow)
    for pair in ((spec, sampler) for spec in SPECS for sampler in SAMPLERS)
]
PROMPTS = ["Generate user info", "Who are you?"]
ENDS = ({}, {"stop": ["e", "the quick"]}, {"on_budget": "close"})


@pytest.fixture(scope="module", params=["transformers", "llama.cpp"])
def eng(request):
    if request.param == "transformers":
        loaded = espalier.load(demo_model())
    else:
        pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
        # With an f16 cache a logit depends on the size of its pass in the third digit, and a draw may fall between.
        loaded = espalier.load(demo_model() / "demo.gguf", threads=1, kv_type="f32", flash_attention="off")
    with loaded:
        yield loaded


def equal_runs(eng, spec, sampler, count):
    """How many runs gave the tokens of `mask`, and how many there were."""
    same = 0
    for seed in range(count):
        ends = ENDS[seed % 3]
        if SPECS[spec] is None and "on_budget" in ends:
            ends = {}
        asked = {"constraint": SPECS[spec], "seed": seed, "max_tokens": 28, "trace": ("off", "summary")[seed % 2]}
        mine, theirs = (
            eng.generate(PROMPTS[seed % 2], strategy=strategy, **asked, **SAMPLERS[sampler], **ends)
            for strategy in ("draft", "mask")
        )
        same += (mine.token_ids, mine.text, mine.finish_reason) == (theirs.token_ids, theirs.text, theirs.finish_reason)
    return same, count


@pytest.mark.parametrize(("spec", "sampler"), RUNS)
def test_drafts_change_no_token(eng, spec, sampler):
    same, count = equal_runs(eng, spec, sampler, SEEDS)
    assert same == count


def test_a_second_document_takes_fewer_passes_than_tokens(eng, monkeypatch):
    monkeypatch.setattr(eng.engine.runs, "_kit", DraftKit())  # nothing is known of what drafts were worth
    monkeypatch.setattr(PassCosts, "listed", lambda self: [1e9] * 32)  # whatever a pass costs on a busy machine
    asked = {"constraint": SPECS["compact"], "temperature": 0, "trace": "off", "max_tokens": 60}
    found = [eng.generate(PROMPTS[0], strategy="draft", drafts=["forced", "grammar"], **asked) for _ in range(3)][-1]
    assert found.token_ids == eng.generate(PROMPTS[0], strategy="mask", **asked).token_ids
    assert found.drafting.passes < len(found.token_ids)


def test_the_bundled_draft_model_drafts_for_both_engines_and_changes_no_token(eng, monkeypatch):
    monkeypatch.setattr(eng.engine.runs, "_kit", DraftKit())
    monkeypatch.setattr(PassCosts, "listed", lambda self: [1e9] * 32)
    with espalier.load(demo_model().with_name("demo-draft")) as smaller:
        eng.engine.draft_with(smaller.engine)
        try:
            for spec, sampler in (("none", "usual"), ("spaced", "greedy"), ("grammar", "xtc")):
                asked = {"constraint": SPECS[spec], "max_tokens": 28, "seed": 5, "trace": "off", **SAMPLERS[sampler]}
                found = eng.generate(PROMPTS[0], strategy="draft", drafts=["model"], **asked)
                assert found.token_ids == eng.generate(PROMPTS[0], strategy="mask", **asked).token_ids
                assert found.drafting.passes < len(found.token_ids)
        finally:
            eng.engine.runs.draft_with(None)
