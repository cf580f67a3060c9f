"""Writes a schema as arguments between tags: `<parameter=city>` newline `Paris` newline `</parameter>` for the document
`{"city": "Paris"}`.

A string is raw text without the tags that may follow it; any other value is JSON. Where an argument may be either, a
text that would be read as JSON is left out. Only objects can be written so. It does not know how calls are parsed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

from espalier.automata.languages.algebra import both, every_text, language, without
from espalier.automata.languages.dfa import Dfa
from espalier.automata.phrases.occurrences import search
from espalier.errors import LimitExceeded, SchemaError
from espalier.grammar.ast import EMPTY, NEVER, Literal, Node, Repeat
from espalier.grammar.regex.parse import parse_regex
from espalier.schema.form import Case, NodeId, NormalForm, Object, Property, Rest, String, Values
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.linear import choice, join, join_all
from espalier.schema.lowering.node_rules import NodeRules
from espalier.schema.lowering.notation import JSON
from espalier.schema.lowering.objects import ObjectRules
from espalier.schema.lowering.rulebook import RuleContext
from espalier.schema.lowering.spelling import literal
from espalier.schema.lowering.strings import MAX_MINIMISED, StringRules
from espalier.schema.pointers import below

Types = frozenset[str]
BLANKS = r"[ \t\n\r]*"
LOOKS = {
    "null": f"{BLANKS}null{BLANKS}",
    "boolean": f"{BLANKS}(true|false){BLANKS}",
    "number": f"{BLANKS}-?(0|[1-9][0-9]*)(\\.[0-9]+)?([eE][+-]?[0-9]+)?{BLANKS}",
    "array": f"{BLANKS}\\[(?s:.*)",
    "object": f"{BLANKS}\\{{(?s:.*)",
}
"""What a text must not look like where JSON of this type is possible. Values that nest are no regular language, so no
text may begin like them."""
LINE_END = Repeat(Literal("\n"), 0, 1)
TWICE = "an undeclared name may come twice, and the last one counts"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """key, assign, close: the text before an argument's name, between it and the value, and after the value; line ends
    within `assign` are optional, those at its end and at the beginning of `close` are not. text_ends: what no raw text
    contains. types: by declared name, the types that a value may have for the parser; `every` holds for other names."""

    key: str
    assign: str
    close: str
    text_ends: tuple[str, ...]
    types: tuple[tuple[str, Types], ...]
    every: Types

    @property
    def after_name(self) -> str:
        """What ends a name."""
        return self.assign.split()[0]


class TaggedRules(NodeRules):
    """Converts the root to arguments between tags, and what is inside a value that is no string to JSON."""

    def __init__(self, form: NormalForm, written: Layout, tags: Tags) -> None:
        super().__init__(form, written, JSON)
        self._tags = tags
        self._types = dict(tags.types)
        self._raw_nodes: dict[tuple[NodeId, Types], Node] = {}
        self._arguments = TagRules(
            book=self._book,
            strings=self._strings,
            layout=Layout(
                by_depth=False,
                colon=_lines(tags.assign),
                blank=EMPTY,
                first=lambda _: EMPTY,
                between=lambda _: LINE_END,
                last=lambda _: EMPTY,
            ),
            value=lambda node, _: self._raw(node, tags.every),
            cases=form.cases,
            tags=tags,
            of_name=lambda prop: self._raw(prop.node, self._types.get(prop.name, tags.every)),
            pointer=form.pointer,
            text=self._language,
        )
        self._refused: list[SchemaError] = []

    def _root(self, context: RuleContext) -> Node:
        return choice([node for case in self._form.cases(self._form.root) for node in self._objects_of(case, context)])

    def _objects_of(self, case: Case, context: RuleContext) -> list[Node]:
        try:
            if isinstance(case, Object):
                return [self._arguments.node(self._arguments.writable(case, context), context)]
            if isinstance(case, Values):
                return [node for value in case.values for node in self._constant(value, case, context)]
        except SchemaError as error:
            self._leave_out(error, context)
        return []

    def _constant(self, value: Any, case: Values, context: RuleContext) -> list[Node]:
        """One constant object."""
        if not isinstance(value, dict):
            return []
        members: list[Node] = []
        for name, inner in value.items():
            if self._tags.after_name in name:
                self._leave_out(SchemaError(unwritable(name), pointer=context.pointer), context)
                return []
            held = self._value_of((inner,), self._types.get(name, self._tags.every), context)
            if not held:
                return []
            member = join(held[0], Literal(self._tags.close))
            members.append(self._arguments.member(Literal(self._arguments.key(name)), member))
        if case.any_order:
            return [self._arguments.constant(members, context)]
        return [join_all(join(LINE_END, member) if i else member for i, member in enumerate(members))]

    def _leave_out(self, error: SchemaError, context: RuleContext) -> None:
        self._refused.append(error)
        self._book.note(context.pointer, "required", f"{error.message}: the objects that need it are left out")

    def _nothing(self) -> SchemaError | LimitExceeded:
        return self._refused[0] if self._refused else super()._nothing()

    # Values

    def _raw(self, node: NodeId, types: Types) -> Node:
        """The rule of a value with its closing tag; NEVER where no value can be written."""
        raw = self._raw_nodes.get((node, types))
        if raw is None:
            raw = self._raw_nodes[node, types] = self._new_raw(node, types)
        return raw

    def _new_raw(self, node: NodeId, types: Types) -> Node:
        cases = () if node == self._form.false else self._form.cases(node)
        pointer = self._form.pointer(node)
        base = pointer.rpartition("/")[2] or "value"
        context = RuleContext(base=f"{base}-text", pointer=pointer, depth=0)
        options: list[Node] = []
        for case in cases:
            if isinstance(case, Values):
                options += self._value_of(case.values, types, context)
            elif isinstance(case, String):
                options.append(self._text(case, types, context))
            else:
                options.append(self._case(case, context))
        body = choice([option for option in options if option is not NEVER])
        if not options or body == NEVER:
            return NEVER
        name = self._book.name(context.base, pointer)
        return self._book.add(name, join(body, Literal(self._tags.close)))

    def _value_of(self, values: tuple[Any, ...], types: Types, context: RuleContext) -> list[Node]:
        """Constants; texts that cannot be written are left out."""
        nodes: list[Node] = []
        raw = raw_texts(self._tags.text_ends, types)
        for value in values:
            if not isinstance(value, str):
                nodes.append(literal(value, self._layout, 0))
            elif raw is not None and raw.accepts(value.encode("utf-8", "surrogatepass")):
                nodes.append(Literal(value) if value else EMPTY)
            else:
                self._book.note(context.pointer, "enum", f"{value!r:.60} cannot be written as raw text: it is left out")
        return nodes

    def _text(self, case: String, types: Types, context: RuleContext) -> Node:
        """Raw text that satisfies a case."""
        rules = RawStrings(self._book, raw_texts(self._tags.text_ends, types))
        rules.remarks(case, context.pointer)
        texts = rules.language(case, "pattern", context.pointer)
        if texts is None:
            return NEVER
        if len(texts) <= MAX_MINIMISED:
            texts = texts.minimised()
        try:
            return self._language(texts, context)
        except LimitExceeded as error:
            self._book.gap(context.pointer, "pattern", error.message)
            return NEVER


class RawStrings(StringRules):
    """Strings of a language only. texts: that language, None for nothing."""

    def __init__(self, book: Any, texts: Dfa | None) -> None:
        super().__init__(book)
        self._texts = texts

    def _every(self) -> Dfa | None:
        return self._texts


@dataclass(frozen=True, slots=True, kw_only=True)
class TagRules(ObjectRules):
    """Converts the object at the top. of_name: the value of a declared argument. pointer: where in the schema a node
    comes from. text: writes an automaton's language as rules."""

    brackets: ClassVar[tuple[str, str]] = ("", "")
    tags: Tags
    of_name: Callable[[Property], Node]
    pointer: Callable[[NodeId], str]
    text: Callable[[Dfa, RuleContext], Node]

    def writable(self, case: Object, context: RuleContext) -> Object:
        """The object without optional properties whose names end early. Raises SchemaError for a required one."""
        writable = tuple(prop for prop in case.properties if self.tags.after_name not in prop.name)
        for prop in case.properties:
            if prop not in writable:
                if prop.required:
                    raise SchemaError(unwritable(prop.name), pointer=below(context.pointer, "properties", prop.name))
                self.book.note(context.pointer, "properties", f"{unwritable(prop.name)}: it is left out")
        return replace(case, properties=writable)

    def key(self, name: str) -> str:
        return f"{self.tags.key}{name}"

    def declared(self, prop: Property, inside: int) -> Node:
        return self.of_name(prop)

    def _name(self, group: Rest, declared: tuple[str, ...], allowed: Dfa | None, context: RuleContext) -> Node:
        keyword = "patternProperties" if group.patterns else "additionalProperties"
        wanted = String(patterns=group.patterns, not_patterns=group.not_patterns, excluded=declared)
        self.book.note(context.pointer, keyword, TWICE)
        names = both(
            self.strings.language(wanted, keyword, context.pointer), search([self.tags.after_name.encode()]).avoiding
        )
        names = names if allowed is None else both(names, allowed)
        if names is None:
            return NEVER
        inside = replace(context, base=f"{context.base}-key")
        return join(Literal(self.tags.key), self.text(names.minimised(), inside))


@lru_cache(maxsize=256)
def raw_texts(text_ends: tuple[str, ...], types: Types) -> Dfa | None:
    """The texts that are read as strings: without what ends them, and not like JSON of another type."""
    texts: Dfa | None = search([end.encode() for end in text_ends]).avoiding
    for name in sorted(types & LOOKS.keys()):
        texts = without(texts, both(every_text(), language(parse_regex(LOOKS[name]))))
    return None if texts is None else texts.minimised()


def unwritable(name: str) -> str:
    return f"the name {name!r} cannot be written between tags"


def _lines(text: str) -> Node:
    """A text whose inner line ends are optional."""
    bare = text.rstrip("\n")
    first, *others = bare.split("\n")
    lines = [node for line in others for node in (LINE_END, Literal(line))]
    return join_all([Literal(first), *lines, Literal(text[len(bare) :]) if bare != text else EMPTY])
