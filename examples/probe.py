"""Trains a probe that foresees a refusal: from the hidden state one layer before the last, will the constraint refuse
the token that the model wants?

    python examples/probe.py [--output probe.svg]

It captures the demo model under a constraint that refuses often, joins each vector to its step of the trace, trains a
logistic regression for each layer on most texts, and judges it on texts that it has not seen. The plot has a bar for
each layer: the area under the ROC curve, where 0.5 is guessing.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import espalier
from espalier.activations.join import decisions

CONSTRAINT = espalier.Regex("[a-z ,]{20,60}")
"""The model likes capitals, digits and quotes, so its favourite is refused now and then."""
SUBJECTS = ("a dog", "Berlin", "a user", "the sea", "an email", "a king", "music", "the moon", "a list", "bread")
STEPS, RATE, DECAY = 400, 0.5, 1e-3


def collect(engine: espalier.LoadedEngine, texts: int) -> list[tuple[NDArray[np.float64], NDArray[np.bool_]]]:
    """For each text: its vectors `(layers, tokens, hidden)`, and whether each token's favourite was refused."""
    prompts = [f"Write about {SUBJECTS[n % len(SUBJECTS)]}, number {n}." for n in range(texts)]
    found = []
    for start in range(0, texts, 8):
        for result in engine.generate(
            prompts[start : start + 8], constraint=CONSTRAINT, max_tokens=24, seed=start, activations=True
        ):
            captured, trace = result.activations, result.trace
            assert captured is not None
            assert trace is not None
            layers = [decisions(captured, trace, site="residual", layer=n) for n in captured.record.layers]
            refused = np.array([step.is_changed for step in layers[0][1]])
            found.append((np.stack([values for values, _ in layers]).astype(np.float64), refused))
    return found


def train(x: NDArray[np.float64], y: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Weights `(hidden + 1,)` of a logistic regression, by gradient descent; both classes weigh the same."""
    ones = np.hstack([x, np.ones((len(x), 1))])
    share = np.where(y, 0.5 / max(1, y.sum()), 0.5 / max(1, (~y).sum()))
    weights = np.zeros(ones.shape[1])
    for _ in range(STEPS):
        off = 1 / (1 + np.exp(-np.clip(ones @ weights, -30, 30))) - y
        weights -= RATE * (ones.T @ (share * off) + DECAY * weights)
    return weights


def area(scores: NDArray[np.float64], y: NDArray[np.bool_]) -> float:
    """The area under the ROC curve: how often a refused token scores above one that was not."""
    above = scores[y][:, None] - scores[~y][None]
    return float(((above > 0) + 0.5 * (above == 0)).mean())


def plot(areas: list[float], share: float) -> str:
    """An SVG with a bar for each layer."""
    bars = "".join(
        f'<rect x="{60 + 70 * n}" y="{220 - 180 * one:.0f}" width="44" height="{180 * one:.0f}" fill="#4a78b5"/>'
        f'<text x="{82 + 70 * n}" y="{212 - 180 * one:.0f}" text-anchor="middle">{one:.2f}</text>'
        f'<text x="{82 + 70 * n}" y="238" text-anchor="middle">layer {n}</text>'
        for n, one in enumerate(areas)
    )
    width = 240 + 70 * len(areas)
    title = f"A refusal foreseen, by layer: area under the ROC curve ({share:.0%} of tokens refused)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="260" font-family="sans-serif" font-size="12">'
        f'<rect width="{width}" height="260" fill="white"/><text x="16" y="20">{title}</text>{bars}'
        f'<line x1="40" x2="{width - 20}" y1="130" y2="130" stroke="#999" stroke-dasharray="4"/>'
        '<text x="14" y="134">0.5</text></svg>\n'
    )


def main(arguments: list[str] | None = None) -> list[float]:
    """Returns the area of each layer on texts that were not trained on."""
    parser = argparse.ArgumentParser(description="Train a probe that foresees refusals.")
    parser.add_argument("--output", default="probe.svg")
    parser.add_argument("--texts", type=int, default=120)
    parser.add_argument("--model")
    given = parser.parse_args(arguments)
    with espalier.load(given.model) as engine:
        texts = collect(engine, given.texts)
    split = len(texts) * 3 // 4
    seen, unseen = (
        (np.concatenate([x for x, _ in part], axis=1), np.concatenate([y for _, y in part]))
        for part in (texts[:split], texts[split:])
    )
    areas = []
    for layer in range(len(seen[0])):
        mean, spread = seen[0][layer].mean(axis=0), seen[0][layer].std(axis=0) + 1e-6
        weights = train((seen[0][layer] - mean) / spread, seen[1])
        scores = np.hstack([(unseen[0][layer] - mean) / spread, np.ones((len(unseen[1]), 1))]) @ weights
        areas.append(area(scores, unseen[1]))
    for layer, one in enumerate(areas):
        before = " (one layer before the last)" if layer == len(areas) - 2 else ""
        print(f"layer {layer}: area under the ROC curve {one:.3f}{before}")
    Path(given.output).write_text(plot(areas, float(seen[1].mean())), encoding="utf-8")
    print(f"{len(seen[1])} tokens seen, {len(unseen[1])} unseen, {seen[1].mean():.0%} refused; plot: {given.output}")
    return areas


if __name__ == "__main__":
    main()
