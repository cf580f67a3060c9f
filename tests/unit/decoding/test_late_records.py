"""A record that is made when it is read equals one that was made at the step, whatever has happened since."""

from __future__ import annotations

import math
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier import AllOf, Ban, Gbnf, JsonSchema, Regex, SamplingConfig
from espalier.constraints.compiler import Compiler
from espalier.decoding.matcher_questions import NO_MATCHER, MatcherQuestions
from espalier.decoding.step import decide as steps
from espalier.decoding.step import observed
from espalier.decoding.step import row as rows
from espalier.decoding.step.record import Watch
from espalier.sampling.chain import Chain
from espalier.sampling.config_names import OPENAI_ORDER
from espalier.sampling.draw import RandomStream
from espalier.sampling.fast.program import list_inputs
from espalier.sampling.filters import FilterContext
from espalier.sampling.fit import fit
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.trace.records import StepRecord
from tests.examples import examples
from tests.traces import alike

BYTES = Vocab.bytes()
COMPILER = Compiler(BYTES)
SPECS = {
    "json schema": JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "xy"]}}}),
    "gbnf": Gbnf('root ::= "(" list ")"\nlist ::= item ("," item){1,3}\nitem ::= [a-c]{1,2} | "[" list "]"'),
    "unique items": JsonSchema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 3}),
    "all of": AllOf([Regex("[a-z ]{4,9}"), Ban(["e"])]),
}
PLACED = ("json schema", "gbnf")

WIDTH = 75  # neither a whole number of words, nor all of it tokens
VOCAB = Vocab.from_tokens([bytes([48 + i]) for i in range(70)] + [b""], eos_ids=[70], width=WIDTH)
CONFIGS = {
    "default": {},
    "greedy": {"temperature": 0.0},
    "greedy, penalised": {"temperature": 0.0, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
    "hot": {"temperature": 1.7, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "plain": {"temperature": 1.0, "repetition_penalty": 1.0, "top_k": 5, "top_p": 0.8},
    "temperature first": {"temperature": 0.6, "repetition_penalty": 1.0, "sampler_order": OPENAI_ORDER},
    "penalties, temperature first": {"temperature": 1.6, "repetition_penalty": 1.2, "sampler_order": OPENAI_ORDER},
    "all penalties": {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": -0.2},
    "all of the past": {"repetition_window": -1},
    "bans": {"logit_bias": ((3, -math.inf), (70, -math.inf))},
    "allowed": {"allowed_ids": tuple(range(0, 70, 2))},
    "early": {"min_tokens": 500},
    "biased": {"logit_bias": ((5, 2.5), (6, -1.0), (7, -math.inf))},
    "mirostat": {"mirostat": 2},
    "xtc": {"xtc_probability": 0.5, "xtc_threshold": 0.1},
    "dry": {"dry_multiplier": 0.8},
}


def drawn_row(rng):
    row = rng.normal(0.0, rng.choice([0.1, 3.0, 12.0]), WIDTH).astype(np.float32)
    row[rng.random(WIDTH) < rng.choice([0.0, 0.3])] = -math.inf
    row[:2] = 1.0, 0.5  # something is left under every mask
    return row


def drawn_mask(rng):
    return masks.from_bool(np.append([True, True], rng.random(69) < rng.choice([0.02, 0.5, 1.0])))


def chain_of(name, said):
    config = SamplingConfig(**CONFIGS[name])
    chain = Chain(config, fitted=fit(config, VOCAB, lambda text: [ord(c) - 48 for c in text if 48 <= ord(c) < 118]))
    chain.start([1, 2, 3, 1])
    for token in said:
        chain.on_token(token, 0.5)
    return chain


def decided(take, row, mask, name, said, seed, level):
    """A decision, after which all that may change has changed."""
    row, mask, chain = row.copy(), None if mask is None else mask.copy(), chain_of(name, said)
    context = FilterContext(step=len(said), prompt=(1, 2, 3, 1), generated=())
    stream = RandomStream(seed)
    found = take(
        row, mask, vocab=VOCAB, chain=chain, stream=stream, context=context, watch=Watch(level, 4), questions=NO_MATCHER
    )
    row[:] = 0.0
    if mask is not None:
        mask[:] = 0
    for token in range(40):
        chain.on_token(token, 0.5)
    return found, stream.count


def measure_at_once(patch):
    """Steps then take the plain way, row and record."""
    patch.setattr(rows, "program_of", lambda _: None)
    patch.setattr(Chain, "kept", lambda chain, make: make(chain))


def late(row, mask, **more):
    return steps.decide_late(row, lambda: mask, lambda token: masks.test(mask, token), **more)


@pytest.mark.parametrize("name", CONFIGS)
@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32), level=st.sampled_from(["summary", "steps", "full"]), is_late=st.booleans())
def test_a_record_made_later_equals_one_made_at_the_step(name, seed, level, is_late):
    rng = np.random.default_rng(seed)
    row, said = drawn_row(rng), rng.integers(0, 70, rng.integers(0, 70)).tolist()
    mask = drawn_mask(rng) if is_late or rng.random() < 0.8 else None
    given_row = (late if is_late else steps.decide, row, mask, name, said, seed, level)
    found, used = decided(*given_row)
    with pytest.MonkeyPatch.context() as patch:
        measure_at_once(patch)
        expected, used_then = decided(*given_row)
    assert (found.token, used) == (expected.token, used_then)
    assert found.prob == pytest.approx(expected.prob, rel=1e-9)
    alike(found.record, expected.record)


@pytest.mark.parametrize("kind", SPECS)
@settings(max_examples=examples(12))
@given(
    seed=st.integers(0, 2**32),
    level=st.sampled_from(["summary", "steps", "full"]),
    counts=st.booleans(),
    is_late=st.booleans(),
)
def test_a_record_says_of_its_constraint_what_it_said_at_the_step(kind, seed, level, counts, is_late):
    """The text goes on, back, and on in a fork before any record is read."""
    rng, watch = np.random.default_rng(seed), Watch(level, 4, counts)
    matcher = COMPILER.compile(SPECS[kind]).matcher()
    questions, pairs, said = MatcherQuestions(matcher), [], []
    assert (questions.place() is not None) == (kind in PLACED)
    for _ in range(10):
        if matcher.is_finished:
            break
        row = rng.normal(0.0, 3.0, BYTES.width).astype(np.float32)
        row[masks.allowed_ids(matcher.mask(), BYTES.width)] += rng.choice([0.0, 6.0])
        given_row = row, matcher, questions, said, seed, watch, is_late
        found, used = constrained(*given_row)
        with pytest.MonkeyPatch.context() as patch:
            measure_at_once(patch)
            expected, used_then = constrained(*given_row)
        assert (found.token, used) == (expected.token, used_then)
        pairs.append((found.record, replace(expected.record)))
        if rng.random() < 0.3:
            fork = matcher.fork()
            matcher.advance(int(rng.choice(masks.allowed_ids(matcher.mask(), BYTES.width))))
            matcher, questions = fork, questions.about(fork)
        matcher.advance(found.token)
        said.append(found.token)
        if rng.random() < 0.3:
            back = int(rng.integers(1, len(said) + 1))
            matcher.rollback(back)
            del said[-back:]
    matcher.rollback(len(said))
    rng.shuffle(pairs)
    for late_one, at_once in pairs:
        alike(late_one, at_once)


def constrained(row, matcher, questions, said, seed, watch, is_late):
    """A step under a matcher, after which its row and its mask are gone."""
    config = SamplingConfig()
    chain, stream = Chain(config, fitted=fit(config, BYTES, lambda text: [*text.encode()])), RandomStream(seed)
    chain.start([1, 2])
    for token in said:
        chain.on_token(token, 0.5)
    row, mask = row.copy(), matcher.mask().copy()
    take = (
        partial(steps.decide_late, row, lambda: mask, matcher.allows) if is_late else partial(steps.decide, row, mask)
    )
    found = take(
        vocab=BYTES,
        chain=chain,
        stream=stream,
        watch=watch,
        questions=questions,
        context=FilterContext(step=len(said), prompt=(1, 2), generated=tuple(said)),
    )
    row[:], mask[:] = 0.0, 0
    return found, stream.count


def test_the_common_step_makes_its_record_only_when_it_is_read(monkeypatch):
    made = []
    real = observed.record_row
    monkeypatch.setattr(observed, "record_row", lambda *given: made.append(given) or real(*given))
    found, _ = decided(steps.decide, np.arange(WIDTH, dtype=np.float32), None, "default", [1], 0, "steps")
    assert not made
    assert found.record.token_id == found.token
    assert (found.record.step, found.record.was_forced, found.record.text) == (1, False, VOCAB.text_of(found.token))
    assert len(made) == 1


@pytest.mark.parametrize("is_drawn", [False, True])
def test_a_step_whose_numbers_no_kernel_holds_builds_its_mask_once(monkeypatch, is_drawn):
    built, mask = [], masks.from_bool(np.arange(70) == 5)

    def counted(row, _, **more):
        return steps.decide_late(row, lambda: built.append(1) or mask, lambda token: token == 5, **more)

    if not is_drawn:
        monkeypatch.setattr(rows, "program_of", lambda _: None)
        monkeypatch.setattr(Chain, "kept", lambda chain, make: make(chain))
    monkeypatch.setattr(observed, "_sum", lambda *_: None)
    found, _ = decided(counted, np.arange(WIDTH, dtype=np.float32), None, "default", [1], 0, "summary")
    assert (found.token, len(built)) == (5, 1)
    assert found.record.was_rejected


def test_a_record_of_another_token_than_the_one_taken_is_refused(monkeypatch):
    row = np.arange(WIDTH, dtype=np.float32)
    for take, mask in ((steps.decide, None), (late, masks.from_bool(np.arange(70) < 9))):
        found, _ = decided(take, row, mask, "default", [1], 0, "steps")
        with monkeypatch.context() as patch:
            patch.setattr(
                observed, "list_inputs", lambda inputs, show: list_inputs(inputs._replace(row=-inputs.row), show)
            )
            with pytest.raises(AssertionError, match="was taken, and deciding again takes"):
                _ = found.record.text


def test_an_object_that_is_made_later_behaves_as_the_one_made_at_once():
    whole = decided(steps.decide, np.arange(WIDTH, dtype=np.float32), None, "default", [1], 0, "summary")[0].record
    calls = []

    def later():
        return StepRecord.later(lambda: calls.append(1) or whole)

    assert later() == whole
    assert whole == later()
    assert hash(later()) == hash(whole)
    assert repr(later()) == repr(whole)
    assert pickle.loads(pickle.dumps(later())) == whole
    assert copy(later()) == whole
    assert replace(later(), note="x") == replace(whole, note="x")
    assert later().to_json() == whole.to_json()
    calls.clear()
    one = later()
    assert (one.step, one.text, one.verdict, one.numbers) == (whole.step, whole.text, whole.verdict, whole.numbers)
    assert len(calls) == 1
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = one.nothing
    with pytest.raises(AttributeError):
        one.step = 3


def test_several_threads_that_read_a_record_first_get_the_same():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for seed in range(50):
            row = np.arange(WIDTH, dtype=np.float32)
            record = decided(steps.decide, row, None, "default", [1], seed, "steps")[0].record
            with ThreadPoolExecutor(4) as pool:
                found = list(pool.map(lambda one: one.to_json(), [record] * 4))
            assert all(one == found[0] for one in found)
    finally:
        sys.setswitchinterval(interval)
