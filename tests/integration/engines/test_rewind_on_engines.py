"""Rewinding on the bundled model, by transformers and by llama.cpp: the cache after it is that of a fresh prefill."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import espalier
from espalier import JsonSchema
from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.decoding.ports import Extend
from espalier.errors import CapabilityError
from espalier.wiring import demo_model
from tests.opaque import Opaque, declared

TOLERANCE = 1e-4
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 130}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
BEGUN = '("The cat" | "A cat" | "Once")'
SAT = Opaque(f'root ::= "(" root ")" | {BEGUN} " sat." | "zebra"')
RAN = Opaque(f'root ::= "[" root "]" | {BEGUN} " ran." | "zebra"')


@pytest.fixture(autouse=True)
def _opaque(monkeypatch):
    declared(monkeypatch)


@pytest.fixture(scope="module", params=["transformers", "llama.cpp"])
def eng(request) -> Iterator[Any]:
    if request.param == "llama.cpp":
        pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
        # Keys and values in float32, one thread: rows of one token and of many agree then.
        options = {"kv_type": "f32", "flash_attention": "off", "threads": 1}
        with espalier.load(str(demo_model() / "demo.gguf"), **options) as loaded:
            yield loaded
        return
    yield request.getfixturevalue("demo_engine")


def phrases_of(eng, prompt, count, **options):
    """What the model says freely, cut into phrases that cross token borders, so that a ban of them is met."""
    text = eng.generate(prompt, temperature=0, max_tokens=count, **options).text
    return [text[at : at + 6] for at in range(3, len(text) - 6, 12)]


def seen(eng, monkeypatch):
    """The tokens and the last row of every pass, by sequence, as the model was asked for them."""
    model, held, found = eng.engine.model, {}, []
    extend, truncate = model.extend, model.truncate

    def watched(work):
        rows = extend(work)
        for item, row in zip(work, rows, strict=True):
            held[item.sequence] = [*held.get(item.sequence, []), *item.tokens]
            found.append((tuple(held[item.sequence]), row[-1].copy()))
        return rows

    def cut(sequence, length):
        truncate(sequence, length)
        del held[sequence][length:]

    monkeypatch.setattr(model, "extend", watched)
    monkeypatch.setattr(model, "truncate", cut)
    return found


@pytest.mark.parametrize("case", ["ban", "ban in JSON", "two grammars"])
def test_the_cache_after_going_back_is_that_of_a_fresh_prefill(eng, case, monkeypatch):
    prompt = "Tell me a story about a cat."
    if case == "ban":
        constraint = Ban(phrases_of(eng, prompt, 40), mode="rewind")
    elif case == "ban in JSON":
        prompt = "Generate user info"
        said = eng.generate(prompt, constraint=JsonSchema(PERSON), temperature=0).parsed["name"]
        constraint = AllOf(JsonSchema(PERSON), Ban([said, said[:8]], mode="rewind"))
    else:
        constraint = AllOf(SAT, RAN, dead_ends="rewind")
    with monkeypatch.context() as patch:
        passes = seen(eng, patch)
        result = eng.generate(prompt, constraint=constraint, temperature=0, max_tokens=24)
    assert result.trace.rewinds
    assert result.verdict.valid or case == "two grammars" or result.finish_reason == "length"
    assert case != "two grammars" or result.text == "zebra"
    model = eng.engine.model
    assert len(passes) >= len(result.token_ids)
    back = [at for at in range(1, len(passes)) if len(passes[at][0]) <= len(passes[at - 1][0])]
    assert back
    checked = {at for place in (*back[:3], back[-1]) for at in (place, place + 1)} | {len(passes) - 1}
    for tokens, row in (passes[at] for at in sorted(checked) if at < len(passes)):
        fresh = model.new()
        rows = model.extend([Extend(sequence=fresh, tokens=tokens)])[0]
        np.testing.assert_allclose(row, rows[-1], atol=TOLERANCE, rtol=0)
        model.free(fresh)


def test_back_to_the_beginning_after_a_prompt_of_one_token(eng):
    """There the whole cache is given up, and the prompt computed once more."""
    (request,), _ = eng.requests(
        "x", constraint=AllOf(SAT, RAN, dead_ends="rewind"), temperature=0, max_tokens=24, raw=True
    )
    request = replace(request, prompt_ids=(eng.engine.vocab.tokens.index(b"x"),))
    *_, last = eng.engine.run([request])
    assert last.result.text == "zebra"
    assert any(rewind.step == 0 for rewind in last.result.trace.rewinds)


def test_both_drivers_agree(eng):
    constraint = Ban(phrases_of(eng, "Hello!", 30), mode="rewind")
    options = {"constraint": constraint, "temperature": 0.8, "seed": 3, "max_tokens": 40}
    (request,), _ = eng.requests("Hello!", **options)
    alone = eng.generate("Hello!", **options)
    served = eng.serve()
    others = [served.submit(eng.requests("Hello!", **(options | {"seed": seed}))[0][0]) for seed in (7, 8)]
    *_, last = served.submit(request)
    for other in others:
        list(other)
    served.close()
    assert last.result.token_ids == alone.token_ids
    assert last.result.trace.rewinds == alone.trace.rewinds


def test_the_engines_own_sampler_refuses_by_name(eng):
    with pytest.raises(CapabilityError) as refused:
        eng.generate("Hello!", constraint=Ban(["a b"], mode="rewind"), sampler="native")
    assert refused.value.field == "sampler"
