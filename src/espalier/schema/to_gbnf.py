"""A schema's normal form as a grammar: its texts are the schema's documents, each in one spelling.

Where the grammar says less than the schema (a spelling that is left out) there is a note; where it says more there is
a gap, and whoever uses the grammar must refuse or check. It knows nothing of JSON Schema's keywords and of matching.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, assert_never, runtime_checkable

from espalier.automata.dfa import Dfa
from espalier.errors import GrammarError, LimitExceeded, SchemaError, UnsupportedError
from espalier.grammar.analysis import components
from espalier.grammar.ast import NEVER, Grammar, Literal, Node, Rule, RuleRef, postorder
from espalier.grammar.json_mode import INDENTED_DEPTH, JsonWhitespace
from espalier.grammar.printer import print_rule
from espalier.grammar.rewrite import portable, trim
from espalier.schema.arrays import Arrays
from espalier.schema.contract import Contract
from espalier.schema.dfa_rules import MAX_STATES, dfa_rules
from espalier.schema.layout import layout
from espalier.schema.linear import choice
from espalier.schema.numbers import spelled
from espalier.schema.objects import Objects, Place
from espalier.schema.rulebook import BASICS, Remark, RuleBook, one_of
from espalier.schema.shape import Array, Boolean, Case, NodeId, Null, Number, Object, Shapes, String, Values
from espalier.schema.spelling import literals
from espalier.schema.strings import Strings

MAX_PARTS = 20_000
STRUCTURE = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Segments of a pointer that say nothing in a rule's name."""

MANY_VALUES = 5_000
"""More values than this share their beginnings and ends, if that makes few enough rules."""

MANY_NODES = 40
"""A range of numbers that takes more than this is a rule of its own, for all that have it."""


@runtime_checkable
class Contracted(Protocol):
    """Shapes that know what they left out of the schema."""

    @property
    def contract(self) -> Contract: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """grammar: without dead ends. pointers: by rule, where in the schema it comes from. notes: what is allowed by the
    schema and not by the grammar. gaps: what the schema demands and the grammar does not; without gaps every text is a
    document of the schema."""

    grammar: Grammar
    pointers: dict[str, str]
    notes: tuple[Remark, ...]
    gaps: tuple[Remark, ...]


def convert(
    shapes: Shapes,
    *,
    whitespace: JsonWhitespace = "natural",
    indent: int = 2,
    separators: tuple[str, str] | None = None,
) -> Converted:
    """The grammar of a schema's documents.

    whitespace: as in `json_grammar`. separators: regular expressions for what stands between items and after keys,
    instead of a style.

    Raises SchemaError if no document satisfies the schema, SpecError naming a field, and what `shapes` raises.
    """
    return _Conversion(shapes, whitespace, indent, separators).run()


def to_gbnf(
    shapes: Shapes,
    *,
    whitespace: JsonWhitespace = "natural",
    indent: int = 2,
    separators: tuple[str, str] | None = None,
) -> str:
    """The same as text that llama.cpp takes, with the place in the schema above each rule.

    Raises as `convert`, and UnsupportedError for what no grammar can keep, or what the shapes left out themselves.
    """
    if isinstance(shapes, Contracted):
        shapes.contract.check()
    found = convert(shapes, whitespace=whitespace, indent=indent, separators=separators)
    if found.gaps:
        first = found.gaps[0]
        more = f", and {len(found.gaps) - 1} more" if len(found.gaps) > 1 else ""
        raise UnsupportedError(
            f"{first.keyword} at {first.pointer or 'the top'} cannot be enforced: {first.text}{more}"
        )
    return printed(found)


def printed(converted: Converted) -> str:
    """The grammar as text, with the place in the schema above each rule."""
    lines: list[str] = []
    for rule in portable(converted.grammar).rules.values():
        pointer = converted.pointers.get(rule.name)
        if pointer is not None:
            lines.append(f"# {_on_one_line(pointer)}" if pointer else "# the schema itself")
        lines.append(print_rule(rule))
    return "\n".join(lines) + "\n"


def _on_one_line(pointer: str) -> str:
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in pointer)


class _Conversion:
    """Nodes wait in a queue for their rules, so nothing recurses however deep a schema is."""

    def __init__(self, shapes: Shapes, whitespace: str, indent: int, separators: tuple[str, str] | None) -> None:
        self._shapes = shapes
        self._book = book = RuleBook()
        self._layout = style = layout(whitespace, indent=indent, separators=separators, run=RuleRef("space"))
        if whitespace == "flexible" and separators is None:
            book.basic("space")
        self._strings = Strings(book)
        self._objects = Objects(book=book, strings=self._strings, layout=style, value=self._value, cases=shapes.cases)
        self._arrays = Arrays(book=book, layout=style, value=self._value, cases=shapes.cases)
        self._names: dict[tuple[NodeId, int], str] = {(shapes.root, 0): "root"}
        self._waiting: list[tuple[NodeId, int]] = [(shapes.root, 0)]
        book.pointers["root"] = shapes.pointer(shapes.root)
        self._numbers: dict[Number, Node] = {}
        self._recursive: frozenset[NodeId] | None = None
        self._bodies: dict[str, Node] = {}

    def run(self) -> Converted:
        root = self._shapes.root
        for node, depth in self._waiting:  # grows as nodes are mentioned
            if len(self._waiting) > MAX_PARTS:
                raise LimitExceeded(
                    f"the schema has more than {MAX_PARTS} parts, which is too many for a grammar",
                    hint="share what is alike with $ref",
                )
            name = self._names[node, depth]
            place = Place(base=name, pointer=self._shapes.pointer(node), depth=depth)
            self._bodies[name] = choice([self._case(case, place) for case in self._shapes.cases(node)])
        body = self._bodies.pop("root")
        for name, rule in self._bodies.items():
            self._book.add(name, rule)
        try:
            grammar = trim(self._book.grammar(body))
        except GrammarError:
            raise SchemaError("no document satisfies it", pointer=self._shapes.pointer(root)) from None
        rules = sorted(grammar.rules.values(), key=self._rank)
        return Converted(
            grammar=Grammar.of(rules),
            pointers={name: pointer for name, pointer in self._book.pointers.items() if name in grammar.rules},
            notes=tuple(self._book.notes),
            gaps=tuple(self._book.gaps),
        )

    def _rank(self, rule: Rule) -> int:
        """The root first, what is not of the schema last."""
        return 0 if rule.name == "root" else 2 if rule.name in BASICS else 1

    def _value(self, node: NodeId, depth: int) -> Node:
        """The rule for a node; NEVER for what cannot be."""
        if node == self._shapes.false or not self._shapes.cases(node):
            return NEVER
        if depth > INDENTED_DEPTH and node in self._loops():
            text = f"at most {INDENTED_DEPTH} levels where the schema refers back to itself"
            self._book.note(self._shapes.pointer(node), "whitespace", text)
            return self._shallow(node, depth)
        if (node, depth) not in self._names:
            pointer = self._shapes.pointer(node)
            self._names[node, depth] = self._book.name(_wanted(pointer), pointer)
            self._waiting.append((node, depth))
        return RuleRef(self._names[node, depth])

    def _shallow(self, node: NodeId, depth: int) -> Node:
        """What of a node holds no other."""
        cases = [case for case in self._shapes.cases(node) if not isinstance(case, Array | Object)]
        place = Place(base=_wanted(self._shapes.pointer(node)), pointer=self._shapes.pointer(node), depth=depth)
        return choice([self._case(case, place) for case in cases])

    def _loops(self) -> frozenset[NodeId]:
        """The nodes that lead back to themselves."""
        if self._recursive is None:
            edges: dict[str, tuple[str, ...]] = {}
            todo = [self._shapes.root]
            while todo:
                node = todo.pop()
                if str(node) not in edges:
                    inner = [child for case in self._shapes.cases(node) for child in _children(case)]
                    edges[str(node)] = tuple(dict.fromkeys(map(str, inner)))
                    todo += inner
            groups = components(edges)
            loops = [g for g in groups if len(g) > 1 or g[0] in edges[g[0]]]
            self._recursive = frozenset(int(node) for group in loops for node in group)
        return self._recursive

    def _case(self, case: Case, place: Place) -> Node:
        match case:
            case Values():
                return self._values(case, place)
            case Null():
                return self._book.basic("null")
            case Boolean():
                return self._book.basic("boolean")
            case Number():
                return self._number(case, place)
            case String():
                return self._strings.node(case, place.base, place.pointer)
            case Array():
                return self._arrays.node(case, place)
            case Object():
                return self._objects.node(case, place)
            case _:
                assert_never(case)

    def _values(self, case: Values, place: Place) -> Node:
        texts, others = literals(case.values, self._layout, place.depth)
        if len(texts) > MANY_VALUES:
            words = Dfa.of_words(texts)
            if len(words) <= MAX_STATES:
                others.append(self._of_dfa(words, place))
                return choice(others)
        return choice([*map(Literal, texts), *others])

    def _of_dfa(self, dfa: Dfa, place: Place) -> Node:
        """What an automaton accepts, in no other spelling. Raises LimitExceeded for more than MAX_STATES."""
        body, rules = dfa_rules(dfa, one_of, self._book.fresh(place.base, place.pointer))
        self._book.add_all(rules)
        return body

    def _number(self, case: Number, place: Place) -> Node:
        if case in self._numbers:
            return self._numbers[case]
        found = spelled(case)
        self._book.note("", "number spelling", found.note)
        for keyword, text in found.gaps:
            self._book.gap(place.pointer, keyword, text)
        if isinstance(found.node, str):
            return self._book.basic(found.node)
        node = self._of_dfa(found.node, place) if isinstance(found.node, Dfa) else found.node
        if not found.gaps and sum(1 for _ in postorder(node)) > MANY_NODES:
            node = self._book.add(self._book.name(f"{place.base}-number", place.pointer), node)
            self._numbers[case] = node
        return node


def _children(case: Case) -> list[NodeId]:
    match case:
        case Array():
            inner = [node for one in case.contains for node in (one.match, one.other) if node is not None]
            return [*case.prefix, case.items, *inner]
        case Object():
            return [*(prop.node for prop in case.properties), *(group.node for group in case.rest)]
        case _:
            return []


def _wanted(pointer: str) -> str:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    return "-".join(part for part in parts if part not in STRUCTURE)[-48:] or "value"
