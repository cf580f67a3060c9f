"""A tool whose one argument is a text of a grammar: `{"input": "…"}`, the schema of `input` with GBNF under `x-gbnf`.

A JSON schema cannot say that, so the schema is converted with a constant in the text's place, and the grammar, its
characters as JSON spells them, replaces the constant. It knows no wire format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from espalier.errors import GrammarError
from espalier.grammar.ast import Grammar, Literal, Node, Rule, RuleRef, fold, seq
from espalier.grammar.parser import parse
from espalier.grammar.rewrite import portable
from espalier.schema.lowering.rulebook import BASICS, RuleBook, SchemaGrammar

ARGUMENT, KEYWORD = "input", "x-gbnf"
MARK = "the-text-of-the-grammar-comes-here"


def grammar_in(schema: Any) -> str | None:
    """The GBNF of the argument, None for every other schema."""
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or set(properties) != {ARGUMENT}:
        return None
    inner = properties[ARGUMENT]
    keyword = inner.get(KEYWORD) if isinstance(inner, Mapping) else None
    return keyword if isinstance(keyword, str) else None


def with_mark(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with a constant in the place of the argument."""
    return {**schema, "properties": {ARGUMENT: {"const": MARK}}}


def with_grammar(converted: SchemaGrammar, gbnf: str) -> SchemaGrammar:
    """The converted schema of `with_mark`, the grammar in the place of the constant. Raises GrammarError."""
    book = RuleBook()
    parsed = portable(parse(gbnf))
    bodies = {name: book.spelled(rule.body) for name, rule in parsed.rules.items()}
    rules = {name: rule.body for name, rule in book.grammar(Literal(MARK)).rules.items() if name != "root"}
    names = {name: name if name in BASICS else f"{ARGUMENT}-of-{name}" for name in rules}
    own = {name: f"{ARGUMENT}-{name}" for name in bodies}

    def own_names(node: Node, parts: list[Node]) -> Node:
        if isinstance(node, RuleRef):
            return RuleRef(own.get(node.name) or names[node.name])
        return node.with_children(parts) if parts else node

    text_rules = [Rule(own[name], fold(body, own_names)) for name, body in bodies.items()]
    text_rules += [Rule(names[name], fold(body, own_names)) for name, body in rules.items()]

    def placed(node: Node, parts: list[Node]) -> Node:
        if isinstance(node, Literal) and MARK in node.text:
            before, _, after = node.text.partition(MARK)
            text = RuleRef(own[parsed.root])
            return seq(*(Literal(part) if isinstance(part, str) else part for part in (before, text, after) if part))
        return node.with_children(parts) if parts else node

    argument_rules = [Rule(name, fold(rule.body, placed)) for name, rule in converted.grammar.rules.items()]
    if not any(
        isinstance(inner, RuleRef) and inner.name == own[parsed.root]
        for rule in argument_rules
        for inner in _nodes(rule.body)
    ):
        raise GrammarError("the grammar of the text has no place in the call")
    return replace(converted, grammar=Grammar.of([*argument_rules, *text_rules], root=converted.grammar.root))


def _nodes(node: Node) -> list[Node]:
    return fold(node, lambda parent, parts: [parent, *(inner for part in parts for inner in part)])
