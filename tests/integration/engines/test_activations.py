"""Captured hidden states of the demo model, against `model(..., output_hidden_states=True)` of transformers."""

from __future__ import annotations

import numpy as np
import pytest

import espalier
from espalier.activations.store.dtypes import from_bfloat16_bits
from espalier.errors import CapabilityError, InputError
from espalier.wiring import demo_model
from tests.examples import examples

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

# Of the largest value of a vector: half a unit in the last place, and for float32 (the model's own type) what sums in
# another order change.
PRECISION = {"float32": 5e-5, "float16": 6e-4, "bfloat16": 5e-3}
STRATEGIES = {
    "mask": {},
    "jump": {"strategy": "jump"},
    "beam": {"strategy": "beam", "num_beams": 3, "num_return_sequences": 2},
    "smc": {"strategy": "smc", "particles": 3, "num_return_sequences": 2, "seed": 5},
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}
PROMPTS = ["Who are you?", "Write a person as JSON.", "Berlin", "A sentence about a dog, a cat and a bird, please."]


@pytest.fixture(scope="module")
def reference():
    return transformers.AutoModelForCausalLM.from_pretrained(demo_model(), dtype="float32").eval()


def hidden_states(reference, ids):
    """By site and layer `(T, hidden)`, by transformers' own means: no cache, no batch, no hooks on layers."""
    with torch.inference_mode():
        returned = reference(torch.tensor([list(ids)]), output_hidden_states=True)
    states = {("residual", n): one[0].numpy() for n, one in enumerate(returned.hidden_states[1:])}
    last = len(returned.hidden_states) - 2
    return states, last


def check(reference, result, *, dtype="float32", positions=None):
    captured = result.activations
    record = captured.record
    ids = (*record.prompt_ids, *record.response_ids)
    assert record.response_ids == result.token_ids
    states, last = hidden_states(reference, ids)
    if positions is not None:
        assert list(record.positions) == positions(len(record.prompt_ids), len(ids))
    for (site, layer), found in captured.vectors.items():
        assert site == "residual"
        values = from_bfloat16_bits(found) if found.dtype == np.uint16 else found.astype(np.float32)
        if layer == last:  # transformers gives the last one after the final norm
            with torch.inference_mode():
                values = reference.model.norm(torch.from_numpy(values)).numpy()
        wanted = states[site, layer][list(record.positions)]
        off = np.abs(values - wanted).max(axis=1) / np.abs(wanted).max(axis=1)
        assert off.max() < PRECISION[dtype]
    return len(record.positions)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_vectors_are_those_of_transformers_alone_and_batched(demo_engine, reference, strategy):
    """Half of the requests alone, half in batches of 5: each prompt both ways, beside each of the others."""
    each = examples(10)
    asked = espalier.Activations(dtype="float32")
    options = {
        "constraint": espalier.JsonSchema(SCHEMA),
        "max_tokens": 20,
        "activations": asked,
        "trace": "off",
    } | STRATEGIES[strategy]
    seeds = {"seed": 1} | options
    rows = 0
    for number in range(each):
        result = demo_engine.generate(f"{PROMPTS[number % 4]} {number}", **seeds)
        for one in (result, *result.others):
            rows += check(reference, one)
    for number in range(0, each, 5):
        batch = [f"{PROMPTS[(number + i) % 4]} {number} {i}" for i in range(min(5, each))]
        for result in demo_engine.generate(batch, **seeds):
            for one in (result, *result.others):
                rows += check(reference, one)
    assert rows > 20 * each


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_number_types_keep_their_precision(demo_engine, reference, dtype):
    result = demo_engine.generate(PROMPTS[0], max_tokens=8, seed=1, activations={"dtype": dtype})
    check(reference, result, dtype=dtype)


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        ("all", lambda prompt, whole: list(range(whole - 1))),
        ("prompt", lambda prompt, whole: list(range(prompt))),
        ("response", lambda prompt, whole: list(range(prompt, whole - 1))),
        ("last", lambda prompt, whole: [whole - 2]),
        ("every 3", lambda prompt, whole: list(range(0, whole - 1, 3))),
    ],
)
def test_positions_are_those_asked_for(demo_engine, reference, positions, expected):
    asked = espalier.Activations(positions=positions, layers=[1, -1], dtype="float32")
    result = demo_engine.generate(PROMPTS[1], max_tokens=9, seed=1, activations=asked)
    assert check(reference, result, positions=expected) > 0
    assert result.activations.record.layers == (1, 3)


def test_attention_and_mlp_add_up_to_the_stream(demo_engine):
    asked = {"sites": ["residual", "attention", "mlp"], "dtype": "float32"}
    vectors = demo_engine.generate(PROMPTS[1], max_tokens=9, seed=1, activations=asked).activations.vectors
    for layer in (1, 2, 3):
        added = vectors["residual", layer - 1] + vectors["attention", layer] + vectors["mlp", layer]
        np.testing.assert_allclose(added, vectors["residual", layer], rtol=1e-4, atol=1e-4)


def test_continuous_batching_keeps_requests_apart_and_cached_prefixes_lose_nothing(reference):
    with espalier.load(str(demo_model())) as engine:
        service = engine.serve(prefill_chunk=7)
        try:
            for round_ in range(2):  # the second round finds all prompts kept
                running = []
                for number, prompt in enumerate([*PROMPTS, *PROMPTS]):
                    given = {"activations": espalier.Activations(dtype="float32")} if number != 2 else {}
                    request = engine.requests(prompt, max_tokens=6 + number, seed=number + round_, **given)[0][0]
                    running.append(service.submit(request))
                for number, one in enumerate(running):
                    result = list(one)[-1].result
                    if number == 2:
                        assert result.activations is None
                    else:
                        check(reference, result, positions=lambda prompt, whole: list(range(whole - 1)))
                        assert result.usage.cached_tokens == 0
            plain = list(service.submit(engine.requests(PROMPTS[3], max_tokens=3)[0][0]))[-1].result
            assert plain.usage.cached_tokens > 0  # what a capture leaves is a prefix for others
            assert engine.engine.model._taps.is_idle
        finally:
            service.close()


def test_texts_that_are_taken_back_leave_no_vectors(demo_engine, reference):
    """A safety filter that rewinds: what the text holds is what was captured."""
    spec = espalier.Ban(("the",))
    result = demo_engine.generate(PROMPTS[3], constraint=spec, max_tokens=30, seed=3, activations={"dtype": "float32"})
    check(reference, result, positions=lambda prompt, whole: list(range(whole - 1)))


def test_hooks_are_gone_after_a_run(demo_engine):
    demo_engine.generate(PROMPTS[0], max_tokens=2, activations=True)
    assert demo_engine.engine.model._taps.is_idle
    assert not any(module._forward_hooks for module in demo_engine.engine.model._model.modules())


def test_an_engine_without_hidden_states_refuses_before_generating():
    with espalier.load(str(demo_model() / "demo.gguf")) as engine, pytest.raises(CapabilityError) as caught:
        engine.generate("Hello", activations=True)
    assert caught.value.field == "activations"
    assert "safetensors" in caught.value.hint


def test_a_layer_that_the_model_has_not_is_refused(demo_engine):
    with pytest.raises(InputError, match="no layer 9") as caught:
        demo_engine.generate("Hello", activations={"layers": [9]})
    assert caught.value.field == "layers"


def test_samples_of_one_request_have_one_group_and_a_number_each(demo_engine):
    asked = {"layers": [0], "positions": "last", "run_id": "r1"}
    beam = demo_engine.generate(PROMPTS[0], max_tokens=4, seed=1, activations=asked, **STRATEGIES["beam"])
    several = demo_engine.generate([PROMPTS[0], PROMPTS[2]], n=2, max_tokens=4, seed=1, activations=asked)
    runs = [[beam, *beam.others], several[:2], several[2:]]
    for run in runs:
        records = [one.activations.record for one in run]
        assert [one.sample_index for one in records] == [0, 1]
        assert {one.run_id for one in records} == {"r1"}
        assert len({one.sample_group_id for one in records}) == 1
    assert len({run[0].activations.record.sample_group_id for run in runs}) == 3
