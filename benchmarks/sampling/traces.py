"""What a trace costs: CPU time a token at each level, on the bundled model, as a ratio to no trace at all; one core.

One request for each level runs at once, with the same seed and so the same tokens; they take turns a token at a time,
each turn in another order, so that what else the machine does meets all of them. A token is the whole step: the model,
the mask, the draw, the record, the event. A line is the median of the rounds; a round is the mean of its tokens without
the slowest tenth. Nobody looks at the candidates, which are made when somebody does: what that takes stands last.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import espalier
from benchmarks.figures import note
from benchmarks.harness import Table, one_core, ratio
from benchmarks.record import RECORD
from espalier.engines.base import Event, TokenEvent
from espalier.trace.records import LEVELS, TraceLevel
from espalier.wiring import demo_model

TOKENS, ROUNDS = 150, 5
GRAMMAR = 'root ::= "[" item ("," item)* "]"\nitem ::= [0-9]{1,3} | [a-z]{3,8}'
CASES: Mapping[str, Mapping[str, Any]] = {
    "a schema, sampled": {"constraint": espalier.JsonSchema({"type": "array", "items": RECORD, "minItems": 40})},
    "a schema, rejection": {
        "constraint": espalier.JsonSchema({"type": "array", "items": RECORD, "minItems": 40}),
        "strategy": "rejection",
    },
    "a grammar, sampled": {"constraint": espalier.Gbnf(GRAMMAR)},
    "free, sampled": {"ignore_eos": True},
    "free, greedy": {"temperature": 0, "ignore_eos": True},
}
Times = dict[TraceLevel, list[float]]


def main() -> None:
    with one_core():
        path = Path(str(demo_model()))
        for name, options in ((path, {}), (next(path.glob("*.gguf")), {"threads": 1})):
            with espalier.load(str(name), **options) as engine:
                print(f"{name.name}, V = {engine.vocab.width}, {TOKENS} tokens, medians of {ROUNDS} rounds")
                levels = dict.fromkeys(LEVELS, ">10.3f") | {f"÷ {level}": ">11.3f" for level in LEVELS[1:]}
                table = Table({"ms a token": "<24"} | levels)
                for case, asked in CASES.items():
                    report(table, name.name, case, [turns(engine, asked, seed) for seed in range(ROUNDS + 1)][1:])
                table.row("looking at one step", looking(engine))


def report(table: Table, engine: str, case: str, found: list[Times]) -> None:
    each = {level: [statistics.fmean(trimmed(times[level])) for times in found] for level in LEVELS}
    values = {f"trace {level}": statistics.median(each[level]) for level in reversed(LEVELS)}
    note("Tracing", f"{engine}: {case}", "ms a token", values)
    ratios = [ratio(each[level], each["off"]) for level in LEVELS[1:]]
    table.row(case, *(statistics.median(each[level]) for level in LEVELS), *ratios)


def trimmed(times: list[float]) -> list[float]:
    return sorted(times)[: len(times) - len(times) // 10]


def turns(engine: espalier.LoadedEngine, asked: Mapping[str, Any], seed: int) -> Times:
    """Milliseconds of each token at each level; the first token, which reads the prompt, is left out."""
    options: dict[str, Any] = {"seed": seed, "max_tokens": TOKENS} | dict(asked)
    runs: dict[TraceLevel, Iterator[Event]] = {
        level: engine.stream("Write a long list.", trace=level, **options) for level in LEVELS
    }
    times: Times = {level: [] for level in LEVELS}
    for place in range(TOKENS):
        shift = place % len(LEVELS)
        for level in LEVELS[shift:] + LEVELS[:shift]:
            start = time.process_time_ns()
            event = next(runs[level])
            if place and isinstance(event, TokenEvent):
                times[level].append((time.process_time_ns() - start) / 1e6)
    return times  # the runs are closed with their iterators


def looking(engine: espalier.LoadedEngine) -> float:
    """Milliseconds, the median of a run's steps, to make all the candidates of one."""
    asked = CASES["a schema, sampled"]
    found = []
    for event in engine.stream("Write a long list.", trace="steps", seed=1, max_tokens=TOKENS, **asked):
        if isinstance(event, TokenEvent) and event.record is not None:
            start = time.process_time_ns()
            for stage in (event.record.pre_masking, event.record.post_grammar, event.record.post_chain):
                list(stage)
            found.append((time.process_time_ns() - start) / 1e6)
    return statistics.median(found)


if __name__ == "__main__":
    main()
