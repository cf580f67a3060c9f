"""Changed inputs of the corpus, by a seed: no library, no coverage. `FUZZ_PARSERS="gguf,trace"` picks parsers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random

from tests.fuzz.files.changes import damaged
from tests.fuzz.parsers.law import Read, Verdict, judge
from tests.fuzz.parsers.table import PARSERS
from tests.fuzz.parsers.target import corpus_of


def named_parsers() -> tuple[str, ...]:
    """The parsers that FUZZ_PARSERS names, all by default. Raises KeyError for a name that is none."""
    names = tuple(filter(None, os.environ.get("FUZZ_PARSERS", "").split(",")))
    return tuple(name for name in names if PARSERS[name]) or tuple(PARSERS)


@cache
def reader_of(name: str) -> Read:
    """The parser, which has read its valid inputs once: imports and caches are not what is measured."""
    read = PARSERS[name].open()
    for data in corpus_of(name):
        judge(read, data)
    return read


def draw_input(name: str, random: Random, inputs: Sequence[bytes]) -> bytes:
    """A change of one of the parser's inputs, or of two of them one after another."""
    data = random.choice(inputs)
    if random.random() < 0.1:
        data = data[: random.randrange(len(data) + 1)] + random.choice(inputs)
    return damaged(data, random, PARSERS[name].longest)


def try_inputs(name: str, seed: int, count: int) -> Iterator[tuple[bytes, Verdict]]:
    """So many inputs of a parser, and what became of each."""
    read = reader_of(name)
    for number in range(count):
        data = draw_input(name, Random(f"{name} {seed} {number}"), corpus_of(name))
        yield data, judge(read, data)
