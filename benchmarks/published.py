"""The figures that others publish, and the same measure here: MaskBench's, over schemas from the wild.

    python -m benchmarks published

MaskBench (https://github.com/guidance-ai/jsonschemabench/tree/main/maskbench) tells for each engine TTFM, the time to
compile a schema, and TBM, the time of a mask and of the token after it, in microseconds over all schemas and tokens,
one thread for each engine. XGrammar's script (examples/benchmark/bench_grammar_compile_mask_gen.py of its repository)
tells two means for each engine, over the 99 schemas of json-mode-eval and Llama 3.1's ids: the time to preprocess a
schema, and that of a mask with the token after it, the logits masked on a GPU included. Here both are repeated over the
schemas from the wild of the other benchmarks, with Tekken's 131,072 ids in place of Llama 3's 128,256, and valid
instances alone. What is published was measured on another machine, with the versions that `PUBLISHED` and
`XGRAMMAR_SCRIPT` name: what can be compared is the shape, not a digit.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from benchmarks.cold import engines_over, measured, schema_texts
from benchmarks.figures import note
from benchmarks.harness import Table, TextTimes, one_core
from benchmarks.schema.cases import Missing, real
from benchmarks.tekken import tekken
from espalier.server.process.garbage import short_collections

RANKS = {"avg": None, "p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What one project says of an engine: microseconds by the rank."""

    engine: str
    ttfm: Mapping[str, float]
    tbm: Mapping[str, float]


def _row(engine: str, ttfm: Sequence[float], tbm: Sequence[float]) -> Published:
    return Published(engine=engine, ttfm=dict(zip(RANKS, ttfm, strict=True)), tbm=dict(zip(RANKS, tbm, strict=True)))


XGRAMMAR_SCRIPT: Mapping[str, tuple[float, float]] = {
    "xgrammar, published": (61.9149, 35.7277),
    "outlines 0.1.3, published": (1_333.1387, 125.2214),
    "lm-format-enforcer 0.10.6, published": (2.79, 6_147.1414),
}
"""What the README beside XGrammar's script said at the end of 2024, AMD Ryzen 9 7950X and GeForce RTX 4090:
milliseconds to preprocess a schema, and microseconds for a token. It names no version of xgrammar itself."""

PUBLISHED = (
    _row("llguidance 0.7.10, published", (1_850, 1_037, 3_030, 17_988), (64, 46, 77, 533)),
    _row("xgrammar 0.1.17, published", (27_062_414, 919_459, 11_645_219, 900_000_000), (728, 9, 99, 5_687)),
    _row("llama.cpp, published", (92_371, 312, 1_744, 28_558), (16_565, 17_021, 26_818, 60_371)),
    _row("outlines-core 0.2.3, published", (18_351_800, 587_900, 26_703_408, 413_111_222), (1_858, 34, 6_043, 7_184)),
)
"""MaskBench's table of 2025-03-27, 11,306 schemas, AMD EPYC 7V13. 900 s is its limit of time."""


def ranked(values: Sequence[float]) -> dict[str, float]:
    """The mean, and the values at the ranks."""
    ordered = sorted(values)
    return {
        name: sum(ordered) / len(ordered)
        if share is None
        else ordered[min(len(ordered) - 1, int(share * len(ordered)))]
        for name, share in RANKS.items()
    }


def steps(text: TextTimes) -> Iterator[tuple[float, float]]:
    """As MaskBench counts: the mask before a token, and the token."""
    return zip((text.first, *text.masks[:-1]), text.advances, strict=True)


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=2, metavar="N", help="each Nth schema")
    every = parser.parse_args(argv).every
    with one_core(), short_collections():
        made = tekken()
        try:
            texts = list(schema_texts(made, real()[::every]))
        except Missing as missing:
            print(f"left out: {missing}")
            return
        gc.collect()
        gc.freeze()
        times: dict[str, list[TextTimes]] = {}
        for name, engine in engines_over(made).items():
            for text in texts[:5]:
                measured(engine, text)  # warms
            times[name] = [found for text in texts if (found := measured(engine, text)) is not None]
    show(len(texts), times)


def show(count: int, times: Mapping[str, Sequence[TextTimes]]) -> None:
    """Print and note both measures. count: of the schemas that were tried."""
    print(f"{count} schemas")
    table = Table({"": "<8", "engine": "<34"} | dict.fromkeys(RANKS, ">14.0f"))
    for measure in ("TTFM", "TBM"):
        columns: dict[str, Mapping[str, float]] = {}
        for name, found in times.items():
            if measure == "TTFM":
                values = [text.compile for text in found]
            else:
                values = [sum(step) for text in found for step in steps(text)]
            columns[name] = ranked(values)
        columns |= {one.engine: one.ttfm if measure == "TTFM" else one.tbm for one in PUBLISHED}
        for name, column in columns.items():
            table.row(measure, name, *column.values())
        for rank in RANKS:
            note("MaskBench, µs", f"{measure} {rank}", "µs", {name: column[rank] for name, column in columns.items()})
    means = {
        name: (
            fmean(text.compile for text in found) / 1e3,
            sum(sum(step) for text in found for step in steps(text)) / sum(len(text.advances) for text in found),
        )
        for name, found in times.items()
    } | dict(XGRAMMAR_SCRIPT)
    for row, (measure, unit) in enumerate((("preprocessing", "ms"), ("mask generation", "µs"))):
        for name, both in means.items():
            print(f"{measure}, {unit}: {name:<40}{both[row]:>12,.1f}")
        note("XGrammar's script", f"{measure}, mean", unit, {name: both[row] for name, both in means.items()})


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
