"""Writes a schema as the arguments of a Python call: `(city="Paris", days=3)` for the document `{"city": …, "days":
3}`.

Only objects can be written so, and only those whose names are Python identifiers; the rest is left out with a note. The
objects themselves are in `arguments.py`.
"""

from __future__ import annotations

from typing import Any

from espalier.errors import LimitExceeded, SchemaError
from espalier.grammar.ast import Node
from espalier.schema.form import Case, NormalForm, Object, Values
from espalier.schema.lowering.arguments import ArgumentRules
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.linear import choice
from espalier.schema.lowering.node_rules import NodeRules
from espalier.schema.lowering.notation import Constants
from espalier.schema.lowering.rulebook import Remark, RuleContext
from espalier.schema.lowering.spelling import Members

ONLY_OBJECTS = "only objects can be written as arguments"


class CallRules(NodeRules):
    """Converts the root to arguments of a call, and every other node as `NodeRules` does. Where the schema refers back
    to its root, the value is a dict."""

    def __init__(self, form: NormalForm, written: Layout, constants: Constants) -> None:
        super().__init__(form, written, constants)
        self._arguments = ArgumentRules(
            book=self._book,
            strings=self._strings,
            layout=written,
            value=self._value,
            cases=form.cases,
            pointer=form.pointer,
            text=self._language,
        )
        self._refused: list[SchemaError] = []

    def _root(self, context: RuleContext) -> Node:
        return choice([node for case in self._form.cases(self._form.root) for node in self._calls(case, context)])

    def _calls(self, case: Case, context: RuleContext) -> list[Node]:
        """A case as arguments of a call. Values that cannot be written so are left out, with a note."""
        match case:
            case Object():
                try:
                    writable = self._arguments.writable(case, context)
                except SchemaError as error:
                    self._leave_out(error, context)
                    return []
                return [self._arguments.node(writable, context)]
            case Values(values=values):
                members = self._members(context) if case.any_order else None
                return [node for value in values for node in self._constant(value, context, members)]
            case _:
                self._book.note(context.pointer, "type", ONLY_OBJECTS)
                return []

    def _constant(self, value: Any, context: RuleContext, members: Members | None) -> list[Node]:
        if not isinstance(value, dict):
            self._book.note(context.pointer, "type", ONLY_OBJECTS)
            return []
        try:
            return [self._arguments.written(value, context, members)]
        except SchemaError as error:
            self._leave_out(error, context)
            return []

    def _leave_out(self, error: SchemaError, context: RuleContext) -> None:
        self._refused.append(error)
        self._book.note(context.pointer, "required", f"{error.message}: the objects that need it are left out")

    def _nothing(self) -> SchemaError | LimitExceeded:
        if self._refused:
            return self._refused[0]
        if Remark(self._form.pointer(self._form.root), "type", ONLY_OBJECTS) in self._book.notes:
            return SchemaError(f"{ONLY_OBJECTS}, and none satisfies it", pointer=self._form.pointer(self._form.root))
        return super()._nothing()
