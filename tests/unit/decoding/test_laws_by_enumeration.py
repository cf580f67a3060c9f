"""The laws of `jump`, `smc` and `awrs`, against exact enumeration of four small languages each.

`jump` is enumerated as `docs/strategies.md` states it: drawn tokens have the masked distribution, given tokens as the
tokenizer writes them; bytes that are forced are not drawn.
"""

import math
from collections import Counter, defaultdict
from dataclasses import replace
from itertools import product, takewhile

import numpy as np
import pytest

from espalier import Choice, Regex
from tests.unit.decoding.test_faithful_law import (
    LANGUAGES,
    Language,
    chi_squared,
    distance,
    job,
    law_of,
    masked_law,
    mass,
    run,
    sequences,
    target,
)
from tests.unit.decoding.test_jump import Merging


def over_bytes(language: Language) -> Language:
    """The language over its own tokens and all other bytes, which a tokenizer needs for whatever may follow."""
    more = tuple(byte for byte in (bytes((value,)) for value in range(256)) if byte not in language.tokens)
    return replace(language, tokens=(*language.tokens, *more))


FORCED = [
    over_bytes(LANGUAGES[0]),  # no merges: after "0" the rest is forced
    over_bytes(
        Language(
            "keys",
            (b"x", b"y", b"k", b"e", b"1", b"2", b"ey", b"key", b"key:", b"-"),
            Regex("xkey:-[12]|ykey:-1?"),
            lambda said: {b"k": 1.0, b"e": 0.5} if said else {b"x": 0.5},
        )
    ),
    over_bytes(
        Language(
            "a drawn token that the tokenizer writes otherwise",
            (b"a", b"b", b"c", b"d", b"ab", b"e"),
            Choice(["abec", "abed", "b"]),
            lambda said: {b"a": 0.5} if not said else {b"d": 1.0},
        )
    ),
    over_bytes(LANGUAGES[2]),  # whether "ab" becomes "aba" hangs on what follows
]
TEXTS = {
    FORCED[0].name: ["0000", *("1" + "".join(rest) for rest in product("01", repeat=3))],
    FORCED[1].name: ["xkey:-1", "xkey:-2", "ykey:-", "ykey:-1"],
    FORCED[2].name: ["abec", "abed", "b"],
    FORCED[3].name: ["aba", "abab", "bab"],
}
"""All texts of each language, written out."""


def common_beginning(many: list) -> list:
    """Of sequences: the elements that all begin with."""
    return [column[0] for column in takewhile(lambda column: len(set(column)) == 1, zip(*many, strict=False))]


def text_of(language: Language, tokens: tuple[int, ...]) -> str:
    return b"".join(language.tokens[token] for token in tokens if token < len(language.tokens)).decode("latin-1")


def by_text(language: Language, law: dict) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for tokens, p in law.items():
        found[text_of(language, tokens)] += p
    return found


def jump_law(language: Language) -> dict[str, float]:
    """By text: its probability. Nothing here is the strategy's: what is forced is read off the list of texts, what the
    tokenizer writes off the encodings of longer texts."""
    encode = Merging(list(language.tokens), pieces=False)
    texts = TEXTS[language.name]
    alphabet = sorted({char for text in texts for char in text} | {"~"})
    longer = ["".join(more) for size in range(3) for more in product(alphabet, repeat=size)]
    law: dict[str, float] = defaultdict(float)

    def committed(tokens: tuple[int, ...]) -> tuple[int, ...]:
        text = text_of(language, tokens)
        rest = [one for one in texts if one.startswith(text)]
        forced = "".join(common_beginning(rest))
        if text in texts or forced == text:
            return tokens
        fixed = tuple(encode(forced))
        if len(rest) > 1:  # else the end is forced too, and nothing can follow
            fixed = tuple(common_beginning([fixed[:-1], *(encode(forced + more) for more in longer)]))
        return fixed if len(text_of(language, fixed)) > len(text) else tokens

    def walk(tokens: tuple[int, ...], p: float) -> None:
        text, probs, end = text_of(language, tokens), language.probs(tokens), len(language.tokens)
        allowed = [
            token
            for token in range(language.vocab.width)
            if (
                text in texts
                if token == end
                else any(one.startswith(text_of(language, (*tokens, token))) for one in texts)
            )
        ]
        total = math.fsum(probs[token] for token in allowed)
        for token in allowed:
            share = p * probs[token] / total
            if token == end:
                law[text] += share
            else:
                walk(committed((*tokens, token)), share)

    walk(committed(()), 1.0)
    return law


def test_the_texts_written_out_are_those_of_the_constraint() -> None:
    for language in FORCED:
        assert {text_of(language, tokens) for tokens in sequences(language)} == set(TEXTS[language.name])


@pytest.mark.parametrize("language", FORCED, ids=lambda language: language.name)
def test_jump_draws_from_its_law(language: Language) -> None:
    law, runs, model = jump_law(language), 500, language.model(slots=2)
    assert math.fsum(law.values()) == pytest.approx(1)
    encode = Merging(list(language.tokens), pieces=False)
    counts: Counter[str] = Counter()
    for seed in range(runs):
        outcome, _ = run(model, replace(job(language, "jump", seed), encode=encode))
        counts[text_of(language, outcome.tokens)] += 1
    found, most = chi_squared(counts, law, runs)
    assert found < most, (dict(counts), {text: round(p * runs, 1) for text, p in law.items()})


def test_without_merges_the_law_of_jump_is_that_of_mask_and_with_them_it_is_another() -> None:
    gaps = [distance(jump_law(language), by_text(language, masked_law(language))) for language in FORCED]
    assert gaps[0] < 1e-12
    assert all(gap > 0.01 for gap in gaps[1:3]), gaps


@pytest.mark.parametrize("language", LANGUAGES[:4], ids=lambda language: language.name)
@pytest.mark.parametrize("strategy", ["smc", "awrs"])
def test_the_weights_are_proper(strategy: str, language: Language) -> None:
    """E[Z x share of a text] = p(text): for any number of particles, here resampled whenever their weights differ."""
    runs, particles, model = 120, 4, language.model(slots=4)
    total, found = mass(language), {tokens: np.zeros(runs) for tokens in sequences(language)}
    for seed in range(runs):
        one = job(language, strategy, seed, particles=particles, num_return_sequences=particles, ess_threshold=1.0)
        first, _ = run(model, one)
        for outcome in (first, *first.others):
            found[outcome.tokens][seed] += math.exp(outcome.weighing.log_z) / particles / total
            assert 1 - 1e-9 <= outcome.weighing.ess <= particles + 1e-9
    often = {tokens: p for tokens, p in target(language).items() if p > 0.05}
    for values, p in [*((found[tokens], p) for tokens, p in often.items()), (sum(found.values()), 1.0)]:
        assert abs(float(values.mean()) - p) < 4.5 * float(values.std()) / math.sqrt(runs) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES[:4], ids=lambda language: language.name)
@pytest.mark.parametrize("strategy", ["smc", "awrs"])
def test_more_particles_come_nearer_to_the_model_given_the_language(strategy: str, language: Language) -> None:
    few, many = (
        distance(law_of(language, strategy, particles, runs), target(language))
        for particles, runs in ((1, 320), (16, 20))
    )
    assert distance(masked_law(language), target(language)) * 0.7 < few  # one particle is plain masking
    assert many < 0.7 * few
