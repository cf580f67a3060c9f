"""What each form of an answer costs the demo model: `espalier tax-card`, noted for the page."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import espalier
from benchmarks.figures import note
from benchmarks.harness import one_thread
from espalier.harness.tax_card import MOST_TOKENS, SEEDS, measure_card
from espalier.version import __version__
from espalier.wiring import demo_model


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="random streams of each question")
    seeds = parser.parse_args(argv).seeds
    with one_thread(), espalier.load(demo_model()) as engine:
        card = measure_card(
            lambda prompt, form, seed: engine.generate(
                prompt, constraint=form, seed=seed, max_tokens=MOST_TOKENS, trace="summary"
            ),
            name=engine.name,
            version=__version__,
            seeds=seeds,
        )
    print("\n".join(card.lines()))
    for cost in card.forms:
        figures = {"tax, nats": cost.tax, "right, %": cost.quality, "valid, %": cost.valid, "tokens": cost.tokens}
        means = {name: mean.mean for name, mean in figures.items() if mean.mean is not None}
        values = {name: 100 * mean if name.endswith("%") else mean for name, mean in means.items()}
        note("Tax of the demo model", cost.form, "an answer", values)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
