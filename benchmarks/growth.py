"""How a mask grows: with the vocabulary, the size of a schema, the length of a list, the depth of a text, and the texts
that are written at once. Espalier beside llguidance, and xgrammar where it is installed.

    python -m benchmarks growth
    python -m benchmarks.growth depth batch

Each row has a constraint of its own, never met before, and a text of at most 300 tokens: the time to the first mask,
and a step (a mask and an advance) of a first and of a second text. CPU time of one core.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.cold import WIDTHS, Engine, Text, engines_over, measured, widened
from benchmarks.figures import note
from benchmarks.harness import Steps, Table, microseconds, one_core
from benchmarks.schema.judging import limited
from benchmarks.schema.llguidance_peer import WHITESPACE
from benchmarks.tekken import Tekken, tekken
from espalier.constraints.spec import JsonSchema
from espalier.server.process.garbage import short_collections

MOST_TOKENS = 300
SECONDS = 60.0
SIZES = (10, 100, 1_000)
LISTS = (10, 1_000, 10_000)
DEPTHS = (1, 10, 100)
BATCHES = (1, 8, 32)
MEASURES = ("to first mask", "step", "step of a second text")


def text_of(made: Tekken, schema: dict[str, Any], value: object) -> Text:
    """The first tokens of a value, under its schema."""
    natural = schema | {"x-guidance": WHITESPACE["natural"]}
    return Text(
        spec=JsonSchema(schema),
        tokens=made.encode(json.dumps(value, separators=(",", ":")))[:MOST_TOKENS],
        lark="start: %json " + json.dumps(natural),
        xgrammar=("compile_json_schema", json.dumps(schema)),
    )


def record(made: Tekken, size: int) -> Text:
    """An object of so many members, all required."""
    kinds: Sequence[dict[str, Any]] = ({"type": "string", "maxLength": 40}, {"type": "integer"}, {"type": "boolean"})
    names = [f"member_{number}" for number in range(size)]
    schema = {
        "type": "object",
        "properties": {name: kinds[number % 3] for number, name in enumerate(names)},
        "required": names,
        "additionalProperties": False,
    }
    values = ("some words", 42, True)
    return text_of(made, schema, {name: values[number % 3] for number, name in enumerate(names)})


def listed(made: Tekken, size: int) -> Text:
    """An array of ten words out of a list of so many."""
    words = [f"word {number} of {number * 7919 % size}" for number in range(size)]
    schema = {"type": "array", "items": {"enum": words}, "maxItems": 50}
    return text_of(made, schema, [words[number * 7919 % size] for number in range(10)])


def nested(made: Tekken, depth: int) -> Text:
    """Trees, of which the text is one branch."""
    schema = {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["v", "kids"],
        "additionalProperties": False,
    }
    value: dict[str, Any] = {"v": 0, "kids": []}
    for number in range(depth):
        value = {"v": number, "kids": [value]}
    return text_of(made, schema, value)


def vocabularies() -> Iterator[tuple[str, Tekken, Text]]:
    for width in WIDTHS:
        made = widened(tekken(), width)
        yield f"{width:,} ids", made, record(made, 30)


def over(make: Callable[[Tekken, int], Text], sizes: Sequence[int], unit: str) -> Iterator[tuple[str, Tekken, Text]]:
    for size in sizes:
        yield f"{size:,} {unit}", tekken(), make(tekken(), size)


AXES: Mapping[str, Callable[[], Iterator[tuple[str, Tekken, Text]]]] = {
    "vocabulary": vocabularies,
    "schema": lambda: over(record, SIZES, "members"),
    "list": lambda: over(listed, LISTS, "words"),
    "depth": lambda: over(nested, DEPTHS, "levels"),
}
"""By name: the rows, each with its vocabulary and its text."""


def grown(axis: str) -> None:
    """Print and note one axis."""
    table = Table({f"by {axis}": "<16", "engine": "<12"} | dict.fromkeys(MEASURES, ">24.1f"))
    for size, made, text in AXES[axis]():
        by_engine: dict[str, tuple[float, ...]] = {}
        for name, engine in warmed(made).items():
            times = measured(engine, text, SECONDS)
            if times is None:
                table.row(size, name, "refused")
                continue
            step = (sum(times.masks) + sum(times.advances)) / len(times.masks)
            by_engine[name] = (times.compile + times.first, step, times.again / len(times.masks))
            table.row(size, name, *by_engine[name])
        for number, measure in enumerate(MEASURES):
            note(
                f"Growth by {axis}", f"{size}: {measure}", "µs", {name: row[number] for name, row in by_engine.items()}
            )


def warmed(made: Tekken) -> dict[str, Engine]:
    """The engines, each of which has compiled and walked another text."""
    engines = engines_over(made)
    other = text_of(made, {"type": "object", "properties": {"a": {"type": "string"}}}, {"a": "b"})
    for engine in engines.values():
        measured(engine, other)
    return engines


def batches() -> None:
    """A known constraint: a step of one of so many texts that are written at once, each a token further than the one
    before."""
    made = tekken()
    text = record(made, 30)
    table = Table({"by texts at once": "<18", "engine": "<12", "a step": ">12.1f"})
    starts: dict[str, Callable[[], Steps]] = {}
    for name, engine in warmed(made).items():
        with limited(SECONDS):
            starts[name] = engine.compiled(text)
    for count in BATCHES:
        values = {}
        for name, start in starts.items():
            walked = partial(walk, start, text.tokens, count)
            walked()
            steps = count * (len(text.tokens) - count)
            values[name] = microseconds(walked, steps)
            table.row(count, name, values[name])
        note("Growth by texts at once", f"{count} at once: step of one", "µs", values)


def walk(start: Callable[[], Steps], tokens: Sequence[int], count: int) -> None:
    """So many texts in turns, a step each."""
    texts = [start() for _ in range(count)]
    for number, (_, advance) in enumerate(texts):
        for token in tokens[:number]:
            advance(token)
    for place in range(len(tokens) - count):
        for number, (mask, advance) in enumerate(texts):
            mask()
            advance(tokens[place + number])


def main(argv: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    axes = [*AXES, "batch"]
    parser.add_argument("axes", nargs="*", default=axes, metavar="AXIS", help=f"of {', '.join(axes)}")
    arguments = parser.parse_args(argv)
    with one_core(), short_collections():
        gc.collect()
        gc.freeze()
        for axis in arguments.axes:
            (batches if axis == "batch" else partial(grown, axis))()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
