"""What the grammar and the matcher's rules of a schema share: which nodes get a rule, how listed values are written.

`node_rules.py` writes every rule out; `schema/lazy/rules.py` leaves them to be explored. Both make the same automata of
objects and arrays (`objects.py`, `arrays.py`). It knows no keywords of JSON Schema.
"""

from __future__ import annotations

from dataclasses import replace

from espalier.errors import LimitExceeded, SchemaError
from espalier.grammar.analysis import components
from espalier.grammar.ast import Node
from espalier.grammar.json_mode import INDENTED_DEPTH
from espalier.schema.form import Array, Case, NodeId, NormalForm, Object, Values
from espalier.schema.lowering.contradiction import contradiction
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.objects import ObjectRules
from espalier.schema.lowering.rulebook import RuleBook, RuleContext
from espalier.schema.lowering.spelling import Members, literals
from espalier.time_limit import check as check_time

MAX_PARTS = 20_000
"""Rules for nodes, each at each depth."""


class NodeLowering:
    """The nodes of one form in one layout. Remarks go into the book."""

    _objects: ObjectRules

    def __init__(self, form: NormalForm, written: Layout, book: RuleBook) -> None:
        self._form = form
        self._layout = written
        self._book = book
        self._recursive: frozenset[NodeId] | None = None

    def _check_parts(self, count: int) -> None:
        """Raises LimitExceeded for too many rules."""
        if count > MAX_PARTS:
            raise LimitExceeded(
                f"the schema has more than {MAX_PARTS} parts, which is too many for a grammar",
                hint="share what is alike with $ref",
            )

    def _nothing(self) -> SchemaError | LimitExceeded:
        """The error where no document can be written."""
        for pointer, text in self._book.limits.items():
            return LimitExceeded(
                f"no document can be written: at {pointer or 'the top'}, {text}", hint="allow a wider range of numbers"
            )
        return contradiction(self._form, self._book)

    def _is_never(self, node: NodeId) -> bool:
        """Whether no value fits a node."""
        return node == self._form.false or not self._form.cases(node)

    def _is_too_deep(self, node: NodeId, depth: int) -> bool:
        """Whether a node gets its scalar cases alone at a depth, which is then noted: a layout by depth has a rule for
        each depth, and a node that a value of its own may contain again is met at every one."""
        if depth <= INDENTED_DEPTH:
            return False
        if self._recursive is None:
            self._recursive = recursive_nodes(self._form)
        if node not in self._recursive:
            return False
        text = f"at most {INDENTED_DEPTH} levels where the schema refers back to itself"
        self._book.note(self._form.pointer(node), "whitespace", text)
        return True

    def _listed(self, case: Values, context: RuleContext) -> tuple[list[str], list[Node]]:
        """The texts of a case's scalars, and the expressions of its arrays and objects."""
        members = self._members(context) if case.any_order else None
        return literals(case.values, self._layout, context.depth, self._book.constants, members)

    def _members(self, context: RuleContext) -> Members:
        return lambda members, depth: self._objects.constant(members, replace(context, depth=depth))


def recursive_nodes(form: NormalForm) -> frozenset[NodeId]:
    """The nodes that a value of theirs may contain again."""
    edges: dict[str, tuple[str, ...]] = {}
    todo = [form.root]
    while todo:
        check_time()
        node = todo.pop()
        if str(node) not in edges:
            inner = [child for case in form.cases(node) for child in _children(case)]
            edges[str(node)] = tuple(dict.fromkeys(map(str, inner)))
            todo += inner
    loops = [group for group in components(edges) if len(group) > 1 or group[0] in edges[group[0]]]
    return frozenset(int(node) for group in loops for node in group)


def _children(case: Case) -> list[NodeId]:
    """The nodes of the values that a case contains."""
    match case:
        case Array():
            return [*case.prefix, case.items, *(kind.node for row in case.kinds for kind in row)]
        case Object():
            return [*(prop.node for prop in case.properties), *(group.node for group in case.rest)]
        case _:
            return []
