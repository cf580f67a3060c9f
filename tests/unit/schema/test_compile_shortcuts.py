"""What compiling a schema leaves out or remembers changes nothing: each shortcut against the plain way."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from espalier.automata.lazy.linear import ENDLESS
from espalier.constraints.json_schema.lowered import LoweredSchema
from espalier.constraints.spec import JsonSchema
from espalier.errors import EspalierError, UnsupportedError
from espalier.grammar.regex.parse import parse_regex
from espalier.schema.lazy.rules import SchemaRules
from espalier.schema.lowering.layout import layout
from espalier.schema.normal import graph
from espalier.schema.normal.cases import has_value, led_to, trimmed
from espalier.schema.normal.expand import Expansion, expand
from espalier.schema.patterns.languages import searched
from espalier.schema.patterns.translate import translate
from tests.examples import examples
from tests.schema_fuzz import Maker

DRAFTS = ("2020-12", "2019-09", "draft-07", "draft-06", "draft-04")


def documents(count: int, *only: str) -> list[Any]:
    random = Random(5)
    return [Maker(random, draft=DRAFTS[i % len(DRAFTS)], only=only).document() for i in range(count)]


def shape(form: Expansion) -> list[Any]:
    """Every node that can be reached, with its cases."""
    order = {form.root: None}
    for node in (queue := [form.root]):
        for case in form.cases(node):
            queue += [child for child in led_to(case) if child not in order]
            order |= dict.fromkeys(led_to(case))
    return [(form.pointer(node), form.cases(node)) for node in order]


PATTERNS = r"""
^a$ a ^a a$ ^(a|b)$ ^a|b$ ^a|b ^$ ^ $ ^[^$]$ \^a$ ^a\$ (^a) a^b (?i)^a$ ^a.*$ ^|a | ^a\\$ [\s\S]* ^(?:a|b)+$ ^a{2,3}$
(?:^a)$ ^(?:a$) ^[a-z]+(-[a-z]+)*$ ^\d{4}-\d\d$ ^a$b ^^a$$ ^[\]$]$ ^\x41\u0042$ . ^.$ ^a\n$ ^a||b$ (^|b)a($|c)
"""


@pytest.mark.parametrize("pattern", ["", *PATTERNS.split()])
def test_a_pattern_between_anchors_is_the_pattern_with_them(pattern: str) -> None:
    assert searched(pattern) == parse_regex(f"(?s:.*)(?:{translate(pattern)[0]})(?s:.*)")


@pytest.mark.parametrize("pattern", ["^a[b$", "^*a$", "a)b", "^[]$", r"^\p{Zork}$"])
def test_a_faulty_pattern_between_anchors_names_the_offset_in_the_whole(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match="offset") as whole:
        searched(pattern)
    with pytest.raises(UnsupportedError) as grouped:  # no anchor is taken off here
        searched(f"(?:){pattern}")
    offset = int(str(whole.value).partition("at offset ")[2].partition(" ")[0])
    assert int(str(grouped.value).partition("at offset ")[2].partition(" ")[0]) == offset + len("(?:)")


def test_scalar_schemas_remembered_from_other_schemas_have_the_same_cases() -> None:
    keywords = ("type", "minimum", "maximum", "multipleOf", "minLength", "maxLength", "pattern", "properties", "items")
    for schema in documents(examples(200), *keywords, "anyOf", "allOf", "not", "required", "additionalProperties"):
        for closed in (False, True):
            shapes = []
            for is_first in (True, False):
                if is_first:
                    graph._SCALARS.clear()
                try:
                    shapes.append(shape(expand(schema, closed=closed, format="assert")))
                except EspalierError as error:
                    shapes.append([str(error)])
            assert shapes[0] == shapes[1], schema


def test_remembered_scalar_schemas_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "MAX_SCALARS", 8)
    graph._SCALARS.clear()
    for count in range(100):
        expand({"type": "string", "minLength": count})
    assert 0 < len(graph._SCALARS) <= 8


def test_whether_a_case_has_a_value_is_whether_trimming_leaves_one() -> None:
    random = Random(3)
    for schema in documents(examples(300)):
        try:
            form = expand(schema)
            nodes = shape(form)
        except EspalierError:
            continue
        for _, cases in nodes:
            for case in cases:
                empty = {node for node in led_to(case) if random.random() < 0.4} | {form.false}
                kept = trimmed(case, empty.__contains__, form.false)
                assert has_value(case, empty.__contains__, form.false) is (kept is not None), case


def test_a_schema_is_refused_exactly_where_its_contract_says_checked() -> None:
    """`check` makes no contract where nothing is left out; the contract of the whole schema is the oracle."""
    outcomes = set()
    refused = {"oneOf": [{"maxItems": 2}, {"uniqueItems": True}]}  # few of the drawn ones are
    for schema in (refused, *documents(examples(300))):
        try:
            lowered = LoweredSchema(JsonSchema(schema))
            contract = lowered.contract("alone")
        except EspalierError:
            continue
        messages = []
        for check in (contract.check, lambda lowered=lowered: lowered.check("alone")):
            try:
                check()
                messages.append("")
            except UnsupportedError as error:
                messages.append(str(error))
        assert bool(messages[0]) is bool(messages[1]), schema
        outcomes.add(bool(messages[0]))
    assert outcomes == {False, True}


@pytest.mark.parametrize("whitespace", ["compact", "natural", "flexible", "indented"])
def test_costs_of_rules_are_a_fixpoint(whitespace: str) -> None:
    """Each rule costs what its bodies cost, however the rules refer to one another."""
    other = {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "array", "minItems": 2}, {"const": "stop"}]}
    first = {"type": "object", "required": ["n"], "properties": {"n": {"$ref": "#/$defs/other"}}}
    recursive = {"$defs": {"list": first, "other": other}, "$ref": "#/$defs/list"}
    constant = {"enum": [{"a": 1, "b": [{"x": 1, "y": {}}, 2, {"p": [], "q": {"r": 1, "s": {"t": 1, "u": 2}}}]}]}
    for schema in (recursive, True, {"type": "array", "items": {"$ref": "#"}}, constant, *documents(examples(100))):
        for order in ("schema", "any"):
            try:
                rules = SchemaRules(expand(schema, order=order), layout(whitespace))
            except EspalierError:
                continue
            for rule in rules._queue:
                assert rules._cost_of(rule) == rule.cost < ENDLESS or not rule.bodies, schema


def test_names_that_are_not_declared_are_worked_out_when_a_text_comes_by() -> None:
    names = [f"name{i}" for i in range(50)]
    rules = SchemaRules(expand({"type": "object", "properties": dict.fromkeys(names, True)}), layout("compact"))
    (name,) = [name for name in rules._by_name if name.startswith("u") and name[1:].isdecimal()][:1]
    before = len(rules._explored)
    assert rules.cost_of(name) == 2  # the empty name
    assert len(rules._explored) > before
    assert rules.start_of(name) is rules.start_of(name)
