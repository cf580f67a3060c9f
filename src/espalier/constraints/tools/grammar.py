"""Builds the grammar of tool calls in a wire format: the delimiters around each call, the tool names, the arguments.

Every tool's schema becomes rules of its own; rules that any schema may use (strings, numbers, ...) are shared. It does
not know the free text around the calls, nor matchers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from espalier.chat.argument_types import ALL, argument_types
from espalier.chat.tools import Tool
from espalier.chat.wire.formats import WireFormat
from espalier.constraints.tools.arguments import Outline, Style, converted, left_by_grammar, outline, watched_arguments
from espalier.constraints.tools.orders import written_order
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.tools.unique_items import CallsTracker
from espalier.constraints.unique.spots import NOTHING
from espalier.constraints.unique.tracker import DocumentTracker
from espalier.grammar.analysis import references
from espalier.grammar.ast import EMPTY, CharClass, Grammar, Literal, Node, Repeat, Rule, RuleRef, TokenRef, alt, fold
from espalier.grammar.regex.parse import parse_regex
from espalier.schema.lowering.bare import Bare
from espalier.schema.lowering.layout import layout
from espalier.schema.lowering.linear import join, join_all
from espalier.schema.lowering.notation import CONSTANTS, Constants
from espalier.schema.lowering.rulebook import BASICS, RuleBook, SchemaGrammar, quoted
from espalier.schema.lowering.tagged import Tags

SPACE = CharClass(((10, 10), (32, 32)))
SMALL = frozenset(("char", "space"))
"""Shared rules of a single character or a run of whitespace, referred to too often to be inlined."""
MARKERS = re.compile(r"<[^<>\s]+>|\[[A-Z_]+\]")
"""What special tokens of models look like, such as `<|call|>` and `[ARGS]`."""


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

        unplaced = [Rule(name, fold(rule.body, visit)) for name, rule in rules.items() if name not in placed]
        return CallsGrammar(grammar=Grammar.of(unplaced), pointers=self.pointers, rest=self.rest)

    @property
    def after_marker(self) -> Grammar:
        """The grammar of what follows the first marker."""
        return Grammar(self.grammar.rules, self.rest)


def delimiters(spec: ToolCalls) -> tuple[str, ...]:
    """The delimiters around calls, and the markers within them, which may be special tokens of a vocabulary."""
    wire = spec.wire
    parts = (
        wire.begin,
        wire.open,
        wire.lead,
        wire.head,
        wire.name_open,
        wire.id_mark,
        wire.middle,
        *wire.other_middles,
        wire.key,
        wire.assign,
        wire.value_close,
        wire.quote,
        wire.tail,
        wire.separator,
        wire.close,
        wire.end,
    )
    whole = [text.strip() for text in parts if text.strip()]
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


def calls_outline(spec: ToolCalls, specials: Mapping[str, int] | None = None) -> tuple[CallsGrammar, dict[str, Tool]]:
    """The same grammar without the rules of arguments, which are named in it; and the tool of each by its name. For a
    format with JSON arguments. Raises nothing for schemas."""
    calls = _Calls(spec, specials or {}, has_tracker=False, is_outline=True)
    return calls.grammar(), calls.tools


def checked_afterwards(tool: Tool, spec: ToolCalls) -> tuple[str, ...]:
    """The keywords of a tool's schema that are only checked when its call is complete: `pattern at /properties/a`.
    Raises as `calls_grammar` does."""
    if is_explored(spec) and (lowered := outline(tool, spec.whitespace, spec.order_of(tool))) is not None:
        return lowered.checked
    style, keys = style_of(spec.wire, tool)
    return left_by_grammar(tool, spec.whitespace, style, keys, written_order(spec, tool), spec.wire.has_json)


def in_schema_order(spec: ToolCalls) -> tuple[str, ...]:
    """The tools whose arguments come in the order of their schemas though the calls ask for none. Raises as
    `calls_grammar` does."""
    if spec.order is not None:
        return ()
    lowered = (outline(tool, spec.whitespace, spec.order_of(tool)) for tool in spec.allowed)
    if is_explored(spec) and all(explored is not None for explored in lowered):
        return ()
    return tuple(tool.name for tool in spec.allowed if written_order(spec, tool) != spec.order_of(tool))


def is_explored(spec: ToolCalls) -> bool:
    """Whether the calls can be explored on demand, as far as the spec says: their arguments are one JSON object whose
    whitespace does not depend on its depth."""
    return spec.wire.has_json and spec.content is None and spec.whitespace != "indented"


def style_of(wire: WireFormat, tool: Tool) -> tuple[Style, tuple[str, str] | None]:
    """How the arguments of a tool are written; and the keys of a call, where it is a JSON object around them."""
    if wire.shape == "json":
        return "json", (wire.name_key, wire.args_key)
    if wire.shape == "tagged":
        types = tuple(argument_types(tool.schema).items())
        tags = Tags(
            key=wire.key, assign=wire.assign, close=wire.value_close, text_ends=wire.text_ends, types=types, every=ALL
        )
        return tags, None
    if wire.shape == "bare":
        return Bare(quote=wire.quote), None
    return ("python" if wire.shape == "python" else "json"), None


def calls_tracker(spec: ToolCalls, known: Mapping[str, Outline] | None = None) -> tuple[CallsTracker | None, bool]:
    """The tracker of arrays with unique items in the arguments, None where the grammar of the calls is enough; and
    whether it is easy, see `CompiledUniqueItems`. known: the outlines of calls that are explored on demand. Raises as
    `calls_grammar` does."""
    if not spec.wire.has_json:
        return None, True
    if known is not None:
        items = {name: watched.items for name, watched in known.items()}
    else:
        items = {
            tool.name: watched_arguments(tool, spec.whitespace, written_order(spec, tool)) for tool in spec.allowed
        }
    if not any(items.values()):
        return None, True
    trackers = {
        name.encode(): DocumentTracker(NOTHING if watched is None else watched.spots) for name, watched in items.items()
    }
    return CallsTracker(spec, trackers), all(watched is None or watched.is_easy for watched in items.values())


class _Calls:
    def __init__(
        self, spec: ToolCalls, specials: Mapping[str, int], has_tracker: bool, *, is_outline: bool = False
    ) -> None:
        self._spec = spec
        self._is_outline = is_outline
        self.tools: dict[str, Tool] = {}
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
        first_call = join(call, self._piece(wire.tail))
        another = join(join(self._separator(), self._piece(wire.head)), first_call)
        limit = None if most is None else most - 1
        calls = first_call if limit == 0 else join(first_call, Repeat(another, 0, limit))
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
        grammar = book.grammar(join(root, rest))
        order = {name: place for place, name in enumerate(("root", names["rest"], names["call"], *pointers))}
        last = len(order)
        rules = sorted(grammar.rules.values(), key=lambda rule: order.get(rule.name, last + (rule.name in BASICS)))
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
        if not self._is_outline:
            return self._import_rules(tool, self._convert_tool(tool))
        wire, spacing = self._wire, layout(self._spec.whitespace)
        pieces = (
            Literal("{"),
            spacing.first(0),
            Literal(quoted(wire.name_key)),
            spacing.colon,
            Literal(f'"{tool.name}"'),
            spacing.between(0),
            Literal(quoted(wire.args_key)),
            spacing.colon,
            self._arguments(tool),
            spacing.last(0),
            Literal("}"),
        )
        return join_all(pieces)

    def named(self, tool: Tool) -> Node:
        """`NAME middle {...}`, or `NAME id_mark ID middle {...}`."""
        wire = self._wire
        # In a header the space is what ends the name.
        spell = self._core if wire.in_channels else self._piece
        middle = alt(*(spell(spelling) for spelling in (wire.middle, *wire.other_middles)))
        if wire.id_mark:
            middle = join(self._core(wire.id_mark), join(parse_regex(wire.id_form), middle))
        return join(Literal(tool.name), join(middle, self._arguments(tool)))

    def python(self, tool: Tool) -> Node:
        """`NAME(a=1)`."""
        return join(Literal(tool.name), self._arguments(tool))

    def tagged(self, tool: Tool) -> Node:
        """`name_open NAME middle`, and each argument between its tags."""
        wire = self._wire
        named = join(Literal(tool.name), join(self._piece(wire.middle), self._arguments(tool)))
        return join(self._piece(wire.name_open), named)

    def bare(self, tool: Tool) -> Node:
        """`NAME{a:1,b:<quote>x<quote>}`."""
        return join(Literal(tool.name), self._arguments(tool))

    def _arguments(self, tool: Tool) -> Node:
        name = self._book.name(tool.name, f"{tool.name}/")
        if self._is_outline:
            self.tools[name] = tool
            return RuleRef(name)
        return self._book.add(name, self._import_rules(tool, self._convert_tool(tool), name))

    def _convert_tool(self, tool: Tool) -> SchemaGrammar:
        spec = self._spec
        style, keys = style_of(spec.wire, tool)
        order = written_order(spec, tool)
        return converted(tool, spec.whitespace, style, keys, order=order, has_tracker=self._has_tracker)

    def _import_rules(self, tool: Tool, arguments: SchemaGrammar, root: str = "") -> Node:
        """Add a converted schema's rules to the book under new names; returns the body of its root rule. root: the name
        by which other rules refer to the root. Without it the schema is that of a whole call, and the rule of the
        tool's name is inlined."""
        book, grammar = self._book, arguments.grammar
        named = Literal(f'"{tool.name}"')
        inner_rules = {name: rule for name, rule in grammar.rules.items() if name != grammar.root}
        in_place = {ref.name for ref in references(grammar.rules[grammar.root].body) if not root}
        in_place = {name for name in in_place if inner_rules[name].body == named}
        names = {grammar.root: root}
        for name, rule in inner_rules.items():
            if name in BASICS and rule.body == _basic(name, book.constants):
                names[name] = book.basic(name).name
            elif name not in in_place:
                pointer = arguments.pointers.get(name)
                names[name] = book.name(tool.name if pointer == "" else f"{tool.name}-{name}", "")
                if pointer is not None:
                    book.pointers[names[name]] = f"{tool.name}{pointer or '/'}"

        def visit(node: Node, parts: list[Node]) -> Node:
            if isinstance(node, RuleRef):
                return named if node.name in in_place else RuleRef(names[node.name])
            if isinstance(node, Literal) and not self._wire.has_json and self._specials:
                return with_specials(node.text, self._specials)
            return node.with_children(parts) if parts else node

        for name, rule in inner_rules.items():
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
        within = {other: token for other, token in specials.items() if other != text}
        return alt(with_specials(text, within), TokenRef(id=specials[text]))
    first = min(
        ((text.find(spelling), -len(spelling), spelling) for spelling in specials if spelling in text), default=None
    )
    if first is None:
        return Literal(text) if text else EMPTY
    at, _, spelling = first
    before, after = with_specials(text[:at], specials), with_specials(text[at + len(spelling) :], specials)
    return join(before, join(with_specials(spelling, specials), after))


def _optional(node: Node) -> Node:
    return Repeat(node, 0, 1)


@cache
def _basic(name: str, constants: Constants) -> Node:
    book = RuleBook(constants)
    book.basic(name)
    return book.grammar(EMPTY).rules[name].body
