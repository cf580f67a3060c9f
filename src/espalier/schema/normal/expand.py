"""Expands a schema to the normal form of `form.py`, node by node when first asked for, with a contract on its keywords.

    form = expand({"type": "integer", "minimum": 1})
    form.cases(form.root)      (Number(integer=True, minimum=1),)
    form.contract.entries        /type enforced, /minimum enforced

Reading order: `read/documents.py` indexes the document; `operations.py` reads one schema; `literals.py` makes literals
of it; `graph.py` expands sets of literals, with `branch.py`, `facts.py`, `keywords/` and `assemble.py`.

The result is exact, or lets more values fit than it should: then the contract says so, keyword by keyword. It knows
neither texts nor tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from espalier.errors import SchemaError
from espalier.schema.contract import Contract
from espalier.schema.form import Case, NodeId, Object, Values
from espalier.schema.normal.cases import led_to, trimmed
from espalier.schema.normal.closing import is_closable
from espalier.schema.normal.contract import contract_of, places_of
from espalier.schema.normal.graph import FALSE, Graph, simplified
from espalier.schema.normal.inspect import Inspector
from espalier.schema.normal.judge import ValueJudge
from espalier.schema.normal.literals import LiteralTable, SchemaLiteral
from espalier.schema.normal.unsatisfiable import unsatisfiable
from espalier.schema.order import DEFAULT, ORDERS, Order
from espalier.schema.read.documents import SchemaStore
from espalier.schema.read.drafts import SchemaDraft
from espalier.time_limit import WorkLock

CLOSED = "closed: objects take no names but the declared ones"


class Expansion:
    """The `NormalForm` of one schema, safe to share between threads: one thread at a time expands nodes, and an
    expanded node stays as it is.

    Every method may raise what the schema deserves: SchemaError, UnsupportedError with a pointer, or LimitExceeded.
    """

    def __init__(self, store: SchemaStore, *, formats: bool, order: Order, closed: bool = False) -> None:
        self._store = store
        self._order = order
        self._table = LiteralTable(store, formats=formats, closed=closed)
        self._graph = Graph(Inspector(self._table, ValueJudge(self._table)))
        self._lock = WorkLock(is_paced=True)
        self._contract: Contract | None = None
        self._left: dict[str, str] | None = None
        top = self._table.literal(store.main.root, None, True)
        self._root = self._graph.node((top,))
        self._graph.settle(self._root)
        if self._root == FALSE:
            raise SchemaError("no document can satisfy this schema: it is `false`", pointer=top.subschema.at())
        if self._graph.is_empty(self._root):
            error = unsatisfiable(self._graph, self._root)
            if closed:
                error.hint = f"{error.hint}; {CLOSED}" if error.hint else CLOSED
            raise error

    @property
    def root(self) -> NodeId:
        return self._root

    @property
    def false(self) -> NodeId:
        return FALSE

    @property
    def draft(self) -> SchemaDraft:
        """The draft of the main document."""
        return self._store.main.root.resource.draft

    @property
    def contract(self) -> Contract:
        """One verdict for each keyword. Expands every node that can be reached."""
        with self._lock:
            if self._contract is None:
                left = self.left_out
                self._contract = contract_of(
                    self._store, self._table.reached, self._graph.judged, left, formats=self._table.formats
                )
        return self._contract

    @property
    def left_out(self) -> dict[str, str]:
        """The keywords that the normal form leaves out, by their pointers, and why: the contract says "checked" of
        these and, before a backend lowers it, of no others but those below a `not`. Expands every node that can be
        reached."""
        with self._lock:
            if self._left is None:
                left: dict[str, str] = {}
                for node in self._reachable():
                    for what, note in self._graph.nodes[node].left.items():
                        for pointer in what.all_origins() if isinstance(what, SchemaLiteral) else (what,):
                            left.setdefault(pointer, note)
                self._left = left
        return self._left

    @property
    def closes(self) -> bool:
        """Whether undeclared names are refused anywhere."""
        return self._table.closed and any(map(is_closable, self._store.main.subschemas.values()))

    def places_of(self, pointer: str, keyword: str) -> list[str]:
        """Where a keyword stands that holds for the values of the schema at a pointer, see `contract.places_of`."""
        return places_of(self._store, self._table.reached, self.contract, pointer, keyword)

    def cases(self, node: NodeId) -> tuple[Case, ...]:
        cases = self._graph.nodes[node].cases
        if cases is None:
            with self._lock:
                cases = self._find_cases(node)
        return cases

    def pointer(self, node: NodeId) -> str:
        return self._graph.pointer(node)

    def _find_cases(self, node: NodeId) -> tuple[Case, ...]:
        graph, known = self._graph, self._graph.nodes[node]
        if known.cases is None:
            graph.settle(node)
            if known.empty:
                known.cases = ()
            else:
                raw = graph.raw(node)
                for case in raw:
                    for child in led_to(case):
                        if graph.nodes[child].empty is None:
                            graph.settle(child)
                # Trimming makes properties required that the schema does not name so: order them first.
                possible = (trimmed(self._in_order(case), graph.is_empty, FALSE) for case in raw)
                known.cases = tuple(map(self._in_any_order, simplified(case for case in possible if case is not None)))
        return known.cases

    def _reachable(self) -> list[NodeId]:
        """All nodes that a value can enter, the root first."""
        order, seen = [self._root], {self._root}
        for node in order:
            for case in self.cases(node):
                for child in led_to(case):
                    if child not in seen:
                        seen.add(child)
                        order.append(child)
        return order

    def _in_order(self, case: Case) -> Case:
        """The case with its properties in the order that was asked for."""
        if self._order in ("schema", "any") or not isinstance(case, Object):
            return case
        wanted = {name: i for i, name in enumerate(self._order)} if isinstance(self._order, tuple) else {}
        by_need = self._order == "required-first"
        return replace(
            case,
            properties=tuple(
                sorted(case.properties, key=lambda p: (wanted.get(p.name, len(wanted)), by_need and not p.required))
            ),
        )

    def _in_any_order(self, case: Case) -> Case:
        """The case with its names in every order, if that was asked for."""
        if self._order != "any":
            return case
        if isinstance(case, Values):
            has_objects = any(isinstance(value, dict | list) for value in case.values)
            return replace(case, any_order=True) if has_objects else case
        if not isinstance(case, Object):
            return case
        several = len(case.properties) + bool(case.rest) > 1
        return replace(case, any_order=True) if several else case


def expand(
    schema: Any,
    *,
    format: str = "annotate",  # noqa: A002  # as the keyword is called
    order: Order = DEFAULT,
    documents: Mapping[str, Any] | None = None,
    closed: bool = False,
) -> Expansion:
    """The normal form of a schema.

    format: "annotate" ignores `format`; "assert" enforces the formats that are known. order: the order of properties,
    see `schema/order.py`. documents: documents that `$ref` and `$schema` may name, by address; nothing is ever fetched.
    closed: objects take no names that the schema does not declare, see `normal/closing.py`.

    Raises SchemaError, with a pointer, for a malformed schema, a reference to nothing, or a schema that no document can
    satisfy; UnsupportedError for a draft, document, format or pattern that is not supported; LimitExceeded.
    """
    if format not in ("annotate", "assert"):
        raise SchemaError(f"format={format!r} is neither 'annotate' nor 'assert'")
    if not isinstance(order, tuple) and order not in ORDERS:
        raise SchemaError(f"order={order!r} is neither {' nor '.join(map(repr, ORDERS))} nor a tuple of names")
    return Expansion(SchemaStore(schema, documents), formats=format == "assert", order=order, closed=closed)
