"""`jump` on the bundled model, with transformers and llama.cpp: caches as after a fresh prefill, and fewer passes."""

from __future__ import annotations

from contextlib import closing

import jsonschema
import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import espalier
from espalier.decoding.ports import Extend
from espalier.engines.base import FinishEvent
from espalier.wiring import demo_model

TOLERANCE = 1e-4
USER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["administrator", "advisor", "member"]},
        "active": {"type": "boolean"},
        "age": {"type": "integer", "minimum": 18, "maximum": 99},
    },
    "required": ["name", "kind", "active", "age"],
    "additionalProperties": False,
}
SPECS = {
    "schema": espalier.JsonSchema(USER, whitespace="compact"),
    "spaced": espalier.JsonSchema(USER),
    "choice": espalier.Choice(["administrator", "advisory board", "admirable", "el niño está aquí"]),
    "regex": espalier.Regex(r"(GET|POST) /api/v1/(users|orders)/[0-9]{3} HTTP/1\.1"),
    "grammar": espalier.Gbnf('root ::= "<answer>" ("yes" | "no") "</answer>, said the " ("fox" | "dog") "."'),
}
PROMPTS = ["Generate user info", "Who are you?"]


@pytest.fixture(scope="module", params=["transformers", "llama.cpp"])
def eng(request):
    if request.param == "transformers":
        loaded = espalier.load(demo_model())
    else:
        pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
        more = {"kv_type": "f32", "flash_attention": "off", "threads": 1}
        loaded = espalier.load(demo_model() / "demo.gguf", **more)
    with loaded:
        yield loaded


class Watched:
    """What is asked of the engine's model, while it is asked."""

    def __init__(self, eng, monkeypatch):
        self.passes = self.cut = 0
        model = eng.engine.model
        extend, truncate = model.extend, model.truncate

        def watched_extend(work):
            self.passes += 1
            return extend(work)

        def watched_truncate(sequence, length):
            self.cut += model.length(sequence) - length
            truncate(sequence, length)

        monkeypatch.setattr(model, "extend", watched_extend)
        monkeypatch.setattr(model, "truncate", watched_truncate)


def log_probs(eng, ids):
    """ln p of the next token after each of the ids, `(T, V) float64`, in one pass of a sequence of its own."""
    model = eng.engine.model
    sequence = model.new()
    rows = model.extend([Extend(sequence=sequence, tokens=tuple(ids), logits="all")])[0].astype(np.float64)
    model.free(sequence)
    top = rows.max(axis=1, keepdims=True)
    return rows - (top + np.log(np.exp(rows - top).sum(axis=1, keepdims=True)))


def check_steps(eng, prompt, asked):
    """Each step's number as after a fresh prefill of what is before it; the same tokens where nobody looks on."""
    found = eng.generate(prompt, **asked)
    ids = eng.engine.prompt_ids(eng.requests(prompt, **asked)[0][0])
    rows = log_probs(eng, (*ids, *found.token_ids))
    for place, step in enumerate(found.trace.steps):
        wanted = float(rows[len(ids) - 1 + place][step.token_id])
        assert step.logprob == pytest.approx(wanted, abs=TOLERANCE)
    quiet = eng.generate(prompt, **asked, trace="off")
    assert (quiet.token_ids, quiet.text) == (found.token_ids, found.text)
    return found


@pytest.mark.parametrize("name", SPECS)
def test_logits_after_a_jump_are_those_of_a_fresh_prefill(eng, name):
    asked = {"constraint": SPECS[name], "strategy": "jump", "temperature": 0, "max_tokens": 80}
    found = check_steps(eng, PROMPTS[0], asked)
    assert found.verdict.valid is not False
    assert any(step.was_forced for step in found.trace.steps)


def test_drawn_tokens_that_were_computed_are_replaced(eng, monkeypatch):
    """The model is pushed to say "e", then "x"; "example" is one token."""
    watched = Watched(eng, monkeypatch)
    encode = eng.engine.vocab.encoder
    asked = {
        "constraint": espalier.Regex("(example one|eyes)(, two|, three)"),
        "strategy": "jump",
        "temperature": 0,
        "logit_bias": {encode("e")[0]: 60.0, encode("x")[0]: 60.0},
    }
    found = check_steps(eng, PROMPTS[0], asked)
    assert found.token_ids[0] == encode("example")[0]
    assert found.trace.steps[0].was_forced
    assert watched.cut == 2  # one token of each of the two runs


def test_it_takes_fewer_passes_and_its_documents_validate(eng, monkeypatch):
    watched = Watched(eng, monkeypatch)
    for prompt in PROMPTS:
        counts = []
        for strategy in ("jump", "mask"):
            watched.passes = 0
            found = eng.generate(prompt, constraint=SPECS["schema"], strategy=strategy, temperature=0, trace="off")
            jsonschema.validate(found.parsed, USER)
            counts.append(watched.passes)
        assert counts[0] * 3 < counts[1] * 2


def test_it_is_the_same_when_served_beside_others(eng):
    asked = [
        (prompt, {"constraint": spec, "strategy": strategy, "temperature": 0.8, "seed": 4, "trace": trace})
        for prompt in PROMPTS
        for spec in (SPECS["schema"], SPECS["choice"])
        for strategy, trace in (("jump", "off"), ("jump", "summary"), ("mask", "off"))
    ]
    alone = [eng.generate(prompt, **more).token_ids for prompt, more in asked]
    with closing(eng.serve()) as service:
        running = [service.submit(eng.requests(prompt, **more)[0][0]) for prompt, more in asked]
        together = [next(e.result.token_ids for e in one if isinstance(e, FinishEvent)) for one in running]
    assert together == alone


def test_a_long_prompt_is_found_again_by_the_server(eng):
    asked = {"constraint": SPECS["schema"], "strategy": "jump", "temperature": 0, "trace": "off", "max_tokens": 60}
    prompt = "Generate user info, please. " * 20
    with closing(eng.serve()) as service:
        first, again = (
            next(e.result for e in service.submit(eng.requests(prompt, **asked)[0][0]) if isinstance(e, FinishEvent))
            for _ in range(2)
        )
    assert first.token_ids == again.token_ids
    assert again.usage.cached_tokens > 50
