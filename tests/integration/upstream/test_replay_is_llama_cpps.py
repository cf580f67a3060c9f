"""The replay tells from probabilities alone what llama.cpp's own sampler did, step by step, for every sampler."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import espalier
from espalier import SamplingConfig
from espalier.errors import DeadEnd
from espalier.grammar.parser import parse
from espalier.sampling.samplers.dry import resolve_breakers
from espalier.upstream.xray.grammar.matcher import States
from espalier.upstream.xray.grammar.program import compile_program
from espalier.upstream.xray.replay import SamplerReplay
from espalier.upstream.xray.sampler.chain import ServerChain
from espalier.upstream.xray.sampler.settings import read_settings
from espalier.wiring import demo_model
from tests.examples import examples
from tests.xray import pieces_of, reported, sampler_of, settings_of

GRAMMAR = "root ::= [a-z ]+ | [0-9]+"
STEPS, SEEDS = 40, 12
PLAIN = {"temperature": 0.8, "repetition_penalty": 1.0}
EXACT = {
    "defaults": {},
    "greedy": {"temperature": 0.0},
    "hot": {"temperature": 2.0},
    "temperature 1": {"temperature": 1.0},
    "top_k off": {"top_k": 0},
    "top_k 1": {"top_k": 1},
    "min_p only": {"top_k": 0, "top_p": 1.0, "min_p": 0.1},
    "top_p only": {"top_k": 0, "top_p": 0.8, "min_p": 0.0},
    "no truncation": {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "sigma": {"top_n_sigma": 3.0},
    "dynamic": {"dynatemp_range": 0.5, "dynatemp_exponent": 1.5},
    "kept": {"min_keep": 3, "min_p": 0.9, "top_p": 0.1},
    "penalties": {"frequency_penalty": 0.4, "presence_penalty": 0.2},
    "short window": {"presence_penalty": 1.0, "repetition_window": 5},
    "bias": {"logit_bias": {100: 3.0, 200: -2.0, 300: -float("inf")}},
    "typical": {"typical_p": 0.6},
    "xtc": {"xtc_probability": 0.7, "xtc_threshold": 0.05},
    "dry": {"dry_multiplier": 2.0, "dry_allowed_length": 1, "dry_window": 100},
    "mirostat 1": {"mirostat": 1, "mirostat_tau": 4.0},
    "mirostat 2": {"mirostat": 2, "mirostat_eta": 0.3},
    "repeat": {"repetition_penalty": 1.3},
    "repeat, raised": {"repetition_penalty": 0.8, "repetition_window": 8},
    "repeat and all": {
        "repetition_penalty": 1.1,
        "frequency_penalty": 0.2,
        "presence_penalty": -0.5,
        "top_n_sigma": 4.0,
    },
    "repeat, late": {"repetition_penalty": 1.5, "sampler_order": ("temperature", "penalties", "top_k", "min_p")},
    "temperature first": {"sampler_order": ("temperature", "top_k", "top_p", "min_p")},
}
UNTRUNCATED = {"mirostat": ("top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability")}


@pytest.fixture(scope="module")
def engine():
    with espalier.load(demo_model() / "demo.gguf", context=256) as found:
        yield found


@pytest.fixture(scope="module")
def states(engine):
    return States(compile_program(parse(GRAMMAR), special={}), pieces_of(engine.vocab))


def run(engine, states, fields, *, seed, count=0, scale=3.0, grammar=GRAMMAR, off=1e-5):
    """The truth and the replay's steps. Few tokens repeat, so that penalties and DRY matter."""
    config = SamplingConfig(**PLAIN | fields)
    sampler = sampler_of(engine, config, grammar, seed=seed)
    settings = read_settings(settings_of(config, seed=seed, grammar=grammar))
    breakers = resolve_breakers(config.dry_breakers, engine.vocab)
    prompt = [100, 101, 102, 100, 101]
    sampler.accept_prompt(prompt)
    replay = SamplerReplay(ServerChain(settings, width=engine.vocab.width, breakers=breakers), states, list(prompt))
    chance = np.random.default_rng(seed)
    liked = chance.choice(engine.vocab.width, 30, replace=False)
    truth = []
    for _ in range(STEPS):
        row = chance.normal(0, scale, engine.vocab.width).astype(np.float32)
        row[liked] += np.float32(8)
        try:
            choice = sampler.sample(row, full=False)
        except DeadEnd:
            break
        truth.append((None if choice.rejected is None else choice.rejected.token, choice.taken))
        sampler.accept(choice.taken.token)
        replay.advance(choice.taken.token, reported(row, count, off=off))
        if choice.taken.token in engine.vocab.eos_ids:
            break
    return truth, replay.finish()


def compared(found) -> Counter[str]:
    """How many steps are known and right, and how many unknown. A known step that is wrong fails."""
    counts: Counter[str] = Counter()
    for truth, steps in found:
        for (rejected, taken), step in zip(truth, steps, strict=True):
            if step.verdict.outcome == "unknown":
                counts[step.reason] += 1
                continue
            counts["known"] += 1
            counts["rejected"] += rejected is not None
            assert (step.verdict.outcome == "rejected") == (rejected is not None)
            if rejected is not None:
                assert step.verdict.first is not None
                assert step.verdict.first.token == rejected
            if step.verdict.taken is not None:
                assert step.verdict.taken.token == taken.token
                assert step.verdict.taken.prob == pytest.approx(taken.prob, abs=2e-6)
    return counts


@pytest.mark.parametrize("name", EXACT)
def test_every_step_is_known_where_all_probabilities_are(engine, states, name):
    counts = compared(run(engine, states, EXACT[name], seed=seed) for seed in range(examples(SEEDS)))
    assert counts["rejected"] > 10
    unknown = sum(counts.values()) - counts["known"] - counts["rejected"]
    assert unknown <= 0.05 * counts["known"] or name == "typical", counts


@pytest.mark.parametrize("count", [40, 100])
@pytest.mark.parametrize(
    "name", ["defaults", "greedy", "hot", "penalties", "temperature first", "xtc", "bias", "top_k off"]
)
def test_what_is_known_from_the_best_tokens_alone_is_right(engine, states, name, count):
    counts = compared(run(engine, states, EXACT[name], seed=seed, count=count) for seed in range(examples(SEEDS)))
    if name in ("defaults", "greedy", "hot"):
        assert counts["known"] == sum(counts.values()) - counts["rejected"]


@pytest.mark.parametrize("name", ["defaults", "xtc", "sigma", "min_p only", "typical"])
def test_a_grammar_that_allows_fewer_tokens_than_top_k_decides_every_step(engine, name):
    narrow = "root ::= [01]+"
    states = States(compile_program(parse(narrow), special={}), pieces_of(engine.vocab))
    found = [run(engine, states, EXACT[name], seed=seed, grammar=narrow) for seed in range(examples(SEEDS))]
    counts = compared(found)
    assert counts["known"] == sum(len(steps) for _, steps in found)
    if name != "typical":  # 0 * log 0: the server sorts by what is no number
        assert all(step.verdict.is_checked for _, steps in found for step in steps)
