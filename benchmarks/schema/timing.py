"""Measures the time to the first mask and of each mask after it, beside llguidance alone, with a vocab of 131,072 ids.

It uses real schemas that both compile, with the first valid instance that both accept. Each round compiles again and
walks the instance once, so every mask is cold; the two engines alternate. The first mask includes compilation. CPU
time; medians over the rounds, per schema and per step.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.schema.cases import Case, Missing, real
from benchmarks.schema.judging import Slow, limited
from benchmarks.schema.peers import CompileSchema, llguidance_alone, ours
from benchmarks.schema.spelling import compact, in_order
from benchmarks.tekken import tekken
from espalier.errors import EspalierError
from espalier.tokens.vocab import Vocab

ROUNDS = 3
SECONDS = 20.0  # for one schema and one round


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Times of one engine. first: ms by schema. masks: µs by step, over all schemas."""

    first: list[float] = field(default_factory=list)
    masks: list[float] = field(default_factory=list)


def measure(
    cases: Sequence[Case], one: CompileSchema, other: CompileSchema, vocab: Vocab, *, rounds: int = ROUNDS
) -> tuple[Times, Times, list[str]]:
    """The times of both engines, and the ids of schemas that took too long. Schemas that either refuses are left
    out."""
    sides, late = (Times(), Times()), []
    for case in cases:
        try:
            with limited(SECONDS):
                found = walkable(case, one, other, vocab)
            if found is None:
                continue
            runs: tuple[list[Any], list[Any]] = ([], [])
            for turn in range(rounds):
                for side in (0, 1) if turn % 2 else (1, 0):
                    with limited(SECONDS):
                        runs[side].append(walk((one, other)[side], case.schema, found))
        except Slow:
            late.append(case.id)
            continue
        except EspalierError:
            continue
        for side in (0, 1):
            sides[side].first.append(statistics.median(first for first, _ in runs[side]))
            sides[side].masks.extend(np.median([masks for _, masks in runs[side]], axis=0))
    return *sides, late


def walkable(case: Case, one: CompileSchema, other: CompileSchema, vocab: Vocab) -> list[int] | None:
    """The tokens of the first valid instance that both accept; None if there is none."""
    assert vocab.encoder is not None
    compiled = one(case.schema), other(case.schema)
    for instance in case.instances:
        text = compact(in_order(instance.data, case.schema))
        if instance.valid and all(c.accepts(text) for c in compiled):
            return list(vocab.encoder(text))
    return None


def walk(compile: CompileSchema, schema: Any, tokens: list[int]) -> tuple[float, list[float]]:  # noqa: A002
    """Milliseconds to the first mask, and microseconds for each after it."""
    clock = time.process_time_ns
    start = clock()
    matcher = compile(schema).matcher()
    matcher.mask()
    first = (clock() - start) / 1e6
    masks = []
    for token in tokens:
        matcher.advance(token)
        start = clock()
        matcher.mask()
        masks.append((clock() - start) / 1e3)
    return first, masks


def line(name: str, unit: str, mine: Sequence[float], theirs: Sequence[float]) -> None:
    """Quantiles of both, and of their ratio step by step."""
    ratios = np.asarray(mine) / np.maximum(np.asarray(theirs), 1e-3)
    shown = [f"{name:>12}"]
    for q in (50, 90, 99):
        a, b = np.percentile(mine, q), np.percentile(theirs, q)
        shown.append(f"p{q} {a:9.2f} {b:9.2f} {a / b:6.2f}")
    shown.append(f"mean {np.mean(mine):9.2f} {np.mean(theirs):9.2f} {np.mean(mine) / np.mean(theirs):6.2f}")
    shown.append("ratios " + " ".join(f"{np.percentile(ratios, q):.2f}" for q in (50, 90, 99)))
    print(f"{' | '.join(shown)}  ({unit}, {len(mine)})")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="a .jsonl.gz, or ESPALIER_REAL_SCHEMAS")
    parser.add_argument("--every", type=int, default=4, help="one schema in so many")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args([] if argv is None else argv)
    try:
        cases = real(arguments.file)[:: arguments.every]
    except Missing as missing:
        print(f"left out: {missing}")
        return
    made = tekken()
    kept = made.compiler()

    def anew(schema: Any) -> Any:
        fresh = made.compiler()  # an empty cache; the trie and the tokenizer are shared
        fresh._parts = kept._parts
        return ours(fresh)(schema)

    theirs = llguidance_alone(kept)
    anew({"type": "object", "properties": {"a": {"type": "integer"}}}).matcher().mask()  # one-time loading happens here
    gc.collect()
    gc.freeze()
    mine, peer, late = measure(cases, anew, theirs, made.vocab, rounds=arguments.rounds)
    if not mine.first:
        print("no schema that both take")
        return
    print("each: Espalier, llguidance alone, ratio of the two; then percentiles of the ratios, 50 90 99")
    line("first mask", "ms, schemas", mine.first, peer.first)
    line("a mask", "µs, masks", mine.masks, peer.masks)
    if late:
        print(f"left out, more than {SECONDS:g} s: {', '.join(late)}")


if __name__ == "__main__":
    main(sys.argv[1:])
