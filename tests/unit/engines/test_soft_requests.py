"""Soft constraints through the API and an engine: checked, applied to the logits, said in the trace."""

import dataclasses
import json

import numpy as np
import pytest

import espalier
from espalier.api import check_capabilities, make_request
from espalier.constraints.soft.spec import SoftJson, SoftWordlist
from espalier.constraints.spec import JsonObject, Regex
from espalier.constraints.words.spec import Wordlist
from espalier.engines.base import Capabilities, Request
from espalier.engines.fake import FakeStepModel, noise, open_engine
from espalier.engines.local.engine import LocalEngine
from espalier.errors import CapabilityError, InputError, UnknownName
from espalier.tokens.vocab import Vocab
from espalier.trace.page import render
from espalier.trace.records import Trace

WORDS = Wordlist(["sure", "here", "is", "the"], top=4)


def engine(scale=1.0):
    """Pure noise over bytes."""
    vocab = Vocab.bytes()
    model = FakeStepModel(lambda tokens: noise(tokens, vocab.width, scale), width=vocab.width, max_positions=400)
    made = LocalEngine(name="noise", model=model, vocab=vocab, encode=lambda text, *, add_special: list(text.encode()))
    return espalier.LoadedEngine(made)


@pytest.mark.parametrize(
    "soft", ["soft_json", b"x", 5, {"kind": "soft_json"}, JsonObject(), [SoftJson(), "x"], SoftJson, ""]
)
def test_what_is_no_soft_spec_is_refused(soft):
    with pytest.raises(InputError) as caught:
        make_request("hi", soft=soft)
    assert caught.value.field == "soft"


def test_one_or_several_or_none():
    both = (SoftJson(), SoftWordlist(WORDS))
    assert make_request("hi").soft == make_request("hi", soft=None).soft == make_request("hi", soft=[]).soft == ()
    assert make_request("hi", soft=SoftJson()).soft == (SoftJson(),)
    assert make_request("hi", soft=both).soft == make_request("hi", soft=list(both)).soft == both


def test_an_engine_without_logits_refuses():
    class Remote:
        name = "remote"
        capabilities = Capabilities(constraints=frozenset({"regex"}))

    check_capabilities(Remote(), Request(prompt="hi"))
    with pytest.raises(CapabilityError) as caught:
        check_capabilities(Remote(), Request(prompt="hi", soft=(SoftJson(),)))
    assert caught.value.field == "soft"
    with pytest.raises(CapabilityError) as caught:
        check_capabilities(Remote(), Request(prompt="hi", constraint=JsonObject(), soft=(SoftJson(),)))
    assert caught.value.field == "constraint"


def test_the_logits_drawn_from_are_biased_and_the_allowed_set_is_not():
    result = engine().generate(
        "hi",
        soft=SoftJson(),
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        min_p=0,
        max_tokens=60,
        seed=1,
        repetition_penalty=1.0,
    )
    assert result.verdict is None
    for step in result.trace.steps:
        assert (step.allowed_count, step.tax_nats, step.blame) == (257, 0.0, None)
        assert step.removed_mass == 0.0
        assert step.z_sampled == pytest.approx(1.0)
    raw = noise(tuple(b"hi"), 257)
    first = result.trace.steps[0]
    wanted = raw + np.array([5.0 if i in (123, 91) else 0.0 for i in range(257)], dtype=np.float32)
    expected = np.exp(wanted - wanted.max())
    expected /= expected.sum()
    assert first.resampled.prob == pytest.approx(float(expected[first.token_id]), rel=1e-5)


def test_greedy_follows_the_biases_too():
    free = engine().generate("hi", temperature=0, max_tokens=1)
    soft = engine().generate("hi", temperature=0, max_tokens=1, soft=SoftJson())
    assert free.text not in ("{", "[")
    assert soft.text in ("{", "[")


def test_beside_a_hard_constraint_the_mask_is_that_of_the_constraint():
    options = {"constraint": Regex(r"[a-z{]{3}"), "temperature": 0, "seed": 1}
    hard = engine().generate("hi", **options)
    both = engine().generate("hi", soft=[SoftJson(structural_bias=100)], **options)
    assert both.verdict.valid is True
    assert both.text.startswith("{")
    assert hard.text != both.text
    first_hard, first_both = hard.trace.steps[0], both.trace.steps[0]
    assert first_hard.removed_mass == first_both.removed_mass
    assert first_hard.allowed_count == first_both.allowed_count == 27


def test_a_batch_has_filters_of_its_own_for_each_request():
    options = {
        "soft": SoftJson(),
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0,
        "max_tokens": 30,
        "seed": 3,
    }
    together = engine().generate(["hi", "ho", "hi"], **options)
    alone = [engine().generate(prompt, **options) for prompt in ("hi", "ho", "hi")]
    assert [r.token_ids for r in together] == [r.token_ids for r in alone]
    assert together[0].token_ids == together[2].token_ids


def test_a_faulty_list_is_an_error_before_anything_runs():
    with pytest.raises(UnknownName) as caught:
        engine().stream("hi", soft=SoftWordlist(Wordlist(lang="no-such-list", top=3)))
    assert caught.value.field == "lang"


def test_the_trace_says_what_was_soft():
    soft = [SoftJson(empty_bias=1), SoftWordlist(WORDS)]
    trace = engine().generate("hi", soft=soft, constraint=JsonObject(), seed=1, max_tokens=4).trace
    assert trace.soft == tuple(one.to_json() for one in soft)
    data = json.loads(json.dumps(trace.to_json()))
    assert data["metadata"]["soft"] == [one.to_json() for one in soft]
    assert Trace.from_json(data) == trace
    page = render(data)
    assert '"kind":"soft_json"' in page
    assert '"kind":"soft_wordlist"' in page


def test_a_trace_of_before_has_nothing_soft():
    trace = engine().generate("hi", seed=1, max_tokens=2).trace
    data = trace.to_json()
    assert data["metadata"].pop("soft") == []
    assert Trace.from_json(data) == dataclasses.replace(trace, soft=())
    assert '"soft":[]' in render(data)


def test_the_fake_engine_is_drawn_to_the_list():
    model = open_engine()
    free = espalier.LoadedEngine(model).generate("hi", temperature=0)
    soft = espalier.LoadedEngine(model).generate("hi", temperature=0, soft=SoftWordlist(WORDS, tier3_penalty=20))
    assert free.text.startswith("Sure! Here is the JSON:")
    assert "JSON" not in soft.text
    assert soft.text.startswith("Sure! Here is the ")
