"""Automata of objects and arrays that are explored on demand: their shortest end is the one that a search finds."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.automata.lazy.linear import ENDLESS, Linear, State, nearest
from espalier.automata.lazy.table import Table
from espalier.errors import SchemaError
from espalier.grammar.ast import NEVER, Literal, Node, Repeat, RuleRef, fold
from espalier.schema.form import Array, Object
from espalier.schema.lowering.layout import layout
from espalier.schema.lowering.node_rules import NodeRules
from espalier.schema.lowering.notation import JSON
from espalier.schema.lowering.rulebook import RuleContext
from espalier.schema.normal.expand import expand
from tests.examples import examples


def cost(node: Node) -> int:
    """The least number of bytes of an expression; a rule costs the length of its name."""

    def visit(inner: Node, parts: list[int]) -> int:
        match inner:
            case Literal(text):
                return len(text.encode())
            case Repeat(_, low, _):
                return low * parts[0]
            case RuleRef(name):
                return len(name)
            case _ if inner == NEVER:
                return ENDLESS
            case _:
                return sum(parts)

    return fold(node, visit)


def automaton_of(schema: Any, whitespace: str = "natural", order: str = "schema") -> Linear | None:
    """The automaton of the first case of a schema, an object or an array."""
    form = expand(schema, order=order)
    rules = NodeRules(form, layout(whitespace), JSON)
    case, *_ = form.cases(form.root)
    context = RuleContext(base="x", pointer="", depth=0)
    if isinstance(case, Object):
        return rules._objects.automaton(case, context)
    assert isinstance(case, Array)
    return rules._arrays.automaton(case, context)


def reached(automaton: Linear) -> list[State]:
    order = [automaton.start]
    for state in order:
        order += [t for t in dict.fromkeys(target for _, target in automaton.edges(state)) if t not in order]
    return order


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=6))
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"enum": ["x" * len(names)]} for name in names}}
    if names:
        schema["required"] = draw(st.lists(st.sampled_from(names), unique=True))
    schema["additionalProperties"] = draw(st.booleans())
    if draw(st.booleans()):
        schema["minProperties"] = draw(st.integers(0, 7))
    if draw(st.booleans()):
        schema["maxProperties"] = draw(st.integers(0, 7))
    return schema


@settings(max_examples=examples(200))
@given(objects(), st.sampled_from(["natural", "compact", "indented", "flexible"]), st.sampled_from(["schema", "any"]))
def test_the_shortest_end_of_an_object_is_the_one_that_a_search_finds(
    schema: dict[str, Any], whitespace: str, order: str
) -> None:
    try:
        automaton = automaton_of(schema, whitespace, order)
    except SchemaError:
        return  # no object satisfies it
    if automaton is None:
        return
    quick, searched = automaton.least(cost), nearest(automaton, cost)
    for state in reached(automaton):
        assert min(quick(state), ENDLESS) == searched(state), state


def test_a_state_that_cannot_end_costs_more_than_any_text() -> None:
    table = Table(rows=[[(Literal("a"), 1), (Literal("b"), 2)], [], []], ends=[False, True, False])
    found = table.least(cost)
    assert (found(0), found(1)) == (1, 0)
    assert found(2) >= ENDLESS


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "integer"}, "contains": {"const": 3}, "minContains": 2},
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2},
        {"type": "array", "prefixItems": [{"type": "null"}], "minItems": 3},
    ],
)
def test_arrays_say_how_far_the_end_is(schema: Any) -> None:
    automaton = automaton_of(schema)
    assert automaton is not None
    quick, searched = automaton.least(cost), nearest(automaton, cost)
    assert all(quick(state) == searched(state) for state in reached(automaton))
    assert 0 < quick(automaton.start) < ENDLESS


def test_an_object_of_many_properties_is_described_without_being_explored() -> None:
    names = [f"p{i}" for i in range(9_000)]
    automaton = automaton_of({"type": "object", "properties": {name: {"type": "null"} for name in names}})
    assert automaton is not None
    assert automaton.least(cost)(automaton.start) == len("{}")
    (_, inside), *_ = automaton.edges(automaton.start)
    assert len(automaton.edges(inside)) == 2
