"""Builds the grammar of tool calls in a wire format: the delimiters around each call, the tool names, the arguments.

Every tool's schema becomes rules of its own; rules that any schema may use (strings, numbers, ...) are shared. It does
not know the free text around the calls, nor matchers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, TypeAlias

from espalier.chat.argument_types import ALL, argument_types
from espalier.chat.tools import Tool
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.tools.text_grammar import grammar_in, with_grammar, with_mark
from espalier.constraints.tools.unique_items import CallsTracker
from espalier.constraints.unique.arrays import WatchedItems, watched_items
from espalier.constraints.unique.spots import NOTHING
from espalier.constraints.unique.tracker import DocumentTracker
from espalier.errors import EspalierError, LimitExceeded, SpecError, UnsupportedError
from espalier.grammar.analysis import references
from espalier.grammar.ast import (
    EMPTY,
    CharClass,
    Grammar,
    Literal,
    Node,
    Repeat,
    Rule,
    RuleRef,
    TokenRef,
    alt,
    fold,
)
from espalier.grammar.json_mode import JsonWhitespace
from espalier.grammar.regex.parse import parse_regex
from espalier.owners import owned_cache
from espalier.schema.form import Case, NodeId, NormalForm, Object, Property, Values
from espalier.schema.gbnf.bare import Bare
from espalier.schema.gbnf.convert import convert
from espalier.schema.gbnf.linear import join
from espalier.schema.gbnf.notation import CONSTANTS, Constants, DocumentStyle
from espalier.schema.gbnf.rulebook import BASICS, Converted, RuleBook
from espalier.schema.gbnf.tagged import Tags
from espalier.schema.normal.expand import Expansion, expand
from espalier.schema.order import DEFAULT, Order

Style: TypeAlias = DocumentStyle | Tags | Bare
SPACE = CharClass(((10, 10), (32, 32)))
SMALL = frozenset(("char", "space"))
"""Shared rules of a single character or a run of whitespace, referred to too often to be inlined."""
MARKERS = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")
"""What special tokens of models look like, such as `<|call|>` and `[ARGS]`."""
MAY_BE_UNIQUE = ("uniqueItems", "json-schema.org")
"""What a schema with unique items contains: the keyword, or the address of a meta-schema, which has it."""
KEPT_TOOLS = 1024
"""How many converted schemas are cached, because requests repeat the same tools."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsGrammar:
    """grammar: the calls from their first byte. pointers: by rule, the tool and the JSON pointer in its schema, as
    `NAME/pointer`. rest: the rule for what follows the marker at the start of a call, "" for a format without one."""

    grammar: Grammar
    pointers: dict[str, str]
    rest: str

    @property
    def arguments(self) -> tuple[str, ...]:
        """The rules of the tools' arguments."""
        return tuple(name for name, pointer in self.pointers.items() if pointer.endswith("/"))

    def for_explanations(self) -> CallsGrammar:
        """The same grammar with the shared rules inlined, so that every rule belongs to a tool or is called from
        one."""
        rules = self.grammar.rules
        placed = {name for name in rules if name in BASICS} - SMALL

        def visit(node: Node, parts: list[Node]) -> Node:
            if isinstance(node, RuleRef) and node.name in placed:
                return fold(rules[node.name].body, visit)
            return node.with_children(parts) if parts else node

        kept = [Rule(name, fold(rule.body, visit)) for name, rule in rules.items() if name not in placed]
        return CallsGrammar(grammar=Grammar.of(kept), pointers=self.pointers, rest=self.rest)

    @property
    def after_marker(self) -> Grammar:
        """The grammar of what follows the first marker."""
        return Grammar(self.grammar.rules, self.rest)


def delimiters(spec: ToolCalls) -> tuple[str, ...]:
    """The delimiters around calls, and the markers within them, which may be special tokens of a vocabulary."""
    wire = spec.wire
    found = (wire.begin, wire.open, wire.lead, wire.text_lead, wire.head, wire.name_open, wire.id_mark, wire.middle,
             wire.key, wire.assign, wire.value_close, wire.quote, wire.tail, wire.separator, wire.close,
             wire.end)  # fmt: skip
    whole = [text.strip() for text in found if text.strip()]
    single = [text for text in whole if len(text.split()) == 1]
    return tuple(dict.fromkeys([*single, *(marker for text in whole for marker in MARKERS.findall(text))]))


def calls_grammar(
    spec: ToolCalls, specials: Mapping[str, int] | None = None, *, has_tracker: bool = False
) -> CallsGrammar:
    """The grammar of one or more calls of the allowed tools.

    specials: the ids of delimiters that are special tokens, by spelling; each may come as bytes or as that token.
    has_tracker: the tracker of `calls_tracker` keeps items unique where the grammar does not.

    Raises SpecError for an invalid schema or one that no object satisfies, UnsupportedError for keywords that would not
    be enforced, LimitExceeded; each names the tool.
    """
    return _Calls(spec, specials or {}, has_tracker).grammar()


def calls_tracker(spec: ToolCalls) -> tuple[CallsTracker | None, bool]:
    """The tracker of arrays with unique items in the arguments, None where the grammar of the calls is enough; and
    whether it is easy, see `ItemsCompiled`. Raises as `calls_grammar` does."""
    if not spec.wire.has_json:
        return None, True
    found = {tool.name: watched_arguments(tool, spec.whitespace, spec.used_order) for tool in spec.allowed}
    if not any(found.values()):
        return None, True
    trackers = {name.encode(): DocumentTracker(NOTHING if one is None else one.spots) for name, one in found.items()}
    return CallsTracker(spec, trackers), all(one is None or one.is_easy for one in found.values())


class _Calls:
    def __init__(self, spec: ToolCalls, specials: Mapping[str, int], has_tracker: bool) -> None:
        self._spec = spec
        self._has_tracker = has_tracker and spec.wire.has_json
        self._wire = spec.wire
        self._specials = specials
        self._book = RuleBook(CONSTANTS["python" if self._wire.shape == "python" else "json"])

    def grammar(self) -> CallsGrammar:
        wire, book, most = self._wire, self._book, self._spec.most_calls
        names = {name: book.name(name, "") for name in ("rest", "call")}
        tools = [SHAPES[wire.shape](self, tool) for tool in self._spec.allowed]
        in_list = bool(wire.open.strip())  # a lead then stands before the list
        call = book.add(names["call"], alt(*tools) if in_list else join(self._lead(), alt(*tools)))
        one = join(call, self._piece(wire.tail))
        another = join(join(self._separator(), self._piece(wire.head)), one)
        limit = None if most is None else most - 1
        calls = one if limit == 0 else join(one, Repeat(another, 0, limit))
        first = [(wire.begin, wire.begin), (wire.open, ""), (wire.head, "" if wire.begin.strip() else wire.head)]
        before: Node = self._lead() if in_list else EMPTY
        root: Node = EMPTY
        for text, marked in first:
            if marked.strip():
                root = self._core(text.strip())
                before = join(_optional(SPACE), self._trailing(text))
            else:
                before = join(before, self._piece(text))
        end = _optional(self._core(wire.end)) if wire.end else EMPTY
        rest = join(before, join(calls, join(self._piece(wire.close), end)))
        if wire.marker:
            rest = book.add(names["rest"], rest)
        pointers = {name: pointer for name, pointer in book.pointers.items() if pointer}
        found = book.grammar(join(root, rest))
        order = {name: place for place, name in enumerate(("root", names["rest"], names["call"], *pointers))}
        last = len(order)
        rules = sorted(found.rules.values(), key=lambda rule: order.get(rule.name, last + (rule.name in BASICS)))
        return CallsGrammar(grammar=Grammar.of(rules), pointers=pointers, rest=names["rest"] if wire.marker else "")

    # Around a call

    def _core(self, text: str) -> Node:
        """A delimiter without surrounding whitespace."""
        return with_specials(text, self._specials)

    def _trailing(self, text: str) -> Node:
        space = text[len(text.rstrip()) :]
        return _optional(Literal(space)) if space else EMPTY

    def _piece(self, text: str) -> Node:
        """A delimiter whose surrounding whitespace is optional."""
        core = text.strip()
        if not core:
            return self._trailing(text)
        space = text[: len(text) - len(text.lstrip())]
        marked = _optional(SPACE) if core == self._wire.marker else EMPTY
        before = _optional(Literal(space)) if space else EMPTY
        return join(before, join(self._core(core), join(marked, self._trailing(text))))

    def _separator(self) -> Node:
        wire = self._wire
        needed = not wire.separator.strip() and not (wire.head.strip() or wire.tail.strip())
        return Literal(wire.separator) if needed and wire.separator else self._piece(wire.separator)

    def _lead(self) -> Node:
        lead = self._wire.lead
        return _optional(self._core(lead)) if lead else EMPTY

    # One call

    def json(self, tool: Tool) -> Node:
        """`{"name": "NAME", "arguments": {...}}`; the start is inlined, so that all calls share it."""
        wire = self._wire
        return self._import_rules(tool, self._converted(tool, "json", (wire.name_key, wire.args_key)))

    def named(self, tool: Tool) -> Node:
        """`NAME middle {...}`, or `NAME id_mark ID middle {...}`."""
        wire = self._wire
        middle = self._piece(wire.middle)
        if wire.id_mark:
            middle = join(self._core(wire.id_mark), join(parse_regex(wire.id_form), middle))
        return join(Literal(tool.name), join(middle, self._arguments(tool, "json")))

    def python(self, tool: Tool) -> Node:
        """`NAME(a=1)`."""
        return join(Literal(tool.name), self._arguments(tool, "python"))

    def tagged(self, tool: Tool) -> Node:
        """`name_open NAME middle`, and each argument between its tags."""
        wire = self._wire
        types = tuple(argument_types(tool.schema).items())
        tags = Tags(key=wire.key, assign=wire.assign, close=wire.value_close, types=types, every=ALL)
        arguments = self._arguments(tool, tags)
        return join(self._piece(wire.name_open), join(Literal(tool.name), join(self._piece(wire.middle), arguments)))

    def bare(self, tool: Tool) -> Node:
        """`NAME{a:1,b:<quote>x<quote>}`."""
        return join(Literal(tool.name), self._arguments(tool, Bare(quote=self._wire.quote)))

    def _arguments(self, tool: Tool, style: Style) -> Node:
        name = self._book.name(tool.name, f"{tool.name}/")
        return self._book.add(name, self._import_rules(tool, self._converted(tool, style), name))

    def _converted(self, tool: Tool, style: Style, keys: tuple[str, str] | None = None) -> Converted:
        spec = self._spec
        return converted(tool, spec.whitespace, style, keys, order=spec.used_order, has_tracker=self._has_tracker)

    def _import_rules(self, tool: Tool, found: Converted, root: str = "") -> Node:
        """Add a converted schema's rules to the book under new names; returns the body of its root rule. root: the name
        by which other rules refer to the root. Without it the schema is that of a whole call, and the rule of the
        tool's name is inlined."""
        book, grammar = self._book, found.grammar
        named = Literal(f'"{tool.name}"')
        given = {name: rule for name, rule in grammar.rules.items() if name != grammar.root}
        in_place = {ref.name for ref in references(grammar.rules[grammar.root].body) if not root}
        in_place = {name for name in in_place if given[name].body == named}
        names = {grammar.root: root}
        for name, rule in given.items():
            if name in BASICS and rule.body == _basic(name, book.constants):
                names[name] = book.basic(name).name
            elif name not in in_place:
                pointer = found.pointers.get(name)
                names[name] = book.name(tool.name if pointer == "" else f"{tool.name}-{name}", "")
                if pointer is not None:
                    book.pointers[names[name]] = f"{tool.name}{pointer or '/'}"

        def visit(node: Node, parts: list[Node]) -> Node:
            if isinstance(node, RuleRef):
                return named if node.name in in_place else RuleRef(names[node.name])
            if isinstance(node, Literal) and not self._wire.has_json and self._specials:
                return with_specials(node.text, self._specials)
            return node.with_children(parts) if parts else node

        for name, rule in given.items():
            if name not in in_place and names[name] != name:
                book.add(names[name], fold(rule.body, visit))
        return fold(grammar.rules[grammar.root].body, visit)


SHAPES: dict[str, Callable[[_Calls, Tool], Node]] = {
    "json": _Calls.json,
    "named": _Calls.named,
    "python": _Calls.python,
    "tagged": _Calls.tagged,
    "bare": _Calls.bare,
}


def with_specials(text: str, specials: Mapping[str, int]) -> Node:
    """A text, each special token in it by its bytes or as that token. specials: their ids by spelling."""
    if text in specials:
        within = {one: token for one, token in specials.items() if one != text}
        return alt(with_specials(text, within), TokenRef(id=specials[text]))
    found = min(((text.find(one), -len(one), one) for one in specials if one in text), default=None)
    if found is None:
        return Literal(text) if text else EMPTY
    at, _, one = found
    before, after = with_specials(text[:at], specials), with_specials(text[at + len(one) :], specials)
    return join(before, join(with_specials(one, specials), after))


def _optional(node: Node) -> Node:
    return Repeat(node, 0, 1)


@cache
def _basic(name: str, constants: Constants) -> Node:
    book = RuleBook(constants)
    book.basic(name)
    return book.grammar(EMPTY).rules[name].body


# Arguments


def converted(
    tool: Tool,
    whitespace: JsonWhitespace,
    style: Style,
    keys: tuple[str, str] | None = None,
    *,
    order: Order = DEFAULT,
    has_tracker: bool = False,
) -> Converted:
    """The grammar of a tool's arguments; with keys (name key, arguments key), of the object that holds both, the name
    first whatever the order. Raises as `calls_grammar` does."""
    return _converted(_asked(tool), whitespace, style, keys, order, has_tracker)[0]


def checked_afterwards(tool: Tool, order: Order) -> tuple[str, ...]:
    """The keywords of a tool's schema that are only checked when its call is complete: `pattern at /properties/a`.
    Raises as `calls_grammar` does."""
    asked = _Asked(tool.name, tool.parameters, tool.strict is not True, tool.formats)
    return _converted(asked, "natural", "json", None, order, True)[1]


class _Asked(NamedTuple):
    """What of a tool its grammar depends on."""

    name: str
    parameters: str
    checked: bool
    formats: str


def _asked(tool: Tool) -> _Asked:
    return _Asked(tool.name, tool.parameters, tool.strict is not True, tool.formats)


def watched_arguments(tool: Tool, whitespace: JsonWhitespace, order: Order) -> WatchedItems | None:
    """The arrays of a tool's arguments that need a tracker; None where there are none. Raises as `calls_grammar`."""
    if not any(word in tool.parameters for word in MAY_BE_UNIQUE):
        return None  # the conversion of many tools takes long, and this one would be thrown away
    found = converted(tool, whitespace, "json", order=order, has_tracker=True)
    if not any(gap.keyword == "uniqueItems" for gap in found.gaps):
        return None
    return watched_items(
        _CallShapes(expand(json.loads(tool.parameters), order=order, format=tool.formats), tool.name, None)
    )


@owned_cache(KEPT_TOOLS)
def _converted(
    asked: _Asked,
    whitespace: JsonWhitespace,
    style: Style,
    keys: tuple[str, str] | None,
    order: Order,
    has_tracker: bool,
) -> tuple[Converted, tuple[str, ...]]:
    name = asked.name
    try:
        schema = json.loads(asked.parameters)
        text = grammar_in(schema)
        if text is not None:
            if isinstance(style, Tags):
                raise UnsupportedError("a text of a grammar cannot be written between tags")
            schema = with_mark(schema)
        expansion = expand(schema, order=order, format=asked.formats)
        shapes = _CallShapes(expansion, name, keys)
        if not shapes.can_be_called:
            raise SpecError("no object satisfies its schema", hint="arguments are always a JSON object")
        found = convert(shapes, whitespace=whitespace, style=style)
        left = _check(expansion, found, asked.checked, has_tracker and watched_items(shapes) is not None)
        found = found if text is None else with_grammar(found, text)
    except (UnsupportedError, LimitExceeded) as error:
        raise type(error)(f"the tool {name}: {error.message}", hint=error.hint, field="tools") from error
    except EspalierError as error:
        raise SpecError(f"the tool {name}: {error.message}", hint=error.hint, field="tools") from error
    return found, left


def _check(expansion: Expansion, found: Converted, checked: bool, is_watched: bool) -> tuple[str, ...]:
    """What is checked afterwards. Raises UnsupportedError for a keyword that would not be enforced, unless that may be
    checked. is_watched: a tracker keeps items unique."""
    gaps = [gap for gap in found.gaps if not (is_watched and gap.keyword == "uniqueItems")]
    places = [(at, gap.text) for gap in gaps for at in expansion.places_of(gap.pointer, gap.keyword)]
    contract = expansion.contract.with_changes((at, "checked", text) for at, text in places)
    refused = contract.by_verdict("refused")
    later = contract.by_verdict("checked")
    left = refused or (() if checked else later)
    if left:
        first = left[0]
        at = first.pointer.rpartition("/")[0]
        more = f" (and {len(left) - 1} more)" if len(left) > 1 else ""
        raise UnsupportedError(
            f"{first.keyword} at {at or 'the top'} cannot be enforced{more}{': ' if first.note else ''}{first.note}",
            hint="remove it" if refused else 'remove it; without "strict": true it is checked afterwards',
        )
    return tuple(f"{one.keyword} at {one.pointer.rpartition('/')[0] or 'the top'}" for one in later)


class _CallShapes:
    """The normal form of a tool's arguments, restricted to objects; with keys, inside the object of a call."""

    CALL, NAME, ARGUMENTS = -1, -2, -3

    def __init__(self, inner: NormalForm, name: str, keys: tuple[str, str] | None) -> None:
        self._inner = inner
        self._name = name
        self._keys = keys
        given = inner.cases(inner.root)
        self._objects = tuple(narrowed for case in given if (narrowed := _object(case)) is not None)
        # A recursive schema may refer to its root, which need not be an object there.
        self._arguments: NodeId = inner.root if self._objects == given else self.ARGUMENTS

    @property
    def can_be_called(self) -> bool:
        return bool(self._objects)

    @property
    def root(self) -> NodeId:
        return self._arguments if self._keys is None else self.CALL

    @property
    def false(self) -> NodeId:
        return self._inner.false

    def cases(self, node: NodeId) -> tuple[Case, ...]:
        if node == self.ARGUMENTS:
            return self._objects
        if node == self.NAME:
            return (Values(values=(self._name,)),)
        if node == self.CALL and self._keys is not None:
            name, arguments = self._keys
            return (
                Object(
                    properties=(
                        Property(name=name, node=self.NAME, required=True),
                        Property(name=arguments, node=self._arguments, required=True),
                    )
                ),
            )
        return self._inner.cases(node)

    def pointer(self, node: NodeId) -> str:
        return self._inner.pointer(self._inner.root if node < 0 else node)


def _object(case: Case) -> Case | None:
    """The part of a case that is an object, None if there is none."""
    if isinstance(case, Values):
        kept = tuple(value for value in case.values if isinstance(value, dict))
        return replace(case, values=kept) if kept else None
    return case if isinstance(case, Object) else None
