"""One schema after another, each with many texts: what is accepted must be valid.

A text is wrong where the matcher accepts it and `jsonschema` does not. Of a name that stands twice in an
object the last value counts, as parsers have it; how often that happened is counted.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import jsonschema

from benchmarks.schema.fuzzing.oracle import parse, valid
from benchmarks.schema.fuzzing.schemas import HardMaker
from benchmarks.schema.fuzzing.texts import changed, spelled, walk
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.llguidance import LlgCompiled
from espalier.constraints.spec import JsonSchema
from espalier.errors import EspalierError, LimitExceeded, NotAvailable, SchemaError, UnsupportedError
from espalier.time_limit import time_limit
from espalier.tokens.vocab import Vocab

DRAFTS = ("2020-12", "2020-12", "2020-12", "draft-07", "2019-09", "draft-06", "draft-04")
KEYWORDS = frozenset(HardMaker(Random(0)).makers) | frozenset(HardMaker(Random(0), draft="draft-07").makers)
COMPILE_SECONDS = 5.0
TEXTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A text that is wrongly accepted. backend: what enforced the schema. seed: of this schema alone, for `one`."""

    backend: str
    schema: Any
    text: str
    seed: int

    def __str__(self) -> str:
        return f"{self.backend}, seed {self.seed}: {self.schema!r} accepts {self.text!r}"


@dataclass(slots=True)
class Totals:
    """counts: schemas by what became of them and texts by verdict. keywords: of the schemas that compiled."""

    counts: Counter[str] = field(default_factory=Counter)
    keywords: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)


def run(seed: int, *, seconds: float | None = None, schemas: int | None = None) -> Totals:
    """Until so many seconds have gone, or so many schemas. Each schema has a seed of its own, which a finding names."""
    totals = Totals()
    end = None if seconds is None else time.monotonic() + seconds
    number = 0
    compiler = Compiler(Vocab.bytes())
    while (end is None or time.monotonic() < end) and (schemas is None or number < schemas):
        one(seed * 1_000_003 + number, totals, compiler)
        number += 1
    return totals


def one(seed: int, totals: Totals, compiler: Compiler) -> None:
    """One schema and its texts, on every backend that takes it."""
    random = Random(seed)
    maker = HardMaker(random, draft=random.choice(DRAFTS), depth=random.randint(1, 3))
    schema = maker.document()
    if not isinstance(schema, dict):
        return
    try:
        judge = valid(schema)
        jsonschema.validators.validator_for(schema).check_schema(schema)
        judge(None)
    except (jsonschema.SchemaError, RecursionError):
        totals.counts["malformed"] += 1
        return
    values = [maker.value() for _ in range(TEXTS)]
    done: set[str] = set()
    for own in (False, True):
        try:
            with time_limit(COMPILE_SECONDS):
                compiled = (compiler.by_grammar if own else compiler).compile(JsonSchema(schema, whitespace="flexible"))
        except SchemaError:
            totals.counts["no document"] += 1
            return
        except (UnsupportedError, LimitExceeded) as error:
            totals.counts[error.code] += 1
            continue
        backend = "llguidance" if isinstance(compiled, LlgCompiled) else "automaton"
        if own and "automaton" in done:
            return
        done.add(backend)
        totals.counts[backend] += 1
        totals.keywords.update(_keywords(schema) & KEYWORDS)
        for text in _texts(compiled, values, random):
            _judge(text, compiled, judge, Finding(backend=backend, schema=schema, text=text, seed=seed), totals)


def _keywords(schema: Any) -> set[str]:
    if isinstance(schema, dict):
        return {*schema, *(name for value in schema.values() for name in _keywords(value))}
    return {name for one in schema for name in _keywords(one)} if isinstance(schema, list) else set()


def _texts(compiled: Compiled, values: list[Any], random: Random) -> list[str]:
    texts = [spelled(value, random) for value in values]
    for _ in range(TEXTS):
        try:
            found = walk(compiled, random)
        except (NotAvailable, LimitExceeded):
            break
        if found is not None:
            texts.append(found)
    return texts + [changed(text, random) for text in texts for _ in range(2)]


def _judge(text: str, compiled: Compiled, judge: Any, finding: Finding, totals: Totals) -> None:
    try:
        accepted = compiled.accepts(text)
    except EspalierError as error:
        totals.counts[f"text: {error.code}"] += 1
        return
    if not accepted:
        totals.counts["text: refused"] += 1
        return
    totals.counts["text: accepted"] += 1
    try:
        value, is_twice = parse(text)
        is_wrong = not judge(value)
    except ValueError:
        is_wrong, is_twice = True, False
    totals.counts["text: accepted, a name stands twice"] += is_twice
    if is_wrong:
        totals.counts["text: wrong"] += 1
        totals.findings.append(finding)
