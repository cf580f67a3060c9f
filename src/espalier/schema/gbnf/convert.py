"""Converts a schema's normal form to a GBNF grammar whose texts are the schema's documents, each value in one spelling.

    to_gbnf(expand({"type": "integer"}))      # the schema itself
                                              root ::= integer
                                              integer ::= "0" | "-"? [1-9] [0-9]{0,19}

A grammar may allow less than the schema (spellings that are left out): then there is a note. It may allow more: then
there is a gap, and the caller must refuse the schema or check the finished text. This module knows neither keywords of
JSON Schema nor matching; the work is in `node_rules.py`.
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
from espalier.schema.gbnf.bare import Bare, BareRules
from espalier.schema.gbnf.calls import CallRules
from espalier.schema.gbnf.layout import layout
from espalier.schema.gbnf.node_rules import SPACE, NodeRules
from espalier.schema.gbnf.notation import CONSTANTS, STYLES, DocumentStyle
from espalier.schema.gbnf.rulebook import Converted
from espalier.schema.gbnf.tagged import TaggedRules, Tags

RULE_NAME = re.compile(r"[A-Za-z0-9-]+")
RULES: dict[DocumentStyle, type[NodeRules]] = {"json": NodeRules, "python": CallRules}


@runtime_checkable
class Contracted(Protocol):
    """NormalForm with a contract: what was left out of the schema."""

    @property
    def contract(self) -> Contract: ...


def convert(
    form: NormalForm,
    *,
    whitespace: JsonWhitespace = "natural",
    indent: int = 2,
    separators: tuple[str, str] | None = None,
    style: DocumentStyle | Tags | Bare = "json",
) -> Converted:
    """The grammar of a schema's documents.

    whitespace: as in `json_grammar`. indent: spaces a level, where it is `indented`. separators: regular expressions
    for the text between items and the text after keys, instead of `whitespace`. style: `python` writes the arguments of
    a call, `(city="Paris", days=3)`: the top must be an object, names that are not identifiers are left out, and
    `indented` is refused. `Tags` writes each argument between tags, `Bare` in
    Gemma's notation.

    Raises SchemaError if no document satisfies the schema, SpecError naming a field, LimitExceeded, and what `form`
    raises.
    """
    if isinstance(style, Tags):
        return TaggedRules(form, layout(whitespace, indent=indent, separators=separators, run=SPACE), style).run()
    if isinstance(style, Bare):
        return BareRules(form, layout(whitespace, indent=indent, separators=separators, run=SPACE), style).run()
    if style not in STYLES:
        raise SpecError(f"unknown style {style!r}", hint=f"one of: {', '.join(STYLES)}", field="style")
    if style == "python" and whitespace == "indented" and separators is None:
        raise SpecError("arguments of a call are not indented", hint="natural, compact or flexible", field="whitespace")
    written = layout(whitespace, indent=indent, separators=separators, run=SPACE)
    return RULES[style](form, written, CONSTANTS[style]).run()


def to_gbnf(
    form: NormalForm,
    *,
    whitespace: JsonWhitespace = "natural",
    indent: int = 2,
    separators: tuple[str, str] | None = None,
    style: DocumentStyle = "json",
) -> str:
    """The same grammar as GBNF text for llama.cpp, each rule under a comment with its JSON pointer.

    Raises what `convert` raises, and UnsupportedError for a keyword that the grammar cannot enforce or that the form
    left out.
    """
    if isinstance(form, Contracted):
        form.contract.check()
    found = convert(form, whitespace=whitespace, indent=indent, separators=separators, style=style)
    if found.gaps:
        first = found.gaps[0]
        more = f", and {len(found.gaps) - 1} more" if len(found.gaps) > 1 else ""
        raise UnsupportedError(
            f"{first.keyword} at {first.pointer or 'the top'} cannot be enforced: {first.text}{more}"
        )
    return printed(found)


def renamed(converted: Converted, root: str) -> Converted:
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


def printed(converted: Converted) -> str:
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
