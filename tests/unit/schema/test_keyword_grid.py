"""A bounded part of the grid of keywords and places, the counts of all of it, and that it finds what is wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from typing import Any

import jsonschema_rs
import pytest

from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.spec import JsonSchema
from espalier.schema.contract import Contract
from tests.examples import examples
from tests.fuzz.schema_grid import run as grid
from tests.fuzz.schema_grid.cells import cell, cell_of
from tests.fuzz.schema_grid.keywords import ADDRESSES, DRAFTS, KINDS, drafts_of, keyword_sets, pairs
from tests.fuzz.schema_grid.oracles import CHECKED_BY_THE_OTHER, Judges, Undecided, ecma
from tests.fuzz.schema_grid.places import PLACES, places_of
from tests.fuzz.schema_grid.run import ROADS, GridFuzzer, Road
from tests.fuzz.schema_grid.values import orders, spellings
from tests.fuzz.session import CASES_PER_SEED, Totals, run, try_case

IN_TEN_MINUTES = 17_200
"""Cells that ten minutes of CPU time try on one core."""
ROUND = 1086


@pytest.fixture(scope="module")
def fuzzer() -> Iterator[GridFuzzer]:
    with closing(GridFuzzer()) as made:
        yield made


@pytest.mark.slow
def test_each_set_of_keywords_keeps_its_contract_in_some_place(fuzzer: GridFuzzer) -> None:
    totals = run(fuzzer, 1, cases=examples(ROUND))
    assert [str(finding) for finding in totals.findings] == []
    assert totals.counts["text: accepted"] > totals.counts["text: walked"] > 0
    assert totals.counts["refused, and valid: the order"]


def _new_pairs(number: int, seen: set[tuple[str, str, str]]) -> set[tuple[str, str, str]]:
    """The pairs of keywords that the cell of a number has in a place where none of `seen` has them."""
    tried = cell(1, number)
    there: set[tuple[str, str, str]] = {(tried.kind, pair, tried.place.name) for pair in pairs(tried.keywords)}
    return there - seen


@cache
def _further_cells() -> tuple[int, ...]:
    """Cells of four further rounds that bring three new pairs of keywords into a place, and then those that bring two:
    with a sixth of the cells, all but a seventh of the pairs in a place that the four rounds have."""
    seen = set[tuple[str, str, str]]().union(*(_new_pairs(number, set()) for number in range(ROUND)))
    chosen = []
    for least in (3, 2):
        for number in range(ROUND, 5 * ROUND):
            if len(new := _new_pairs(number, seen)) >= least:
                seen |= new
                chosen.append(number)
    return tuple(chosen)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(2))
def test_each_pair_of_keywords_keeps_its_contract_in_further_places(fuzzer: GridFuzzer, part: int) -> None:
    totals, numbers = Totals(), _further_cells()[part::2]
    for number in numbers[: examples(len(numbers))]:
        try_case(fuzzer, CASES_PER_SEED + number, totals)
    assert [str(finding) for finding in totals.findings] == []


def test_ten_minutes_try_each_keyword_pair_and_place_two_hundred_times() -> None:
    counts: Counter[str] = Counter()
    for number in range(IN_TEN_MINUTES):
        counts.update(cell(1, number).features())
    assert {name: count for name, count in counts.items() if count < 200} == {}
    assert len([name for name in counts if name.startswith("place: ")]) == len(PLACES)


def test_every_visit_gives_another_schema_that_its_draft_takes() -> None:
    for kind in KINDS:
        for names in keyword_sets(kind)[:: 1 if kind in ("string", "number") else 9]:
            texts = set()
            visits = len(places_of(kind, drafts_of(kind, names)))
            for visit in range(visits):
                schema = cell_of(kind, names, visit).schema
                assert jsonschema_rs.meta.is_valid(schema), schema
                texts.add(str(schema))
            assert len(texts) > 0.9 * visits


def test_the_order_is_another_for_another_seed() -> None:
    one, other = ([cell(seed, number).schema for number in range(50)] for seed in (1, 2))
    assert one != other
    assert one == [cell(1, number).schema for number in range(50)]


def _try(totals: Totals, kind: Any, names: tuple[str, ...], visits: range) -> None:
    fuzzer = GridFuzzer()
    for visit in visits:
        fuzzer.try_cell(cell_of(kind, names, visit), visit, totals)


def test_a_text_that_is_wrongly_accepted_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def loose(spec: JsonSchema, compiler: Compiler) -> Compiled:
        return compiler.compile(JsonSchema({}, whitespace=spec.whitespace))

    monkeypatch.setattr(grid, "ROADS", (Road(name="loose", compile=loose, use="alone"),))
    totals = Totals()
    _try(totals, "number", ("type", "maximum"), range(4))
    assert any("accepts what is not valid" in finding.fault for finding in totals.findings)


def test_a_refusal_without_a_note_in_the_contract_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = LoweredSchema.contract

    def without_notes(self: LoweredSchema, use: Any) -> Contract:
        return Contract(tuple(one for one in stated(self, use).entries if one.keyword != "number spelling"))

    monkeypatch.setattr(LoweredSchema, "contract", without_notes)
    monkeypatch.setattr(grid, "documents", lambda _: [10**30])
    totals = Totals()
    _try(totals, "number", ("minimum", "multipleOf"), range(1))
    assert ["without a reason" in finding.fault for finding in totals.findings] == [True]


def test_a_schema_that_is_refused_as_empty_and_is_not_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(spec: JsonSchema, compiler: Compiler) -> Compiled:
        return compiler.compile(JsonSchema(False))

    monkeypatch.setattr(grid, "ROADS", (Road(name="empty", compile=empty, use="alone"),))
    totals = Totals()
    _try(totals, "string", ("minLength", "maxLength"), range(4))
    assert any("a schema of no document" in finding.fault for finding in totals.findings)


@pytest.mark.parametrize("surface", ["_command", "_served"])
def test_a_contract_that_differs_at_one_edge_is_found(
    fuzzer: GridFuzzer, surface: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fuzzer._surfaces, surface, lambda _: [])
    totals = Totals()
    try_case(fuzzer, CASES_PER_SEED, totals)
    assert any(finding.fault.startswith("Python states") for finding in totals.findings)


def test_every_road_has_its_turn() -> None:
    assert {road.name for road in ROADS} == {"alone", "as a whole", "AllOf", "GBNF"}


@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        (r"\w", "é", False),
        ("a$", "a\n", False),
        (r"\s", "\ufeff", True),
        ("^.$", "\u2028", False),
        (r"\bb", "éb", True),
        (r"\d", "\u0663", False),
    ],
)
def test_patterns_are_judged_as_ecma_262_reads_them(pattern: str, text: str, is_match: bool) -> None:
    schema = {"$schema": ADDRESSES["2020-12"], "pattern": pattern}
    judges = Judges(schema, DRAFTS.index("2020-12"), has_formats=False)
    assert judges.is_valid(f'"{text}"'.replace("\n", "\\n")) is is_match
    with pytest.raises(ValueError, match="within a class"):
        ecma(r"[\w-]")


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [(r"\bb", ("bé", "éb", "b", "/b", "/bé", "b@b.co", "éb@b.co")), ("^.$", ("\u2028", "\r", "/", "(", "a", ""))],
)
@pytest.mark.parametrize("name", CHECKED_BY_THE_OTHER)
def test_each_validator_is_corrected_at_its_keyword_whatever_stands_beside_it(
    name: str, pattern: str, texts: tuple[str, ...]
) -> None:
    def judges(schema: dict[str, Any]) -> Judges:
        return Judges({"$schema": ADDRESSES["2020-12"], **schema}, DRAFTS.index("2020-12"), has_formats=True)

    both, parts = judges({"pattern": pattern, "format": name}), (judges({"pattern": pattern}), judges({"format": name}))
    for text in texts:
        document = json.dumps(text, ensure_ascii=False)
        assert both.is_valid(document) == all(part.is_valid(document) for part in parts), text
    assert both.decided == []


def test_validators_that_differ_where_no_row_decides_raise() -> None:
    judges = Judges({"pattern": "é"}, DRAFTS.index("2020-12"), has_formats=False)
    judges._one = lambda _: False
    with pytest.raises(Undecided):
        judges.is_valid('"é"')


@pytest.mark.parametrize(
    "schema",
    [
        {"additionalProperties": {"type": "integer"}, "unevaluatedProperties": False},
        {"allOf": [{"unevaluatedProperties": {"type": "integer"}}], "unevaluatedProperties": False},
    ],
)
def test_a_schema_of_additional_properties_evaluates_them_in_2019_09_too(schema: dict[str, Any]) -> None:
    judges = Judges({"$schema": ADDRESSES["2019-09"], **schema}, DRAFTS.index("2019-09"), has_formats=False)
    assert judges.is_valid('{"a": 1}')
    assert judges.decided == ["what additionalProperties evaluates in 2019-09"]
    assert not judges.is_valid('{"a": "x"}')


@pytest.mark.slow
def test_other_texts_and_orders_of_a_value_have_the_same_value() -> None:
    assert list(spellings(1)) == ["1.0", "1e0", "10E-1"]
    assert list(spellings("ab")) == ['"\\u0061b"']
    assert list(spellings("a\n")) == []
    assert list(orders([{"a": 1, "b": {"c": 1, "d": 2}}]))[:1] == [[{"a": 1, "b": {"d": 2, "c": 1}}]]
    assert len(list(orders({"a": 1, "b": 2, "c": 3}))) == 5
