"""Writes a rule for each node of a schema's normal form: the grammar whose texts are the JSON documents of the schema.

    Object(properties=(Property(name="city", node=3),))      root ::= "{" ("\\"city\\":" city)? "}"
    node 3: String(max_length=9)                             city ::= "\\"" char{0,9} "\\""

Strings, numbers, arrays and objects have modules of their own; this one keeps the queue of nodes, names the rules and
collects the result. It knows neither keywords of JSON Schema nor matching.
"""

from __future__ import annotations

from typing import assert_never

from espalier.automata.languages.dfa import Dfa
from espalier.errors import GrammarError
from espalier.grammar.ast import NEVER, Grammar, Literal, Node, Rule, RuleRef, postorder
from espalier.grammar.rewrite import trim
from espalier.schema.form import Array, Boolean, Case, NodeId, NormalForm, Null, NumberForm, Object, String, Values
from espalier.schema.lowering.arrays import ArrayRules
from espalier.schema.lowering.dfa_rules import MAX_STATES, dfa_rules
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.linear import choice
from espalier.schema.lowering.nodes import NodeLowering
from espalier.schema.lowering.notation import Constants
from espalier.schema.lowering.numbers import spelled
from espalier.schema.lowering.objects import ObjectRules
from espalier.schema.lowering.rulebook import BASICS, RuleBook, RuleContext, SchemaGrammar, one_of
from espalier.schema.lowering.strings import StringRules
from espalier.schema.pointers import split
from espalier.time_limit import check as check_time

STRUCTURE = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Steps of a pointer that are left out of rule names."""
SPACE = RuleRef("space")
"""A run of whitespace, where the layout has any."""
MANY_VALUES = 5_000
"""More values than this are written as an automaton with shared beginnings and ends, if it is small enough."""
MANY_NODES = 40
"""A range of numbers whose expression is larger gets a rule of its own, shared by all uses."""


class NodeRules(NodeLowering):
    """Converts one schema to one grammar. Nodes wait in a queue for their rules, so depth of nesting never recurses."""

    def __init__(self, form: NormalForm, written: Layout, constants: Constants) -> None:
        book = RuleBook(constants)
        super().__init__(form, written, book)
        if written.blank == SPACE:
            book.basic("space")
        self._strings = StringRules(book)
        self._objects = ObjectRules(
            book=book, strings=self._strings, layout=written, value=self._value, cases=form.cases
        )
        self._arrays = ArrayRules(book=book, layout=written, value=self._value, cases=form.cases, members=self._members)
        self._names: dict[tuple[NodeId, int], str] = {}
        self._waiting: list[tuple[NodeId, int]] = []
        book.pointers["root"] = form.pointer(form.root)
        self._numbers: dict[NumberForm, Node] = {}
        self._bodies: dict[str, Node] = {}

    def run(self) -> SchemaGrammar:
        """Raises SchemaError where no document can be written, LimitExceeded, and what the form raises."""
        root = self._form.root
        body = self._root(RuleContext(base="root", pointer=self._form.pointer(root), depth=0))
        for node, depth in self._waiting:  # grows as nodes are mentioned
            check_time()
            self._check_parts(len(self._waiting))
            name = self._names[node, depth]
            context = RuleContext(base=name, pointer=self._form.pointer(node), depth=depth)
            self._bodies[name] = choice([self._case(case, context) for case in self._form.cases(node)])
        body = self._bodies.pop("root", body)
        for name, rule in self._bodies.items():
            self._book.add(name, rule)
        try:
            grammar = trim(self._book.grammar(body))
        except GrammarError:
            raise self._nothing() from None
        rules = sorted(grammar.rules.values(), key=self._rank)
        return SchemaGrammar(
            grammar=Grammar.of(rules),
            pointers={name: pointer for name, pointer in self._book.pointers.items() if name in grammar.rules},
            notes=tuple(self._book.notes),
            gaps=tuple(self._book.gaps),
        )

    def _root(self, context: RuleContext) -> Node:
        """The expression for the whole document: a reference to the rule `root`, which the root's node shares."""
        self._names[self._form.root, 0] = context.base
        self._waiting.append((self._form.root, 0))
        return RuleRef(context.base)

    def _rank(self, rule: Rule) -> int:
        """Sorts rules: the root first, the basic rules last."""
        return 0 if rule.name == "root" else 2 if rule.name in BASICS else 1

    def _value(self, node: NodeId, depth: int) -> Node:
        """A reference to the rule of a node at a depth; NEVER where no value fits."""
        if self._is_never(node):
            return NEVER
        if self._is_too_deep(node, depth):
            return self._shallow(node, depth)
        if (node, depth) not in self._names:
            pointer = self._form.pointer(node)
            self._names[node, depth] = self._book.name(_rule_name(pointer), pointer)
            self._waiting.append((node, depth))
        return RuleRef(self._names[node, depth])

    def _shallow(self, node: NodeId, depth: int) -> Node:
        """The node's scalar cases."""
        cases = [case for case in self._form.cases(node) if not isinstance(case, Array | Object)]
        context = RuleContext(base=_rule_name(self._form.pointer(node)), pointer=self._form.pointer(node), depth=depth)
        return choice([self._case(case, context) for case in cases])

    def _case(self, case: Case, context: RuleContext) -> Node:
        """The expression for one case."""
        match case:
            case Values():
                return self._values(case, context)
            case Null():
                return self._book.basic("null")
            case Boolean():
                return self._book.basic("boolean")
            case NumberForm():
                return self._number(case, context)
            case String():
                return self._strings.node(case, context.base, context.pointer)
            case Array():
                return self._arrays.node(case, context)
            case Object():
                return self._objects.node(case, context)
            case _:
                assert_never(case)

    def _values(self, case: Values, context: RuleContext) -> Node:
        texts, others = self._listed(case, context)
        if len(texts) > MANY_VALUES:
            words = Dfa.of_words(texts)
            if len(words) <= MAX_STATES:
                others.append(self._language(words, context))
                return choice(others)
        return choice([*map(Literal, texts), *others])

    def _language(self, dfa: Dfa, context: RuleContext) -> Node:
        """The language of an automaton over characters as they are written. Raises LimitExceeded above MAX_STATES."""
        body, rules = dfa_rules(dfa, one_of, self._book.fresh(context.base, context.pointer))
        self._book.add_all(rules)
        return body

    def _number(self, case: NumberForm, context: RuleContext) -> Node:
        if case in self._numbers:
            return self._numbers[case]
        number = spelled(case)
        self._book.note("", "number spelling", number.note)
        for keyword, text in number.gaps:
            self._book.gap(context.pointer, keyword, text)
        if number.limit is not None:
            self._book.limit(context.pointer, number.limit)
        if isinstance(number.node, str):
            return self._book.basic(number.node)
        node = self._language(number.node, context) if isinstance(number.node, Dfa) else number.node
        if not number.gaps and sum(1 for _ in postorder(node)) > MANY_NODES:
            node = self._book.add(self._book.name(f"{context.base}-number", context.pointer), node)
            self._numbers[case] = node
        return node


def _rule_name(pointer: str) -> str:
    """A readable rule name: `/properties/city/items` gives `city-items`."""
    return "-".join(step for step in split(pointer) if step not in STRUCTURE)[-48:] or "value"
