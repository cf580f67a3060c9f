"""Tokens per second of faithful sampling with 8 particles, relative to 8 independent runs of `mask` in one batch.

The bundled model, one thread, no trace, the same constraint and limits, interleaved rounds; nothing ends before the
limit, so that each particle and each run takes as many tokens. The particles of one request share the prompt, the 8
runs compute it each. `awrs` asks the constraint for single tokens and builds no masks unless much is refused.
"""

from __future__ import annotations

import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

import espalier
from benchmarks.figures import note
from benchmarks.harness import OFF, Table, in_turns, ratio
from benchmarks.record import RECORD
from espalier.engines.base import FinishEvent
from espalier.wiring import demo_model

PARTICLES, TOKENS, ROUNDS = 8, 64, 5
STRATEGIES = ("mask", "best_of", "smc", "awrs")
CASES = {
    "a schema": espalier.JsonSchema({"type": "array", "items": RECORD, "minItems": 40}),
    "a grammar": espalier.Gbnf('root ::= "[" item ("," item){60,90} "]"\nitem ::= [0-9]{1,3} | [a-z]{3,8}'),
    "no constraint": None,
}


def main() -> None:
    path = demo_model()
    torch.set_num_threads(1)  # matrices this small only lose by threads
    opened: list[tuple[Path, dict[str, Any]]] = [(Path(path), {}), (next(Path(path).glob("*.gguf")), {"threads": 1})]
    for name, options in opened:
        with espalier.load(str(name), **options) as engine:
            print(f"{Path(name).name}, V = {engine.vocab.width}, {PARTICLES} particles, medians of {ROUNDS} rounds")
            ratios = {f"{name} ÷ mask": ">16.2f" for name in STRATEGIES[1:]}
            table = Table(
                {"tokens a second": "<18"} | dict.fromkeys(STRATEGIES, ">10.0f") | ratios | {"acceptance": ">12.2f"}
            )
            for case, constraint in CASES.items():
                report(table, engine, case, constraint)


def report(table: Table, engine: espalier.LoadedEngine, case: str, constraint: espalier.Spec | None) -> None:
    runs = {name: partial(once, engine, name, constraint) for name in STRATEGIES}
    found = in_turns(runs, ROUNDS)
    speeds = {name: [speed for speed, _ in rounds] for name, rounds in found.items()}
    ratios = [ratio(speeds[name], speeds["mask"]) for name in STRATEGIES[1:]]
    for name in STRATEGIES[1:]:
        values = {name: statistics.median(speeds[name]), "mask": statistics.median(speeds["mask"])}
        note(
            f"Strategies, {PARTICLES} particles",
            f"{engine.engine.name}: {case}: {name}",
            "tok/s",
            values,
            more_is_better=True,
        )
    table.row(case, *(statistics.median(speeds[name]) for name in STRATEGIES), *ratios, found["awrs"][-1][1])


def once(
    engine: espalier.LoadedEngine, strategy: str, constraint: espalier.Spec | None, seed: int
) -> tuple[float, float]:
    """Tokens a second, and the acceptance."""
    options: dict[str, Any] = {
        "constraint": constraint,
        "ignore_eos": constraint is None,
        "max_tokens": TOKENS,
        "seed": seed,
        "trace": "off",
        "temperature": 1.0,
        **OFF,
        "strategy": strategy,
    }
    many = {"n": PARTICLES} if strategy == "mask" else {"particles": PARTICLES}
    requests = engine.requests("Generate user info", **many, **options)[0]
    began = time.perf_counter()
    ends = [event.result for event in engine.engine.run(requests) if isinstance(event, FinishEvent)]
    seconds = time.perf_counter() - began
    if any(len(one.token_ids) != TOKENS for one in ends):
        raise AssertionError("a text has ended before the limit")
    weighing = ends[0].weighing
    return PARTICLES * TOKENS / seconds, 1.0 if weighing is None else weighing.acceptance


if __name__ == "__main__":
    main()
