"""Handmade normal forms, their meaning in plain Python, and texts judged by the automaton of a grammar."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.network import build_network
from espalier.constraints.matching.automaton import compile_network
from espalier.constraints.spec import Gbnf
from espalier.grammar.ast import Grammar
from espalier.schema.form import Array, Boolean, Case, NodeId, Null, NumberForm, Object, String, Values
from espalier.schema.lowering.convert import convert
from espalier.schema.lowering.rulebook import SchemaGrammar
from espalier.schema.patterns.ecma import found
from espalier.schema.read.values import key
from espalier.tokens.trie import build_trie
from espalier.tokens.vocab import Vocab

VOCAB = Vocab.bytes()
TRIE = build_trie(VOCAB.tokens)


class Hand:
    """Node 0 is the root, -1 is false."""

    root = 0
    false = -1

    def __init__(self, nodes: Mapping[NodeId, Sequence[Case]], pointers: Mapping[NodeId, str] | None = None) -> None:
        self.nodes = nodes
        self.pointers = pointers or {}

    def cases(self, node: NodeId) -> tuple[Case, ...]:
        return () if node == self.false else tuple(self.nodes[node])

    def pointer(self, node: NodeId) -> str:
        return self.pointers.get(node, f"/properties/n{node}" if node else "")


def one(*cases: Case) -> Hand:
    return Hand({0: cases})


class Accepts:
    """Whether a text is in a grammar's language, by the automaton that decodes with it."""

    def __init__(self, found: SchemaGrammar | Grammar) -> None:
        self.converted = found
        grammar = found if isinstance(found, Grammar) else found.grammar
        network = build_network(grammar)
        if network.is_regular:
            dfa = Dfa.of_network(network)
            self._accepts: Callable[[bytes], bool] = dfa.accepts
        else:
            self._accepts = compile_network(network, Gbnf('root ::= ""'), VOCAB, TRIE).accepts

    def __call__(self, text: str) -> bool:
        return self._accepts(text.encode())


def accepts(shapes: Hand, **options: Any) -> Accepts:
    found = convert(shapes, **options)
    assert not found.gaps
    return Accepts(found)


def dumps(value: Any, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, **options)


# What a normal form means


def fits(shapes: Hand, value: Any, node: NodeId = 0) -> bool:
    return any(JUDGES[type(case)](shapes, case, value) for case in shapes.cases(node))


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | Fraction) and not isinstance(value, bool)


def fits_number(shapes: Hand, case: NumberForm, value: Any) -> bool:
    if not is_number(value):
        return False
    exact = Fraction(str(value)) if isinstance(value, float) else Fraction(value)
    low, high = case.minimum, case.maximum
    return (
        not (case.integer and exact.denominator != 1)
        and not (low is not None and (exact < low or (case.exclusive_minimum and exact == low)))
        and not (high is not None and (exact > high or (case.exclusive_maximum and exact == high)))
        and all(exact % factor == 0 for factor in case.multiples)
        and all(exact % factor != 0 for factor in case.not_multiples)
        and exact not in case.excluded
    )


def fits_string(shapes: Hand, case: String, value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) >= case.min_length
        and (case.max_length is None or len(value) <= case.max_length)
        and all(found(pattern, value) for pattern in case.patterns)
        and not any(found(pattern, value) for pattern in case.not_patterns)
        and value not in case.excluded
    )


def fits_array(shapes: Hand, case: Array, value: Any) -> bool:
    if not isinstance(value, list) or len(value) < case.min_items:
        return False
    if case.max_items is not None and len(value) > case.max_items:
        return False
    nodes = [*case.prefix[: len(value)], *[case.items] * (len(value) - len(case.prefix))]
    if not all(fits(shapes, item, node) for item, node in zip(value, nodes, strict=True)):
        return False
    for wanted in case.contains:
        count = sum(fits(shapes, item, wanted.match) for item in value[wanted.first :])
        if count < wanted.least or (wanted.most is not None and count > wanted.most):
            return False
    return not case.unique or len({key(item) for item in value}) == len(value)


def fits_object(shapes: Hand, case: Object, value: Any) -> bool:
    if not isinstance(value, dict) or len(value) < case.min_properties:
        return False
    if case.max_properties is not None and len(value) > case.max_properties:
        return False
    declared = {prop.name: prop for prop in case.properties}
    if any(prop.required and prop.name not in value for prop in case.properties):
        return False
    met = 0
    for name, inner in value.items():
        if name in declared:
            if not fits(shapes, inner, declared[name].node):
                return False
            continue
        groups = [
            group
            for group in case.rest
            if fits_string(shapes, String(patterns=group.patterns, not_patterns=group.not_patterns), name)
            and (group.names is None or fits(shapes, name, group.names))
            and fits(shapes, inner, group.node)
        ]
        if not groups:
            return False
        for group in groups:
            met |= group.meets
    return met == (1 << len(case.demands)) - 1


JUDGES: dict[type[Case], Any] = {
    Values: lambda _, case, value: key(value) in {key(other) for other in case.values},
    Null: lambda _, case, value: value is None,
    Boolean: lambda _, case, value: isinstance(value, bool),
    NumberForm: fits_number,
    String: fits_string,
    Array: fits_array,
    Object: fits_object,
}
