"""What `uniqueItems` adds to a mask: one array under a schema with the keyword and without it, for each kind of item.

    python -m benchmarks "unique items"

Microseconds of CPU time, one core, Tekken's 131,072 ids; each text is walked once after compiling (cold), and again as
a second sequence (warm). Ratio: of the means of warm masks, with the keyword to without.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean, quantiles
from time import thread_time_ns
from typing import Any

from benchmarks.figures import note
from benchmarks.harness import one_core
from benchmarks.tekken import Tekken, tekken
from espalier.constraints.base import Compiled
from espalier.constraints.spec import JsonSchema

LENGTHS = (6, 50, 200)
RECORD = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "help": {"type": "string"}, "kind": {"enum": ["str", "int"]}},
    "required": ["name", "help", "kind"],
    "additionalProperties": False,
}
PAIR = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
WORDS = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"]

KINDS: dict[str, tuple[dict[str, Any], Callable[[Random, int], object]]] = {
    "objects": (RECORD, lambda rng, i: {"name": f"n{i}", "help": " ".join(rng.sample(WORDS, 4)), "kind": "str"}),
    "integers": ({"type": "integer"}, lambda rng, i: rng.randrange(100) * 1_000 + i),
    "numbers": ({"type": "number"}, lambda rng, i: round(i + rng.random(), 3)),
    "strings": ({"type": "string"}, lambda rng, i: f"{rng.choice(WORDS)} {i}"),
    "mixed": ({"type": ["string", "integer", "boolean", "null"]}, lambda rng, i: rng.choice([f"w{i}", i])),
    "arrays": (PAIR, lambda rng, i: [i, i + 1]),
}
"""For each kind the schema of an item, and the item with a number."""


def schema_of(item: dict[str, Any], *, unique: bool) -> JsonSchema:
    args = {"type": "array", "items": item} | ({"uniqueItems": True} if unique else {})
    return JsonSchema(
        {"type": "object", "properties": {"args": args}, "required": ["args"], "additionalProperties": False}
    )


def masks_of(compiled: Compiled, tokens: Sequence[int]) -> list[float]:
    """Microseconds of each mask."""
    matcher, times = compiled.matcher(), []
    for token in tokens:
        begin = thread_time_ns()
        matcher.mask()
        times.append((thread_time_ns() - begin) / 1e3)
        matcher.advance(token)
    return times


def row(made: Tekken, kind: str, count: int) -> list[float]:
    """Microseconds: the mean mask without the keyword, and with it cold, warm at the median, the 99th percentile, and
    the mean."""
    item, value = KINDS[kind]
    rng, compiler = Random(7), made.compiler()
    text = json.dumps({"args": [value(rng, i) for i in range(count)]}, separators=(",", ":"))
    tokens = made.encode(text)
    plain, unique = (compiler.compile(schema_of(item, unique=unique)) for unique in (False, True))
    masks_of(plain, tokens)
    without, cold = masks_of(plain, tokens), masks_of(unique, tokens)
    warm = masks_of(unique, tokens)
    cuts = quantiles(warm, n=100)
    return [fmean(without), fmean(cold), cuts[49], cuts[98], fmean(warm)]


def main() -> None:
    made = tekken()
    row(made, "objects", 2)  # the kernels and the tables of the vocabulary
    print("| items | without | cold | warm, median | p99 | mean | ratio |")
    print("|---|---|---|---|---|---|---|")
    gc.disable()
    with one_core():
        for kind in KINDS:
            for count in LENGTHS:
                times = row(made, kind, count)
                shown = " | ".join(f"{time:.1f}" for time in times)
                values = {"with uniqueItems": times[-1], "without": times[0]}
                note("Unique items, 131,072 ids", f"{count} {kind}", "µs a mask", values)
                print(f"| {count} {kind} | {shown} | {times[-1] / times[0]:.1f} |", flush=True)
    gc.enable()


if __name__ == "__main__":
    main()
