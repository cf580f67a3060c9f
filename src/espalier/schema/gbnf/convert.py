"""A schema's normal form as a grammar: its texts are the schema's documents, each in one spelling.

Where the grammar says less than the schema (a spelling that is left out) there is a note; where it says more there is
a gap, and whoever uses the grammar must refuse or check. It knows nothing of JSON Schema's keywords and of matching.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, assert_never, runtime_checkable

from espalier.automata.languages.dfa import Dfa
from espalier.errors import GrammarError, LimitExceeded, SchemaError, SpecError, UnsupportedError
from espalier.grammar.analysis import components
from espalier.grammar.ast import NEVER, Grammar, Literal, Node, Rule, RuleRef, postorder
from espalier.grammar.json_mode import INDENTED_DEPTH, JsonWhitespace
from espalier.grammar.printer import print_rule
from espalier.grammar.rewrite import portable, trim
from espalier.schema.contract import Contract
from espalier.schema.form import Array, Boolean, Case, NodeId, Null, Number, Object, Shapes, String, Values
from espalier.schema.gbnf.arguments import Arguments, constant_arguments
from espalier.schema.gbnf.arrays import Arrays
from espalier.schema.gbnf.dfa_rules import MAX_STATES, dfa_rules
from espalier.schema.gbnf.layout import Layout, layout
from espalier.schema.gbnf.linear import choice
from espalier.schema.gbnf.notation import CONSTANTS, STYLES, Constants, DocumentStyle
from espalier.schema.gbnf.numbers import spelled
from espalier.schema.gbnf.objects import Objects, Place
from espalier.schema.gbnf.rulebook import BASICS, Remark, RuleBook, one_of
from espalier.schema.gbnf.spelling import literals
from espalier.schema.gbnf.strings import Strings
from espalier.schema.pointers import split
from espalier.time_limit import check as check_time

MAX_PARTS = 20_000
STRUCTURE = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Segments of a pointer that say nothing in a rule's name."""

SPACE = RuleRef("space")
"""A run of whitespace, where the layout has any."""

ONLY_OBJECTS = "only objects can be written as arguments"

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
    style: DocumentStyle = "json",
) -> Converted:
    """The grammar of a schema's documents.

    whitespace: as in `json_grammar`. separators: regular expressions for what stands between items and after keys,
    instead of a style. style: `python` writes the arguments of a call, `(city="Paris", days=3)`, and so objects only at
    the top: names that are no identifiers are left out, and `indented` is not to be had.

    Raises SchemaError if no document satisfies the schema, SpecError naming a field, and what `shapes` raises.
    """
    if style not in STYLES:
        raise SpecError(f"unknown style {style!r}", hint=f"one of: {', '.join(STYLES)}", field="style")
    if style == "python" and whitespace == "indented" and separators is None:
        raise SpecError("arguments of a call are not indented", hint="natural, compact or flexible", field="whitespace")
    written = layout(whitespace, indent=indent, separators=separators, run=SPACE)
    return _STYLES[style](shapes, written, CONSTANTS[style]).run()


def to_gbnf(
    shapes: Shapes,
    *,
    whitespace: JsonWhitespace = "natural",
    indent: int = 2,
    separators: tuple[str, str] | None = None,
    style: DocumentStyle = "json",
) -> str:
    """The same as text that llama.cpp takes, with the place in the schema above each rule.

    Raises as `convert`, and UnsupportedError for what no grammar can keep, or what the shapes left out themselves.
    """
    if isinstance(shapes, Contracted):
        shapes.contract.check()
    found = convert(shapes, whitespace=whitespace, indent=indent, separators=separators, style=style)
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

    def __init__(self, shapes: Shapes, written: Layout, constants: Constants) -> None:
        self._shapes = shapes
        self._book = book = RuleBook(constants)
        self._layout = written
        if written.blank == SPACE:
            book.basic("space")
        self._strings = Strings(book)
        self._objects = Objects(book=book, strings=self._strings, layout=written, value=self._value, cases=shapes.cases)
        self._arrays = Arrays(book=book, layout=written, value=self._value, cases=shapes.cases)
        self._names: dict[tuple[NodeId, int], str] = {}
        self._waiting: list[tuple[NodeId, int]] = []
        book.pointers["root"] = shapes.pointer(shapes.root)
        self._numbers: dict[Number, Node] = {}
        self._recursive: frozenset[NodeId] | None = None
        self._bodies: dict[str, Node] = {}

    def run(self) -> Converted:
        root = self._shapes.root
        body = self._root(Place(base="root", pointer=self._shapes.pointer(root), depth=0))
        for node, depth in self._waiting:  # grows as nodes are mentioned
            check_time()
            if len(self._waiting) > MAX_PARTS:
                raise LimitExceeded(
                    f"the schema has more than {MAX_PARTS} parts, which is too many for a grammar",
                    hint="share what is alike with $ref",
                )
            name = self._names[node, depth]
            place = Place(base=name, pointer=self._shapes.pointer(node), depth=depth)
            self._bodies[name] = choice([self._case(case, place) for case in self._shapes.cases(node)])
        body = self._bodies.pop("root", body)
        for name, rule in self._bodies.items():
            self._book.add(name, rule)
        try:
            grammar = trim(self._book.grammar(body))
        except GrammarError:
            raise self._nothing() from None
        rules = sorted(grammar.rules.values(), key=self._rank)
        return Converted(
            grammar=Grammar.of(rules),
            pointers={name: pointer for name, pointer in self._book.pointers.items() if name in grammar.rules},
            notes=tuple(self._book.notes),
            gaps=tuple(self._book.gaps),
        )

    def _root(self, place: Place) -> Node:
        """What stands at the top, whose rule is that of the root's node wherever else it comes."""
        self._names[self._shapes.root, 0] = place.base
        self._waiting.append((self._shapes.root, 0))
        return RuleRef(place.base)

    def _nothing(self) -> SchemaError:
        return SchemaError("no document satisfies it", pointer=self._shapes.pointer(self._shapes.root))

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
                check_time()
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
        texts, others = literals(case.values, self._layout, place.depth, self._book.constants)
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


class _Call(_Conversion):
    """The arguments of a call at the top, and what they hold in rules of their own: the root's node is a dict there."""

    def __init__(self, shapes: Shapes, written: Layout, constants: Constants) -> None:
        super().__init__(shapes, written, constants)
        self._arguments = Arguments(
            book=self._book,
            strings=self._strings,
            layout=written,
            value=self._value,
            cases=shapes.cases,
            pointer=shapes.pointer,
            text=self._of_dfa,
        )
        self._refused: list[SchemaError] = []

    def _root(self, place: Place) -> Node:
        return choice([node for case in self._shapes.cases(self._shapes.root) for node in self._calls(case, place)])

    def _calls(self, case: Case, place: Place) -> list[Node]:
        """A case as arguments; what cannot be written is left out, and said."""
        match case:
            case Object():
                try:
                    writable = self._arguments.writable(case, place)
                except SchemaError as error:
                    self._leave_out(error, place)
                    return []
                return [self._arguments.node(writable, place)]
            case Values(values=values):
                return [node for value in values for node in self._constant(value, place)]
            case _:
                self._book.note(place.pointer, "type", ONLY_OBJECTS)
                return []

    def _constant(self, value: Any, place: Place) -> list[Node]:
        if not isinstance(value, dict):
            self._book.note(place.pointer, "type", ONLY_OBJECTS)
            return []
        try:
            return [constant_arguments(value, self._layout, self._book.constants, place.pointer)]
        except SchemaError as error:
            self._leave_out(error, place)
            return []

    def _leave_out(self, error: SchemaError, place: Place) -> None:
        self._refused.append(error)
        self._book.note(place.pointer, "required", f"{error.message}: the objects that need it are left out")

    def _nothing(self) -> SchemaError:
        if self._refused:
            return self._refused[0]
        if Remark(self._shapes.pointer(self._shapes.root), "type", ONLY_OBJECTS) in self._book.notes:
            return SchemaError(
                f"{ONLY_OBJECTS}, and none satisfies it", pointer=self._shapes.pointer(self._shapes.root)
            )
        return super()._nothing()


_STYLES: dict[DocumentStyle, type[_Conversion]] = {"json": _Conversion, "python": _Call}


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
    return "-".join(step for step in split(pointer) if step not in STRUCTURE)[-48:] or "value"
