"""Tries the cells of the grid: no wrong text is accepted, and a note of the contract announces each refusal of a valid
document.

Texts are small values around the schema, other spellings of them, and walks of the matcher. Each cell is compiled in
one of several ways (`ROADS`), with whitespace, order and formats that its number chooses.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random
from typing import Any, Literal

from espalier.api.use_cases import schema_to_gbnf
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.json_schema.lowered import LoweredSchema, Use
from espalier.constraints.spec import Gbnf, JsonSchema, Regex
from espalier.errors import EspalierError, LimitExceeded, NotAvailable, SchemaError
from espalier.grammar.json_mode import JsonWhitespace
from espalier.schema.contract import Contract
from espalier.schema.order import Order
from espalier.time_limit import OutOfTime, time_limit
from tests.fuzz.cases import COMPILE_SECONDS, LAW_SECONDS, check_laws
from tests.fuzz.schema.run import as_a_whole
from tests.fuzz.schema.texts import LIKED, is_styled, styled
from tests.fuzz.schema_grid.cells import Cell, cell
from tests.fuzz.schema_grid.keywords import DRAFTS, Kind
from tests.fuzz.schema_grid.oracles import Judges, Undecided
from tests.fuzz.schema_grid.reasons import is_announced, is_ordered
from tests.fuzz.schema_grid.surfaces import Surfaces
from tests.fuzz.schema_grid.values import orders, spellings, values
from tests.fuzz.session import CASES_PER_SEED, Finding, Totals
from tests.fuzz.texts import walk
from tests.fuzz.vocabularies import byte_compiler, token_compiler

CELL_SECONDS = 3.0
"""CPU time of all texts and walks of one cell, above which it is a finding: schemas of the grid are small."""
WALKS = 3
WITH_LAWS = 16
"""One cell of so many is held to the laws of matchers; of these, one of four under a tokenizer's vocabulary."""
WITH_SURFACES = 50
WHITESPACE: tuple[JsonWhitespace, ...] = ("natural", "compact", "natural", "flexible", "indented")
ORDERS: tuple[Order | None, ...] = (None, None, "any", "required-first")
BEGINS: dict[Kind, bytes] = {"object": b"{", "array": b"[", "string": b'"', "number": b""}


def _alone(spec: JsonSchema, compiler: Compiler) -> Compiled:
    return compiler.compile(spec)


def _in_all_of(spec: JsonSchema, compiler: Compiler) -> Compiled:
    return compiler.compile(AllOf(spec, Regex("(?s:.*)")))


def _as_gbnf(spec: JsonSchema, compiler: Compiler) -> Compiled:
    return compiler.compile(Gbnf(schema_to_gbnf(spec)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Road:
    name: str
    compile: Callable[[JsonSchema, Compiler], Compiled]
    #: The use whose contract holds.
    use: Use
    #: Whether compiling has a time limit; a grammar with one is built in another process, which is started for it.
    is_limited: bool = True


ALONE = Road(name="alone", compile=_alone, use="alone")
WHOLE = Road(name="as a whole", compile=as_a_whole, use="grammar")
JOINED = Road(name="AllOf", compile=_in_all_of, use="watched")
WRITTEN = Road(name="GBNF", compile=_as_gbnf, use="grammar", is_limited=False)
ROADS = (ALONE, WHOLE, *[ALONE] * 4, JOINED, *[ALONE] * 4, WHOLE, *[ALONE] * 3, WRITTEN, ALONE)
"""The roads of visits in a row. The others cost several times as much as `ALONE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One cell that was compiled."""

    cell: Cell
    road: Road
    spec: JsonSchema
    compiled: Compiled
    contract: Contract
    judges: Judges
    seed: int

    @property
    def is_strict(self) -> bool:
        """Whether the contract promises that every accepted text is valid."""
        return not self.contract.by_verdict("checked", "refused")


class GridFuzzer:
    """Each case is one cell; the number of a case within its seed is the number of the cell."""

    def __init__(self) -> None:
        self._surfaces = Surfaces()
        walk(byte_compiler().compile(JsonSchema({"maxItems": 1})), Random(0))  # compiles the kernels

    def close(self) -> None:
        self._surfaces.close()

    def one(self, seed: int, totals: Totals) -> None:
        order, number = divmod(seed, CASES_PER_SEED)
        found = cell(order, number)
        self.try_cell(found, seed, totals)
        if number % WITH_SURFACES == 0:
            totals.counts["contract compared on every surface"] += 1
            if (fault := self._surfaces.difference(found.schema)) != "":
                totals.findings.append(Finding(seed=seed, fault=fault, spec=found.schema))

    def try_cell(self, cell: Cell, seed: int, totals: Totals) -> None:
        """Compile the cell and try its texts."""
        spec = spec_of(cell)
        totals.spec, totals.text = cell.schema, ""
        totals.features.update(cell.features())
        judges = Judges(cell.schema, DRAFTS.index(cell.draft), has_formats=spec.format == "assert")
        road = ROADS[cell.visit % len(ROADS)]
        try:
            with time_limit(COMPILE_SECONDS) if road.is_limited else nullcontext():
                contract = LoweredSchema(spec).contract(road.use)
                compiled = road.compile(spec, byte_compiler())
        except SchemaError as error:
            totals.counts["not compiled: no document"] += 1
            _check_empty(cell, spec, judges, error, seed, totals)
            return
        except EspalierError as error:
            totals.counts[f"not compiled, {road.name}: {error.code}"] += 1
            return
        totals.counts[f"compiled: {road.name}"] += 1
        trial = Trial(cell=cell, road=road, spec=spec, compiled=compiled, contract=contract, judges=judges, seed=seed)
        totals.counts["contract: all enforced" if trial.is_strict else "contract: some only checked"] += 1
        _try_laws(trial, _try_texts_in_time(trial, totals), totals)
        totals.counts.update(f"validators differ: {name}" for name in judges.decided)


def spec_of(cell: Cell) -> JsonSchema:
    """The constraint of a cell, with the options that its visit chooses."""
    formats: Literal["assert", "annotate"] = "assert" if "format" in cell.part and cell.visit % 4 else "annotate"
    return JsonSchema(
        cell.schema,
        allow="checked",
        whitespace=WHITESPACE[cell.visit // 2 % len(WHITESPACE)],
        order=ORDERS[cell.visit // 3 % len(ORDERS)],
        format=formats,
    )


def documents(cell: Cell) -> Iterator[Any]:
    """The documents to try on a cell."""
    for value in values(cell.kind, cell.part):
        yield from cell.place.embed(value)


def _add(trial: Trial, totals: Totals, fault: str, text: str) -> None:
    spec = trial.spec
    options = f"{trial.road.name}, whitespace {spec.whitespace}, format {spec.format}, order {spec.used_order}"
    named = f"{options}, {trial.cell.place.name} of {' + '.join(trial.cell.keywords)}: {fault}"
    totals.findings.append(Finding(seed=trial.seed, fault=named, spec=trial.cell.schema, text=text))


def _check_empty(cell: Cell, spec: JsonSchema, judges: Judges, error: SchemaError, seed: int, totals: Totals) -> None:
    """A schema that is refused as one of no document must have none among those that are tried."""
    for value in documents(cell):
        text = styled(value, spec.whitespace)
        if judges.is_valid(text):
            fault = f"refused as a schema of no document ({error.message}), and has one"
            totals.findings.append(Finding(seed=seed, fault=fault, spec=cell.schema, text=text))
            return


def _try_texts_in_time(trial: Trial, totals: Totals) -> list[str]:
    """The accepted texts. A collection of a large process's garbage takes seconds, and any cell can meet one: a cell is
    slow if it is so twice."""
    for attempt in range(2):
        try:
            with time_limit(CELL_SECONDS):
                return _try_texts(trial, totals)
        except OutOfTime:
            totals.counts["out of time"] += 1
            if attempt:
                _add(trial, totals, f"its texts and walks take more than {CELL_SECONDS:g} s of CPU", totals.text)
            else:
                gc.collect()
    return []


def _try_texts(trial: Trial, totals: Totals) -> list[str]:
    """The accepted ones among the small documents, each in its other spellings too, and walks."""
    spec, cell = trial.spec, trial.cell
    accepted = []
    for place, value in enumerate(documents(cell)):
        text = styled(value, spec.whitespace)
        if _try_text(trial, text, totals):
            accepted.append(text)
        else:
            _check_refusal(trial, value, text, totals)
        if place % 5 == cell.visit % 5:
            accepted += [other for other in spellings(value) if _try_text(trial, other, totals)]
    return accepted + [text for text in _walks(trial, totals) if _try_text(trial, text, totals)]


def _walks(trial: Trial, totals: Totals) -> Iterator[str]:
    random = Random(trial.seed)
    for turn in range(WALKS):
        begin = BEGINS[trial.cell.kind] if turn else b""
        try:
            text = walk(trial.compiled, random, liked=LIKED, begin=begin, longest=4 + 6 * turn) or ""
        except OutOfTime:
            raise
        except (NotAvailable, LimitExceeded) as error:
            totals.counts[f"walk: {error.code}"] += 1
            continue
        if text:
            totals.counts["text: walked"] += 1
            yield text


def _try_text(trial: Trial, text: str, totals: Totals) -> bool:
    """Whether the text is accepted; a wrong one is a finding."""
    totals.text = text
    is_accepted = _accepts(trial, text, totals)
    totals.counts[f"text: {'accepted' if is_accepted else 'refused'}"] += 1
    if not is_accepted:
        return False
    try:
        is_valid = trial.judges.is_valid(text)
    except (Undecided, ValueError) as error:
        _add(trial, totals, str(error) if isinstance(error, Undecided) else "accepts what is no JSON", text)
        return True
    except RecursionError:
        totals.counts["text: not judged"] += 1
        return True
    if not is_valid and trial.is_strict:
        _add(trial, totals, "accepts what is not valid, and calls every keyword enforced", text)
    elif not is_valid:
        totals.counts["text: accepted, not valid, said to be only checked"] += 1
    elif not is_styled(text, trial.spec.whitespace):
        _add(trial, totals, "accepts whitespace of another style", text)
    return True


def _accepts(trial: Trial, text: str, totals: Totals) -> bool:
    try:
        return trial.compiled.accepts(text)
    except OutOfTime:
        raise
    except LimitExceeded as error:
        totals.counts[f"text: {error.code}"] += 1
        return False


def _check_refusal(trial: Trial, value: Any, text: str, totals: Totals) -> None:
    """A valid document that is refused must have its reason in the contract."""
    try:
        if not trial.judges.is_valid(text):
            return
    except Undecided as error:
        _add(trial, totals, str(error), text)
        return
    totals.counts["refused, and valid"] += 1
    if is_ordered(trial.contract) and any(
        _accepts(trial, styled(other, trial.spec.whitespace), totals) for other in orders(value)
    ):
        totals.counts["refused, and valid: the order"] += 1
    elif is_announced(trial.contract, value):
        totals.counts["refused, and valid: a note"] += 1
    else:
        _add(trial, totals, "refuses a valid document without a reason in the contract", text)


def _try_laws(trial: Trial, accepted: list[str], totals: Totals) -> None:
    if trial.cell.visit % WITH_LAWS:
        return
    random = Random(trial.seed)
    text = random.choice(accepted) if accepted else None
    totals.counts["laws"] += 1
    try:
        with time_limit(LAW_SECONDS):
            has_tokens = random.random() < 0.25
            of_tokens = trial.road.compile(trial.spec, token_compiler()) if has_tokens else None
            if of_tokens is not None and text is not None and not of_tokens.accepts(text):
                _add(trial, totals, "bytes and tokens disagree", text)
            else:
                check_laws(trial.compiled, of_tokens, text, random)
    except AssertionError as error:
        _add(trial, totals, f"a law: {error}", text or "")
    except EspalierError as error:
        totals.counts[f"laws: {error.code}"] += 1
