"""The arguments of one tool: a grammar of its schema, or rules that are explored when a call reaches them; what is only
checked afterwards, and what must be tracked.

What was found is cached by schema, because requests repeat the same tools. It knows no wire format.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from espalier.automata.lazy.explored import LazyState
from espalier.chat.tools import Tool
from espalier.constraints.tools.plain import plain_least
from espalier.constraints.tools.text_grammar import grammar_in, with_grammar, with_mark
from espalier.constraints.unique.arrays import WatchedItems, watched_items
from espalier.errors import EspalierError, LimitExceeded, SpecError, UnsupportedError
from espalier.grammar.json_mode import JsonWhitespace
from espalier.owners import owned_cache
from espalier.schema.form import Case, NodeId, NormalForm, Object, Property, Values
from espalier.schema.lazy.rules import SchemaRules
from espalier.schema.lowering.bare import Bare
from espalier.schema.lowering.convert import convert
from espalier.schema.lowering.layout import layout
from espalier.schema.lowering.notation import DocumentStyle
from espalier.schema.lowering.objects import NAMES
from espalier.schema.lowering.rulebook import Remark, SchemaGrammar
from espalier.schema.lowering.tagged import Tags
from espalier.schema.normal.expand import Expansion, expand
from espalier.schema.order import DEFAULT, Order

Style: TypeAlias = DocumentStyle | Tags | Bare
Formats: TypeAlias = Literal["assert", "annotate"]
MAY_BE_UNIQUE = ("uniqueItems", "json-schema.org")
"""What a schema with unique items contains: the keyword, or the address of a meta-schema, which has it."""
KEPT_TOOLS = 1024
"""How many converted schemas are cached, because requests repeat the same tools."""


def converted(
    tool: Tool,
    whitespace: JsonWhitespace,
    style: Style,
    keys: tuple[str, str] | None = None,
    *,
    order: Order = DEFAULT,
    has_tracker: bool = False,
) -> SchemaGrammar:
    """The grammar of a tool's arguments; with keys (name key, arguments key), of the object that holds both, the name
    first whatever the order. Raises as `calls_grammar` does."""
    return _convert_arguments(_asked_options(tool), whitespace, style, keys, order, has_tracker)[0]


def left_by_grammar(
    tool: Tool, whitespace: JsonWhitespace, style: Style, keys: tuple[str, str] | None, order: Order, has_tracker: bool
) -> tuple[str, ...]:
    """The keywords that this grammar leaves to be checked when a call is complete: `pattern at /properties/a`. Raises
    as `calls_grammar` does."""
    return _convert_arguments(_asked_options(tool), whitespace, style, keys, order, has_tracker)[1]


class _ArgumentsKey(NamedTuple):
    """What of a tool its grammar depends on."""

    name: str
    parameters: str
    checked: bool
    formats: Formats
    closed: bool


def _asked_options(tool: Tool) -> _ArgumentsKey:
    return _ArgumentsKey(tool.name, tool.parameters, tool.strict is not True, tool.formats, tool.closed)


def watched_arguments(tool: Tool, whitespace: JsonWhitespace, order: Order) -> WatchedItems | None:
    """The arrays of a tool's arguments that need a tracker; None where there are none. Raises as `calls_grammar`."""
    if not any(word in tool.parameters for word in MAY_BE_UNIQUE):
        return None  # the conversion of many tools takes long, and this one would be thrown away
    grammar = converted(tool, whitespace, "json", order=order, has_tracker=True)
    if not any(gap.keyword == "uniqueItems" for gap in grammar.gaps):
        return None
    return watched_items(_CallShapes(_expanded(tool, order), tool.name, None))


def _expanded(tool: Tool, order: Order) -> Expansion:
    return expand(json.loads(tool.parameters), order=order, format=tool.formats, closed=tool.closed)


@contextmanager
def _naming(tool: str) -> Iterator[None]:
    """Errors inside name the tool."""
    try:
        yield
    except (UnsupportedError, LimitExceeded) as error:
        raise type(error)(f"the tool {tool}: {error.message}", hint=error.hint, field="tools") from error
    except EspalierError as error:
        raise SpecError(f"the tool {tool}: {error.message}", hint=error.hint, field="tools") from error


@owned_cache(KEPT_TOOLS)
def _convert_arguments(
    asked: _ArgumentsKey,
    whitespace: JsonWhitespace,
    style: Style,
    keys: tuple[str, str] | None,
    order: Order,
    has_tracker: bool,
) -> tuple[SchemaGrammar, tuple[str, ...]]:
    with _naming(asked.name):
        schema = json.loads(asked.parameters)
        text = grammar_in(schema)
        if text is not None:
            if isinstance(style, Tags):
                raise UnsupportedError("a text of a grammar cannot be written between tags")
            schema = with_mark(schema)
        expansion = expand(schema, order=order, format=asked.formats, closed=asked.closed)
        shapes = _shapes(expansion, asked.name, keys)
        grammar = convert(shapes, whitespace=whitespace, style=style)
        left = _check(expansion, grammar.gaps, asked.checked, has_tracker and watched_items(shapes) is not None)
        return (grammar if text is None else with_grammar(grammar, text)), left


def _shapes(expansion: Expansion, name: str, keys: tuple[str, str] | None = None) -> _CallShapes:
    shapes = _CallShapes(expansion, name, keys)
    if not shapes.can_be_called:
        raise SpecError("no object satisfies its schema", hint="arguments are always a JSON object")
    return shapes


def _check(expansion: Expansion, remarks: tuple[Remark, ...], checked: bool, is_watched: bool) -> tuple[str, ...]:
    """Return what is checked afterwards. remarks: what is not enforced. Raises UnsupportedError for a keyword that
    would not be enforced, unless that may be checked. is_watched: a tracker keeps items unique."""
    gaps = [gap for gap in remarks if not (is_watched and gap.keyword == "uniqueItems")]
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
    return tuple(f"{entry.keyword} at {entry.pointer.rpartition('/')[0] or 'the top'}" for entry in later)


# Explored when a call reaches them


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """What must be known of arguments before they are explored. least: their least number of bytes. checked: the
    keywords that are only checked when a call is complete. items: the arrays that need a tracker, if any."""

    least: int
    checked: tuple[str, ...] = ()
    items: WatchedItems | None = None


def outline(tool: Tool, whitespace: JsonWhitespace, order: Order) -> Outline | None:
    """The outline of a tool's arguments; None where they cannot be explored on demand. A schema that is plain is looked
    over; any other is lowered once. Raises as `calls_grammar` does."""
    with _naming(tool.name):
        return _outline(tool.parameters, tool.strict is not True, tool.formats, tool.closed, whitespace, order)


@owned_cache(KEPT_TOOLS)
def _outline(
    parameters: str, checked: bool, formats: Formats, closed: bool, whitespace: JsonWhitespace, order: Order
) -> Outline | None:
    schema = json.loads(parameters)
    least = plain_least(schema)
    if least is not None:
        return Outline(least=least)
    if grammar_in(schema) is not None:
        return None
    expansion = expand(schema, order=order, format=formats, closed=closed)
    shapes = _shapes(expansion, "")
    rules = SchemaRules(shapes, layout(whitespace))
    if any(gap.text == NAMES for gap in rules.gaps):
        return None
    has_items = any(gap.keyword == "uniqueItems" for gap in rules.gaps)
    items = watched_items(shapes) if has_items else None
    left = _check(expansion, rules.gaps, checked, items is not None)
    return Outline(least=rules.start.least, checked=left, items=items)


def explored(tool: Tool, whitespace: JsonWhitespace, order: Order, *, named: bool = False) -> LazyState:
    """The first position of a tool's arguments, explored on demand. named: positions know their rules, as
    `NAME/pointer`, for explanations. Raises as `calls_grammar` does."""
    with _naming(tool.name):
        shapes = _shapes(_expanded(tool, order), tool.name)
        form = _NamedShapes(shapes, tool.name) if named else shapes
        return SchemaRules(form, layout(whitespace), named=named).start


class _CallShapes:
    """The normal form of a tool's arguments, restricted to objects; with keys, inside the object of a call."""

    CALL, NAME, ARGUMENTS = -1, -2, -3

    def __init__(self, inner: NormalForm, name: str, keys: tuple[str, str] | None) -> None:
        self._inner = inner
        self._name = name
        self._keys = keys
        cases = inner.cases(inner.root)
        self._objects = tuple(narrowed for case in cases if (narrowed := _object(case)) is not None)
        # A recursive schema may refer to its root, which need not be an object there.
        self._arguments: NodeId = inner.root if self._objects == cases else self.ARGUMENTS

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


class _NamedShapes:
    """A normal form whose pointers begin with the tool's name."""

    def __init__(self, inner: _CallShapes, name: str) -> None:
        self._inner = inner
        self._name = name
        self.root, self.false, self.cases = inner.root, inner.false, inner.cases

    def pointer(self, node: NodeId) -> str:
        return f"{self._name}{self._inner.pointer(node) or '/'}"


def _object(case: Case) -> Case | None:
    """The part of a case that is an object, None if there is none."""
    if isinstance(case, Values):
        objects = tuple(value for value in case.values if isinstance(value, dict))
        return replace(case, values=objects) if objects else None
    return case if isinstance(case, Object) else None
