"""Tries one schema with many texts, on every road that takes it: what is accepted must be valid.

A text is wrong where the matcher accepts it and `jsonschema` does not, where its whitespace is of another style than
asked for, or where a declared name stands twice in it. Where properties come in any order, a valid document is wrong
where the matcher refuses it (`orders.py`). Of an undeclared name that stands twice the last value counts,
as parsers have it; how often that happened is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from random import Random
from typing import Any, Literal, TypeAlias

import jsonschema

from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.lowered import Use
from espalier.constraints.matching.automaton import compile_automaton
from espalier.constraints.spec import JsonSchema
from espalier.errors import EspalierError, LimitExceeded, NotAvailable, SchemaError, UnsupportedError
from espalier.grammar.json_mode import JsonWhitespace
from espalier.time_limit import time_limit
from tests.fuzz.cases import COMPILE_SECONDS, LAW_SECONDS, WITH_TOKENS, check_laws
from tests.fuzz.schema.oracle import declared_twice, parse, valid
from tests.fuzz.schema.orders import promised_digits, variants, written
from tests.fuzz.schema.schemas import HardMaker
from tests.fuzz.schema.texts import INSERTED, LIKED, is_styled, spelled, styled
from tests.fuzz.session import Finding, Totals
from tests.fuzz.texts import changed, walk
from tests.fuzz.vocabularies import byte_compiler, token_compiler

DRAFTS = ("2020-12", "2020-12", "2020-12", "draft-07", "2019-09", "draft-06", "draft-04")
KEYWORDS = frozenset(HardMaker(Random(0)).makers) | frozenset(HardMaker(Random(0), draft="draft-07").makers)
WHITESPACE: tuple[JsonWhitespace, ...] = ("flexible", "flexible", "natural", "compact", "indented")
FORMATS: tuple[Literal["annotate", "assert"], ...] = ("annotate", "annotate", "assert")
ORDERS = (None, "any", "any", "required-first")
TEXTS = 12
STEP = 1009
"""A prime, so that cases in a row go through all pairs of keywords."""


CompileSpec: TypeAlias = Callable[[JsonSchema, Compiler], Compiled]


def as_a_whole(spec: JsonSchema, compiler: Compiler) -> Compiled:
    """The automaton that compositions use, which is built before the first token."""
    return compile_automaton(compiler.language(spec, wanted_by="the fuzzer"), spec, compiler.vocab, compiler.trie)


ROADS: dict[str, CompileSpec] = {"alone": lambda spec, compiler: compiler.compile(spec), "as a whole": as_a_whole}
"""How a schema is compiled: explored on demand, or built as a whole."""
USES: dict[str, Use] = {"alone": "alone", "as a whole": "grammar"}
"""The use whose contract holds on each road."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One schema on one road."""

    seed: int
    road: str
    spec: JsonSchema
    compiled: Compiled
    is_valid: Callable[[Any], bool]

    def finding(self, fault: str, text: str) -> Finding:
        options = f"whitespace {self.spec.whitespace}, format {self.spec.format}, order {self.spec.used_order}"
        return Finding(seed=self.seed, fault=f"{self.road}, {options}: {fault}", spec=self.spec.schema, text=text)


class SchemaFuzzer:
    def one(self, seed: int, totals: Totals) -> None:
        """One schema and its texts, on every road that takes it."""
        random = Random(seed)
        maker = HardMaker(random, draft=random.choice(DRAFTS), depth=random.randint(1, 3))
        pairs = list(combinations(maker.makers, 2))
        maker.together = pairs[seed * STEP % len(pairs)]
        schema = maker.document()
        if not isinstance(schema, dict):
            return
        totals.spec = schema
        spec = JsonSchema(
            schema, whitespace=random.choice(WHITESPACE), format=random.choice(FORMATS), order=random.choice(ORDERS)
        )
        try:
            judge = valid(schema, has_formats=spec.format == "assert")
            jsonschema.validators.validator_for(schema).check_schema(schema)
            judge(None)
        except (jsonschema.SchemaError, RecursionError):
            totals.counts["malformed"] += 1
            return
        values = [maker.value() for _ in range(TEXTS)]
        for road, compile_schema in ROADS.items():
            try:
                with time_limit(COMPILE_SECONDS):
                    compiled = compile_schema(spec, byte_compiler())
            except SchemaError:
                totals.counts["no document"] += 1
                return
            except (UnsupportedError, LimitExceeded) as error:
                totals.counts[error.code] += 1
                continue
            totals.counts[road] += 1
            totals.features.update(_features(schema))
            tried = Tried(seed=seed, road=road, spec=spec, compiled=compiled, is_valid=judge)
            accepted = [text for text in _texts(tried, values, random) if _judge(text, tried, totals)]
            _check_orders(tried, accepted, values, random, totals)
            _check(tried, random.choice(accepted) if accepted else None, random, totals, compile_schema)


def _check_orders(tried: Tried, accepted: list[str], values: list[Any], random: Random, totals: Totals) -> None:
    """Valid documents that are near accepted texts, in any order of their names: each must be accepted."""
    digits = promised_digits(tried.spec, USES[tried.road])
    if digits is None:
        return
    totals.counts["any order: schemas"] += 1
    near = [one for text in random.sample(accepted, min(len(accepted), TEXTS)) for one in variants(text, random)]
    for value in [*near, *values]:
        text = written(value, tried.spec, digits)
        try:
            if text is None or not tried.is_valid(parse(text)[0]):
                continue
            totals.counts["any order: valid documents"] += 1
            if not tried.compiled.accepts(text):
                totals.findings.append(tried.finding("refuses a valid document in another order", text))
        except (RecursionError, LimitExceeded):
            totals.counts["text: not judged"] += 1
        except EspalierError as error:
            totals.counts[f"text: {error.code}"] += 1


def _check(tried: Tried, text: str | None, random: Random, totals: Totals, compile_schema: CompileSpec) -> None:
    """The laws, and a tokenizer's vocabulary, on one accepted text."""
    of_tokens = None
    try:
        if random.random() < WITH_TOKENS:
            with time_limit(COMPILE_SECONDS):
                of_tokens = compile_schema(tried.spec, token_compiler())
            totals.counts["compiled for a tokenizer"] += 1
            if text is not None and not of_tokens.accepts(text):
                totals.findings.append(tried.finding("bytes and tokens disagree", text))
                return
        with time_limit(LAW_SECONDS):
            check_laws(tried.compiled, of_tokens, text, random)
    except AssertionError as error:
        totals.findings.append(tried.finding(f"a law: {error}", text or ""))
    except EspalierError as error:
        totals.counts[f"laws: {error.code}"] += 1


def _features(schema: Any) -> set[str]:
    """The keywords of a schema, and the pairs that stand in one object of it."""
    if isinstance(schema, list):
        return {feature for inner in schema for feature in _features(inner)}
    if not isinstance(schema, dict):
        return set()
    names = sorted(KEYWORDS & schema.keys())
    pairs = (f"pair: {one} + {other}" for one, other in combinations(names, 2))
    below = (feature for inner in schema.values() for feature in _features(inner))
    return {*(f"keyword: {name}" for name in names), *pairs, *below}


def _texts(tried: Tried, values: list[Any], random: Random) -> list[str]:
    texts = [
        spelled(value, random) if random.random() < 0.5 else styled(value, tried.spec.whitespace) for value in values
    ]
    for _ in range(TEXTS):
        try:
            found = walk(tried.compiled, random, liked=LIKED)
        except (NotAvailable, LimitExceeded):
            break
        if found is not None:
            texts.append(found)
    return texts + [changed(text, random, INSERTED) for text in texts for _ in range(2)]


def _judge(text: str, tried: Tried, totals: Totals) -> bool:
    """Whether the text is accepted; a wrong one is a finding."""
    totals.text = text
    try:
        is_accepted = tried.compiled.accepts(text)
    except EspalierError as error:
        totals.counts[f"text: {error.code}"] += 1
        return False
    totals.counts[f"text: {'accepted' if is_accepted else 'refused'}"] += 1
    if is_accepted and (fault := _fault(text, tried, totals)) != "":
        totals.findings.append(tried.finding(fault, text))
    return is_accepted


def _fault(text: str, tried: Tried, totals: Totals) -> str:
    try:
        value, is_twice = parse(text)
        if not tried.is_valid(value):
            return "accepts what jsonschema refuses"
    except ValueError:
        return "accepts what is no JSON"
    except (RecursionError, LimitExceeded):  # a pattern whose automaton is too large is no pattern of jsonschema's
        totals.counts["text: not judged"] += 1
        return ""
    totals.counts["text: accepted, a name stands twice"] += is_twice
    if is_twice and declared_twice(tried.spec.schema, text):
        return "accepts a declared name twice"
    return "" if is_styled(text, tried.spec.whitespace) else "accepts whitespace of another style"
