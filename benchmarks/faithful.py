"""Tokens per second of faithful sampling with 8 particles, relative to 8 independent runs of `mask` in one batch.

The bundled model, one thread, no trace, the same constraint and limits, interleaved rounds; nothing ends before the
limit, so that each particle and each run takes as many tokens. The particles of one request share the prompt, the 8
runs compute it each. `awrs` asks the constraint for single tokens and builds no masks unless much is refused.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import torch

import espalier
from benchmarks.record import RECORD
from espalier.engines.base import Finished
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
            print(f"{'tokens a second':<18}" + "".join(f"{one:>10}" for one in STRATEGIES)
                  + "".join(f"{one + ' ÷ mask':>16}" for one in STRATEGIES[1:]) + f"{'acceptance':>12}")  # fmt: skip
            for case, constraint in CASES.items():
                report(engine, case, constraint)


def report(engine: espalier.LoadedEngine, case: str, constraint: espalier.Spec | None) -> None:
    speeds: dict[str, list[float]] = {one: [] for one in STRATEGIES}
    acceptance = 1.0
    for seed in range(ROUNDS + 1):
        for strategy in STRATEGIES[seed % 4 :] + STRATEGIES[: seed % 4]:
            speed, accepted = once(engine, strategy, constraint, seed)
            if seed:  # the first round warms up
                speeds[strategy].append(speed)
            acceptance = accepted if strategy == "awrs" else acceptance
    found = {one: statistics.median(speeds[one]) for one in STRATEGIES}
    ratios = [statistics.median(a / b for a, b in zip(speeds[one], speeds["mask"], strict=True)) for one in STRATEGIES]
    print(f"{case:<18}" + "".join(f"{found[one]:>10.0f}" for one in STRATEGIES)
          + "".join(f"{one:>16.2f}" for one in ratios[1:]) + f"{acceptance:>12.2f}", flush=True)  # fmt: skip


def once(
    engine: espalier.LoadedEngine, strategy: str, constraint: espalier.Spec | None, seed: int
) -> tuple[float, float]:
    """Tokens a second, and the acceptance."""
    options: dict[str, Any] = {
        "constraint": constraint, "ignore_eos": constraint is None, "max_tokens": TOKENS, "seed": seed, "trace": "off",
        "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "strategy": strategy,
    }  # fmt: skip
    many = {"n": PARTICLES} if strategy == "mask" else {"particles": PARTICLES}
    requests = engine.requests("Generate user info", **many, **options)[0]
    began = time.perf_counter()
    ends = [event.result for event in engine.engine.run(requests) if isinstance(event, Finished)]
    seconds = time.perf_counter() - began
    if any(len(one.token_ids) != TOKENS for one in ends):
        raise AssertionError("a text has ended before the limit")
    weighing = ends[0].weighing
    return PARTICLES * TOKENS / seconds, 1.0 if weighing is None else weighing.acceptance


if __name__ == "__main__":
    main()
