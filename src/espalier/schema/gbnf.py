"""Writes the grammar of a schema as GBNF text for llama.cpp, each rule under a comment with its JSON pointer.

    to_gbnf(expand({"type": "integer"}))      # the schema itself
                                              root ::= integer
                                              integer ::= "0" | "-"? [1-9] [0-9]{0,19}

`lowering/convert.py` makes the grammar; this module only refuses what a text cannot enforce, names the start rule and
prints. It knows neither keywords of JSON Schema nor matching.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Protocol, runtime_checkable

from espalier.errors import SpecError, UnsupportedError
from espalier.grammar.ast import Grammar, Node, Rule, RuleRef, fold
from espalier.grammar.json_mode import JsonWhitespace
from espalier.grammar.printer import print_rule
from espalier.grammar.rewrite import portable
from espalier.schema.contract import Contract
from espalier.schema.form import NormalForm
from espalier.schema.lowering.convert import convert
from espalier.schema.lowering.notation import DocumentStyle
from espalier.schema.lowering.rulebook import SchemaGrammar

RULE_NAME = re.compile(r"[A-Za-z0-9-]+")


@runtime_checkable
class FormWithContract(Protocol):
    """NormalForm with a contract: what was left out of the schema."""

    @property
    def contract(self) -> Contract: ...


def to_gbnf(
    form: NormalForm,
    *,
    whitespace: JsonWhitespace = "natural",
    indent: int = 2,
    separators: tuple[str, str] | None = None,
    style: DocumentStyle = "json",
) -> str:
    """The grammar of `convert` as GBNF text for llama.cpp.

    Raises what `convert` raises, and UnsupportedError for a keyword that the grammar cannot enforce or that the form
    left out.
    """
    if isinstance(form, FormWithContract):
        form.contract.check()
    converted = convert(form, whitespace=whitespace, indent=indent, separators=separators, style=style)
    if converted.gaps:
        first = converted.gaps[0]
        more = f", and {len(converted.gaps) - 1} more" if len(converted.gaps) > 1 else ""
        raise UnsupportedError(
            f"{first.keyword} at {first.pointer or 'the top'} cannot be enforced: {first.text}{more}"
        )
    return printed(converted)


def renamed(converted: SchemaGrammar, root: str) -> SchemaGrammar:
    """The same grammar with another name for its start rule. Raises SpecError for one that llama.cpp does not read, or
    that another rule has."""
    grammar = converted.grammar
    if root == grammar.root:
        return converted
    if not RULE_NAME.fullmatch(root):
        raise SpecError(f"{root!r} is no name of a rule", hint="letters, digits and -", field="root")
    if root in grammar.rules:
        raise SpecError(f"another rule is called {root!r}", hint="choose another name", field="root")

    def visit(node: Node, parts: list[Node]) -> Node:
        if isinstance(node, RuleRef) and node.name == grammar.root:
            return RuleRef(root, node.position)
        return node.with_children(parts) if parts else node

    rules = [
        Rule(root if rule.name == grammar.root else rule.name, fold(rule.body, visit), rule.position)
        for rule in grammar.rules.values()
    ]
    pointers = {root if name == grammar.root else name: pointer for name, pointer in converted.pointers.items()}
    return replace(converted, grammar=Grammar.of(rules, root=root, source=grammar.source), pointers=pointers)


def printed(converted: SchemaGrammar) -> str:
    """The grammar as GBNF text, each rule under a comment with its JSON pointer."""
    lines: list[str] = []
    for rule in portable(converted.grammar, root=converted.grammar.root).rules.values():
        pointer = converted.pointers.get(rule.name)
        if pointer is not None:
            lines.append(f"# {_on_one_line(pointer)}" if pointer else "# the schema itself")
        lines.append(print_rule(rule))
    return "\n".join(lines) + "\n"


def _on_one_line(pointer: str) -> str:
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in pointer)
