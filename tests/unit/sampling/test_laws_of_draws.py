"""100,000 draws of each sampler against the distribution that its definition gives, worked out here in plain loops."""

import math

import numpy as np
import pytest

from espalier import SamplingConfig
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream, draw
from espalier.sampling.fit import NOTHING_FITTED

DRAWS = 100_000
LOGITS = [1.5, 1.0, 0.8, 0.0, 0.0, -0.5, -1.0, -1.2, -2.0, -3.0]
HISTORY = [0, 3, 3, 7, 1, 0, 3]  # prompt of four, then three
ROW = np.array(LOGITS, dtype=np.float32)
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}


def softmax(logits):
    """By id, of a mapping from ids to logits."""
    weights = {i: math.exp(v) for i, v in logits.items()}
    return {i: w / sum(weights.values()) for i, w in weights.items()}


def best_first(probs):
    return sorted(probs, key=lambda i: (-probs[i], i))


def until(order, probs, enough):
    kept, mass = {}, 0.0
    for i in order:
        kept[i], mass = LOGITS[i], mass + probs[i]
        if enough(mass):
            break
    return softmax(kept)


EVERY = dict(enumerate(LOGITS))
PROBS = softmax(EVERY)
BEST = best_first(PROBS)
ENTROPY = -sum(p * math.log(p) for p in PROBS.values())
DEVIATION = math.sqrt(sum((v - sum(LOGITS) / 10) ** 2 for v in LOGITS) / 10)


def penalised():
    out = dict(EVERY)
    for i in set(HISTORY[-5:]):
        out[i] = out[i] / 1.4 if out[i] > 0 else out[i] * 1.4
        said = HISTORY[4:].count(i)
        out[i] -= 0.3 * said + (0.2 if said else 0.0)
    return softmax(out)


def dry():
    out = dict(EVERY)
    out[3] -= 0.7 * 1.5 ** (2 - 1)  # the end "0 3" occurred before, and 3 followed: a repetition of two
    out[7] -= 0.7 * 1.5 ** (1 - 1)  # the end "3" occurred before 7
    return softmax(out)


def xtc():
    cut = softmax({i: LOGITS[i] for i in EVERY if not (PROBS[i] >= 0.12 and i != 2)})
    return {i: 0.4 * cut.get(i, 0.0) + 0.6 * PROBS[i] for i in EVERY}


def dynamic():
    heat = 0.5 + (1.5 - 0.5) * (ENTROPY / math.log(10)) ** 2.0
    return softmax({i: v / heat for i, v in EVERY.items()})


def mirostat_1():
    ranked = [PROBS[i] for i in BEST]
    t = [math.log((i + 2) / (i + 1)) for i in range(9)]
    b = [math.log(ranked[i] / ranked[i + 1]) for i in range(9)]
    s = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    k = ((s - 1) * 2**4.0 / (1 - 10 ** -(s - 1))) ** (1 / s)
    return softmax({i: LOGITS[i] for i in BEST[: max(1, int(k))]})


CASES = {
    "nothing": ({}, PROBS),
    "temperature": ({"temperature": 0.5}, softmax({i: v / 0.5 for i, v in EVERY.items()})),
    "dynamic temperature": ({"dynatemp_range": 0.5, "dynatemp_exponent": 2.0}, dynamic()),
    "top_k": ({"top_k": 4}, softmax({i: LOGITS[i] for i in BEST[:4]})),
    "top_p": ({"top_p": 0.7}, until(BEST, PROBS, lambda mass: mass >= 0.7)),
    "min_p": ({"min_p": 0.2}, softmax({i: v for i, v in EVERY.items() if PROBS[i] >= 0.2 * PROBS[BEST[0]]})),
    "typical_p": (
        {"typical_p": 0.5},
        until(sorted(BEST, key=lambda i: abs(-math.log(PROBS[i]) - ENTROPY)), PROBS, lambda mass: mass > 0.5),
    ),
    "top_n_sigma": ({"top_n_sigma": 1.0}, softmax({i: v for i, v in EVERY.items() if v >= 1.5 - DEVIATION})),
    "xtc": ({"xtc_probability": 0.4, "xtc_threshold": 0.12}, xtc()),
    "penalties": (
        {"repetition_penalty": 1.4, "frequency_penalty": 0.3, "presence_penalty": 0.2, "repetition_window": 5},
        penalised(),
    ),
    "dry": ({"dry_multiplier": 0.7, "dry_base": 1.5, "dry_allowed_length": 1, "dry_window": -1}, dry()),
    "mirostat 1": ({"mirostat": 1, "mirostat_tau": 2.0}, mirostat_1()),
    "mirostat 2": (
        {"mirostat": 2, "mirostat_tau": 1.5},
        softmax({i: v for i, v in EVERY.items() if -math.log2(PROBS[i]) <= 3.0}),
    ),
    "an order": (
        {"top_k": 6, "min_p": 0.3, "temperature": 2.0},
        softmax({i: LOGITS[i] / 2 for i in BEST[:6] if PROBS[i] >= 0.3 * PROBS[BEST[0]]}),
    ),
}


def chain_for(fields):
    off = {k: v for k, v in OFF.items() if "mirostat" not in fields or k in ("temperature", "repetition_penalty")}
    config = SamplingConfig(**off | fields)
    chain = Chain(config, fitted=NOTHING_FITTED)  # without breakers
    chain.start(HISTORY[:4])
    for token in HISTORY[4:]:
        chain.on_token(token)
    return chain


def uniforms(stream, count):
    return np.array([stream.next() for _ in range(count)])  # (count,) float64


@pytest.mark.parametrize("name", CASES)
def test_draws_follow_the_definition_by_chi_squared(name):
    fields, expected = CASES[name]
    chain = chain_for(fields)
    numbers = uniforms(RandomStream(2026, len(name)), DRAWS * chain.draws_per_token)
    chances, places = (numbers[0::2], numbers[1::2]) if chain.needs_chance else (np.zeros(DRAWS), numbers)
    counts = np.zeros(10)
    for hit in (True, False):  # xtc's chance decides between two rows; all else has one
        chosen = places[(chances <= chain.config.xtc_probability) == hit]
        if chosen.size:
            shaped = chain.shape(ROW, 0.0 if hit else 1.0)
            weights = np.exp(shaped.astype(np.float64))
            mass = np.cumsum(weights)
            counts += np.bincount(np.searchsorted(mass, chosen * mass[-1], side="right"), minlength=10)
    wanted = np.array([expected.get(i, 0.0) for i in range(10)]) * DRAWS
    assert counts[wanted == 0].sum() == 0
    inside = wanted > 0
    chi = float(((counts - wanted)[inside] ** 2 / wanted[inside]).sum())
    freedom = int(inside.sum()) - 1
    # Wilson and Hilferty: the cube root of chi-squared over its degrees is nearly normal; 3.5 deviations are 1 in 4000.
    assert freedom == 0 or chi < freedom * (1 - 2 / (9 * freedom) + 3.5 * math.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize("name", ["nothing", "xtc", "top_k"])
def test_the_quick_draws_above_are_those_of_draw(name):
    chain = chain_for(CASES[name][0])
    one, other = RandomStream(5), RandomStream(5)
    for _ in range(300):
        chance = one.next() if chain.needs_chance else 0.0
        shaped = chain.shape(ROW, chance)
        numbers = uniforms(other, chain.draws_per_token)
        mass = np.cumsum(np.exp(shaped.astype(np.float64)))
        assert draw(shaped, one).token == int(np.searchsorted(mass, numbers[-1] * mass[-1], side="right"))
