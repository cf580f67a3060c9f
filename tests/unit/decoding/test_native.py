"""The plan around an engine's own sampler, with a scripted one: stages, numbers, ends, and that it is closed."""

from __future__ import annotations

import math

import numpy as np
import pytest

import espalier
from espalier import AllOf, Choice, Gbnf, Regex, SamplingConfig, Vocab
from espalier.decoding.native import NativeChoice, check_native, native_plan
from espalier.decoding.plan import Job, Outcome, SampledToken
from espalier.decoding.step.record import Watch
from espalier.engines.fake import FakeStepModel
from espalier.engines.scheduling.drive import drive
from espalier.errors import BadLogits, CapabilityError, GenerationError, SamplingError
from espalier.sampling.chain import Chain
from espalier.sampling.draw import DrawnToken as Drawn
from espalier.sampling.draw import RandomStream
from espalier.sampling.fit import fit

VOCAB = Vocab.from_tokens([bytes([97 + i]) for i in range(6)] + [b"ab", b""], eos_ids=[7])
A, B, C, EOS = 0, 1, 2, 7
ROW = np.array([2.0, 1.0, 0.0, -1.0, 0.5, 0.25, -2.0, -3.0], dtype=np.float32)


def drawn(token, probs=None):
    probs = {token: 1.0} if probs is None else probs
    ids = np.array(sorted(probs), dtype=np.intp)
    values = np.array([probs[i] for i in sorted(probs)])
    return Drawn(token, probs[token], float(ROW[token]), ids, values, ROW[ids])


class Scripted:
    """Gives what it is told, and writes down what happens to it."""

    def __init__(self, *choices):
        self.choices, self.prompt, self.accepted, self.closed, self.asked = list(choices), None, [], 0, []

    def accept_prompt(self, tokens):
        self.prompt = tuple(tokens)

    def sample(self, raw, *, full):
        self.asked.append(full)
        choice = self.choices.pop(0)
        return NativeChoice(drawn(choice)) if isinstance(choice, int) else choice

    def accept(self, token):
        self.accepted.append(token)

    def close(self):
        self.closed += 1


def run(sampler, spec=None, *, watch=None, row=ROW, max_tokens=8, prompt=(3, 4), **fields):
    config = SamplingConfig.from_json({"temperature": 1.0, "repetition_penalty": 1.0} | fields)
    compiled = None if spec is None else espalier.compile(spec, vocab=VOCAB)
    job = Job(
        vocab=VOCAB,
        prompt=prompt,
        matcher=None if compiled is None else compiled.matcher(),
        chain=Chain(config, fitted=fit(config, VOCAB, lambda text: [ord(c) - 97 for c in text])),
        stream=RandomStream(0),
        max_tokens=max_tokens,
        watch=watch or Watch("full", 3),
    )
    plan = native_plan(job, sampler)
    records, answer, said = [], None, None
    try:
        while True:
            said = plan.send(answer)
            if isinstance(said, SampledToken):
                records.append(said.record)
                answer = None
            else:
                answer = {0: row[None, :]}
    except StopIteration as end:
        return records, end.value


def mass(ids):
    weights = np.exp(ROW.astype(np.float64))
    return float(weights[list(ids)].sum() / weights.sum())


def test_the_sampler_is_asked_in_order_and_closed_at_the_end():
    sampler = Scripted(A, B, EOS)
    records, outcome = run(sampler, Gbnf('root ::= "a" "b"'))
    assert isinstance(outcome, Outcome)
    assert (outcome.text, outcome.finish, outcome.is_complete) == ("ab", "stop", True)
    assert (sampler.prompt, sampler.accepted, sampler.closed) == ((3, 4), [A, B, EOS], 1)
    assert [record.step for record in records] == [0, 1, 2]


def test_a_rejected_step_by_hand():
    first = drawn(A, {A: 0.7, B: 0.3})
    taken = drawn(B, {B: 0.75, C: 0.25})
    spec = Gbnf("root ::= [bc]")
    (record, _), _ = run(Scripted(NativeChoice(taken, first), EOS), spec)
    z = mass([B, C])
    assert record.was_rejected
    assert (record.rejected.id, record.rejected.prob, record.rejected.allowed) == (A, 0.7, False)
    assert record.resampled.prob == 0.75
    assert record.allowed_count == 2
    assert record.removed_mass == pytest.approx(1 - z)
    assert record.tax_nats == pytest.approx(-math.log(z))
    assert record.z_sampled == pytest.approx(z, rel=1e-6)
    assert record.logprob == pytest.approx(math.log(mass([B])))
    q = np.array([mass([B]) / z, mass([C]) / z])
    assert record.entropy_after == pytest.approx(float(-(q * np.log(q)).sum()))
    assert [one.id for one in record.pre_masking] == [A, B, 4]
    assert [one.id for one in record.post_grammar] == [B, C]
    assert [one.prob for one in record.post_grammar] == pytest.approx(q.tolist())
    assert [(one.id, one.prob) for one in record.post_chain] == [(B, 0.75), (C, 0.25)]
    assert "b" in record.blame.expected


def test_the_rejected_token_is_among_the_candidates_however_improbable():
    first = drawn(6)
    (record, _), _ = run(Scripted(NativeChoice(drawn(A), first), EOS), Gbnf('root ::= "a"'), watch=Watch("full", 2))
    assert [one.id for one in record.pre_masking] == [A, B, 6]
    assert record.blame is not None


def test_a_step_that_was_not_rejected_still_tells_that_the_favourite_is_refused():
    (record, _), _ = run(Scripted(C, EOS), Gbnf("root ::= [bc]"))
    assert not record.was_rejected
    assert record.rejected is None
    assert record.blame is not None  # of `a`
    assert record.removed_mass == pytest.approx(1 - mass([B, C]))


def test_the_members_of_a_composition_share_what_was_removed():
    (record, *_), _ = run(Scripted(B, EOS), AllOf(Regex("[abc]"), Choice(["b", "d"])))
    shared = dict(record.removed_by)
    assert sum(shared.values()) == pytest.approx(record.removed_mass)
    assert len(shared) >= 2


def test_without_a_constraint_nothing_is_removed_and_bans_are_said():
    (record, _), outcome = run(Scripted(B, C), max_tokens=2)
    assert (record.allowed_count, record.removed_mass, record.z_sampled) == (8, 0.0, 1.0)
    assert record.blame is None
    assert outcome.finish == "length"
    (record, _), outcome = run(Scripted(B, C), max_tokens=2, logit_bias={A: -math.inf}, ignore_eos=True)
    assert dict(record.removed_by) == pytest.approx({"logit_bias": mass([A]), "ignore_eos": mass([EOS])})
    assert record.blame.member == "logit_bias"


def test_z_is_not_said_where_llama_cpp_counts_otherwise():
    spec = Gbnf("root ::= [bc]")
    unknown = {"temperature": 0.0, "frequency_penalty": 0.5, "presence_penalty": 0.5, "dynatemp_range": 0.5}
    for name, value in unknown.items():
        (record, _), _ = run(Scripted(B, EOS), spec, **{name: value})
        assert record.z_sampled is None, name
    (record, _), _ = run(Scripted(B, EOS), spec, mirostat=2, repetition_penalty=1.5, temperature=2.0)
    halved = np.exp(ROW.astype(np.float64) / 2)  # with mirostat the penalties do not run
    assert record.z_sampled == pytest.approx(float(halved[[B, C]].sum() / halved.sum()), rel=1e-5)


def test_nothing_is_recorded_at_level_off_and_no_candidates_at_measures():
    sampler = Scripted(B, EOS)
    records, _ = run(sampler, Gbnf("root ::= [bc]"), watch=Watch("off"))
    assert records == [None, None]
    assert sampler.asked == [False, False]
    (record, _), _ = run(Scripted(NativeChoice(drawn(B), drawn(A)), EOS), Gbnf("root ::= [bc]"), watch=Watch("summary"))
    assert record.pre_masking == record.post_grammar == record.post_chain == ()
    assert record.was_rejected
    assert record.removed_mass == pytest.approx(1 - mass([B, C]))


def test_at_level_off_no_mask_is_made(monkeypatch):
    spec = Gbnf("root ::= [bc]")
    kind = type(espalier.compile(spec, vocab=VOCAB).matcher())

    def refuse(self):
        raise AssertionError("a mask was made")

    monkeypatch.setattr(kind, "mask", refuse)
    run(Scripted(NativeChoice(drawn(B), drawn(A)), EOS), spec, watch=Watch("off"))
    with pytest.raises(AssertionError):
        run(Scripted(B, EOS), spec, watch=Watch("summary"))


@pytest.mark.parametrize("level", ["off", "summary", "full"])
def test_a_token_that_our_grammar_refuses_stops_the_run_before_it_is_accepted(level):
    sampler = Scripted(A)
    with pytest.raises(GenerationError, match="the two grammars disagree at step 0: the engine's own took 'a'"):
        run(sampler, Gbnf("root ::= [bc]"), watch=Watch(level))
    assert (sampler.accepted, sampler.closed) == ([], 1)


def test_bad_logits_do_not_reach_the_sampler():
    sampler = Scripted(A)
    row = ROW.copy()
    row[3] = np.nan
    with pytest.raises(BadLogits):
        run(sampler, row=row)
    assert (sampler.asked, sampler.closed) == ([], 1)


def test_stop_texts_and_stop_ids_end_it():
    _, outcome = run(Scripted(A, B, C), stop=["b"])
    assert (outcome.text, outcome.stop, outcome.tokens) == ("a", "b", (A, B))
    _, outcome = run(Scripted(A, B, C), stop_ids=[B])
    assert (outcome.text, outcome.stop) == ("a", B)


def test_the_sampler_is_closed_when_the_run_is_stopped():
    model = FakeStepModel(lambda tokens: ROW, width=VOCAB.width)
    config = SamplingConfig(temperature=1.0)
    samplers = [Scripted(A, B, C, A, B), Scripted(A, B, C, A, B)]
    jobs = [
        Job(
            vocab=VOCAB,
            prompt=(3,),
            matcher=None,
            chain=Chain(config),
            stream=RandomStream(0),
            max_tokens=5,
            watch=Watch("off"),
        )
        for _ in samplers
    ]
    driver = drive(model, [native_plan(job, sampler) for job, sampler in zip(jobs, samplers, strict=True)])
    next(driver)
    driver.close()
    assert [sampler.closed for sampler in samplers] == [1, 1]
    assert model.live == 0


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("strategy", {"strategy": "beam"}),
        ("soft", {"soft": 1}),
        ("filters", {"filters": 2}),
        ("min_tokens", {"min_tokens": 1}),
        ("bad_words", {"bad_words": ("x",)}),
        ("allowed_ids", {"allowed_ids": (1,)}),
    ],
)
def test_what_a_native_sampler_cannot_do_is_refused(field, given):
    own = {"strategy": "mask", "soft": 0, "filters": 0, "stream": 0}
    config = SamplingConfig(**{k: v for k, v in given.items() if k not in own})
    with pytest.raises(CapabilityError) as raised:
        check_native(config, **(own | {k: v for k, v in given.items() if k in own}))
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("field", "stream", "given"),
    [
        ("seed", 0, {"seed": 2**32 - 1}),
        ("seed", 5, {"seed": 2**32 - 5}),
        ("temperature", 0, {"temperature": 1e-4}),
        ("temperature", 0, {"temperature": 1e9}),
        ("repetition_penalty", 0, {"repetition_penalty": 1e-20}),
        ("presence_penalty", 0, {"presence_penalty": -1e20}),
        ("dry_base", 0, {"dry_base": 1e20}),
    ],
)
def test_values_beyond_float32_are_refused(field, stream, given):
    with pytest.raises(SamplingError) as raised:
        check_native(SamplingConfig(**given), strategy="mask", soft=0, filters=0, stream=stream)
    assert raised.value.field == field


def test_what_it_can_do_is_not_refused():
    for given in (
        {},
        {"seed": 2**32 - 2},
        {"temperature": 0.0},
        {"mirostat": 1},
        {"ignore_eos": True},
        {"logit_bias": {1: -math.inf}},
        {"stop_ids": [1]},
    ):
        check_native(SamplingConfig(**given), strategy="mask", soft=0, filters=0, stream=0)
