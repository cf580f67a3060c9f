"""`on_budget=close` over schemas from the wild: does every text validate, and what does a step cost?

A model that says anything, over the demo model's vocabulary; each schema with three small limits on tokens. jsonschema
alone judges. The cost is that of a whole step but the forward pass, as a ratio to `truncate` on the same schema: far
from the limit, and where it is near all the time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from jsonschema.validators import validator_for

from benchmarks.harness import OFF
from benchmarks.schema.cases import Case, Missing, real
from espalier.api import make_request
from espalier.constraints.spec import JsonSchema
from espalier.engines.base import Event, FinishEvent
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.errors import CapabilityError, EspalierError, InputError
from espalier.tokens.vocab import Vocab

DEMO = Path(__file__).resolve().parents[1] / "models" / "demo"
SCHEMAS = 500
LIMITS = (32, 64, 128)
FAR, STEPS, NEAR = 2000, 60, 5
COSTED = 60
"""Schemas whose steps are timed."""


@dataclass(slots=True)
class Tally:
    counts: Counter[str]
    failures: list[str]
    seconds: float = 0.0


def engine() -> LocalEngine:
    """Says anything, each token about as likely as any."""
    vocab = Vocab.from_tokenizer(str(DEMO))
    model = FakeStepModel(lambda tokens: noise(tokens, vocab.width), width=vocab.width)
    return LocalEngine(name="noise", model=model, vocab=vocab, encode=lambda text, *, add_special: [0, 1])


def run(one: LocalEngine, schema: Any, *, max_tokens: int, on_budget: str, seed: int = 1) -> Iterator[Event]:
    request = make_request(
        "x",
        constraint=JsonSchema(schema),
        max_tokens=max_tokens,
        on_budget=on_budget,
        seed=seed,
        trace="off",
        temperature=1.0,
        raw=True,
        **OFF,
    )
    return one.run([request])


def judge(one: LocalEngine, case: Case, limit: int, tally: Tally) -> None:
    """One text, and what became of it."""
    try:
        finished = list(run(one, case.schema, max_tokens=limit, on_budget="close"))[-1]
    except CapabilityError as error:
        tally.counts["refused: no automaton" if error.field == "on_budget" else "refused: not enforced"] += 1
        return
    except InputError as error:
        tally.counts["refused: does not fit" if error.field == "max_tokens" else "refused: not enforced"] += 1
        return
    except EspalierError as error:
        tally.counts["refused: not enforced"] += 1
        if error.http_status != 400:
            tally.failures.append(f"{case.id} at {limit}: {type(error).__name__}: {error.message}")
        return
    assert isinstance(finished, FinishEvent)
    result = finished.result
    schema = json.loads(json.dumps(case.schema))
    try:
        ok = validator_for(schema)(schema).is_valid(json.loads(result.text)) and len(result.token_ids) <= limit
    except (ValueError, RecursionError):
        ok = False
    tally.counts["validated" if ok else "failed"] += 1
    tally.counts["validated, closed by the limit"] += ok and result.closed_by_budget
    if not ok:
        tally.failures.append(f"{case.id} at {limit}: {result.text[-80:]!r}")


def per_step(events: Iterator[Event], count: int) -> float:
    """Seconds a step; the first, which compiles, is not counted."""
    next(events)
    began = time.process_time()
    steps = sum(1 for _ in islice(events, count))
    return (time.process_time() - began) / max(steps, 1)


def costs(one: LocalEngine, case: Case) -> tuple[float, float] | None:
    """`close` over `truncate`, far from the limit and near it; None where it is refused. Warm: the second of two runs
    with other texts."""
    ratios = []
    try:
        for limit in (FAR, least(one, case) + NEAR):
            taken = {}
            for kind in ("truncate", "close"):
                for seed in (1, 2):
                    events = run(one, case.schema, max_tokens=limit, on_budget=kind, seed=seed)
                    taken[kind] = per_step(events, STEPS)
            ratios.append(taken["close"] / taken["truncate"])
    except (EspalierError, StopIteration):
        return None
    return ratios[0], ratios[1]


def least(one: LocalEngine, case: Case) -> int:
    compiled = one.compiler.compile(JsonSchema(case.schema))
    return len(compiled.matcher().shortest_completion())


def main(count: int = SCHEMAS) -> None:
    try:
        cases = real()[:count]
    except Missing as error:
        print(error, file=sys.stderr)
        return
    one, tally, measured = engine(), Tally(Counter(), []), []
    began = time.perf_counter()
    for index, case in enumerate(cases):
        for limit in LIMITS:
            judge(one, case, limit, tally)
        if index % max(1, len(cases) // COSTED) == 0 and (found := costs(one, case)) is not None:
            measured.append(found)
    print(f"{len(cases)} schemas x {len(LIMITS)} limits {LIMITS}, {time.perf_counter() - began:.0f} s")
    for name, number in sorted(tally.counts.items()):
        print(f"  {name:<32} {number:6d}")
    print(f"  {'failures':<32} {len(tally.failures):6d}")
    for failure in tally.failures:
        print(f"    {failure}")
    for place, title in enumerate(("far from the limit", "near the limit")):
        ratios = sorted(one[place] for one in measured)
        if ratios:
            tenth = ratios[int(0.9 * (len(ratios) - 1))]
            print(
                f"  a step of close over one of truncate, {title}: median {statistics.median(ratios):.2f}, "
                f"90 % below {tenth:.2f} ({len(ratios)} schemas)"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SCHEMAS)
