"""Small languages over five tokens, models of known distributions, and the exact laws of `mask` and `rejection`.

Everything is written out again from the definitions, with `math` alone, so that it can judge the package's own code.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

TOKENS = (b"a", b"b", b"c", b"d", b"")
EOS = 4
LANGUAGES: dict[str, tuple[str, ...]] = {
    "one word of two": ("ab", "cd"),
    "no a first": ("b", "ba", "bb", "c", "cab", "d"),
    "rare continuation": ("aaaa", "aabd", "dd"),
    "equal lengths": ("abc", "acb", "bac", "bca", "cab", "cba"),
    "nearly everything": ("a", "b", "c", "ab", "ac", "ba", "bc", "ca", "cb", "dd"),
}
PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
CHAINS: dict[str, dict[str, Any]] = {
    "no truncation": PLAIN,
    "temperature 0.6": PLAIN | {"temperature": 0.6},
    "top_k 2": PLAIN | {"top_k": 2},
    "top_p 0.6": PLAIN | {"top_p": 0.6},
    "min_p 0.4": PLAIN | {"min_p": 0.4},
    "xtc 0.5 from 0.2": PLAIN | {"xtc_probability": 0.5, "xtc_threshold": 0.2},
    "mirostat 2, 1 bit": {
        "temperature": 1.0,
        "repetition_penalty": 1.0,
        "mirostat": 2,
        "mirostat_tau": 1.0,
        "mirostat_eta": 0.5,
    },
}

Weights = dict[int, float]


def wish(language: str, prefix: tuple[int, ...]) -> list[float]:
    """The model's probabilities of the five tokens; no two are equal, and none is below 0.02."""
    rng = random.Random(f"{language}{prefix}")
    shares = [rng.expovariate(1.0) + 0.05 for _ in TOKENS]
    total = math.fsum(shares)
    return [0.02 + 0.9 * share / total for share in shares]


def allowed(language: str, prefix: tuple[int, ...]) -> set[int]:
    text = b"".join(TOKENS[token] for token in prefix)
    words = [word.encode() for word in LANGUAGES[language]]
    found = {t for t in range(EOS) if any(word.startswith(text + TOKENS[t]) for word in words)}
    return found | ({EOS} if text in words else set())


def normal(weights: Weights) -> Weights:
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


def chain(weights: Weights, config: Mapping[str, Any], mu: float = 0.0) -> Weights:
    """The distribution that a chain draws from, over the two chances of xtc; the truncations in llama.cpp's order."""
    probs = normal(weights)
    ranked = sorted(probs, key=lambda t: (-probs[t], t))
    if config.get("mirostat"):
        heat = {t: probs[t] ** (1 / config["temperature"]) for t in ranked}
        heat = normal(heat)
        kept = [t for t in ranked if -math.log2(heat[t]) <= mu] or ranked[:1]
        return normal({t: heat[t] for t in kept})
    if config["top_k"]:
        ranked = ranked[: config["top_k"]]
    if config["top_p"] < 1:
        inner, reached, kept = normal({t: probs[t] for t in ranked}), 0.0, []
        for token in ranked:
            kept.append(token)
            reached += inner[token]
            if reached >= config["top_p"]:
                break
        ranked = kept
    ranked = [t for t in ranked if probs[t] >= config["min_p"] * probs[ranked[0]]]
    inner = normal({t: probs[t] for t in ranked})
    above = [t for t in ranked if inner[t] >= config.get("xtc_threshold", 1.0)]
    cases = [(1.0, ranked)]
    if (chance := config.get("xtc_probability", 0.0)) and len(above) > 1:
        cases = [(1 - chance, ranked), (chance, ranked[len(above) - 1 :])]
    found = dict.fromkeys(probs, 0.0)
    for share, kept in cases:
        heated = normal({t: probs[t] ** (1 / config["temperature"]) for t in kept})
        for token, prob in heated.items():
            found[token] += share * prob
    return {token: prob for token, prob in found.items() if prob > 0}


def next_mu(mu: float, prob: float, config: Mapping[str, Any]) -> float:
    return mu - config["mirostat_eta"] * (-math.log2(prob) - config["mirostat_tau"])


def law(strategy: str, language: str, config: Mapping[str, Any]) -> dict[tuple[int, ...], float]:
    """Every whole text, as tokens with its end, and how probable it is: by enumeration."""
    found: dict[tuple[int, ...], float] = {}

    def go(prefix: tuple[int, ...], prob: float, mu: float) -> None:
        if prefix and prefix[-1] == EOS:
            found[prefix] = found.get(prefix, 0.0) + prob
            return
        wished = dict(enumerate(wish(language, prefix)))
        inside = allowed(language, prefix)
        held = chain({t: wished[t] for t in inside}, config, mu)
        ways = [(1.0, held)]  # how often, from what
        if strategy == "rejection":
            free = chain(wished, config, mu)
            kept = {t: p for t, p in free.items() if t in inside}
            ways = [(1.0, kept), (1.0 - math.fsum(kept.values()), held)]
        for share, drawn in ways:
            for token, chance in drawn.items():
                if share > 1e-15:
                    after = next_mu(mu, chance, config) if config.get("mirostat") else mu
                    go((*prefix, token), prob * share * chance, after)

    go((), 1.0, 2 * config.get("mirostat_tau", 0.0))
    return found


def distance(one: Mapping[Any, float], two: Mapping[Any, float]) -> float:
    """Total variation, from 0 to 1."""
    return 0.5 * math.fsum(abs(one.get(key, 0.0) - two.get(key, 0.0)) for key in {*one, *two})


def apart() -> str:
    """How far the laws of `mask` and `rejection` are apart, as the table in docs/strategies.md."""
    head = "| chain | " + " | ".join(LANGUAGES) + " |\n|---|" + "---:|" * len(LANGUAGES)
    lines = []
    for name, config in CHAINS.items():
        cells = (distance(law("mask", one, config), law("rejection", one, config)) for one in LANGUAGES)
        lines.append(f"| {name} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |")
    return "\n".join([head, *lines])
