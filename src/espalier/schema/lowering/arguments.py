"""Writes an object as the arguments of a Python call: `(city="Paris", days=3)`, each name as a Python identifier.

A property whose name is no identifier is left out. It does not know values: what an argument holds is another rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from espalier.automata.languages.algebra import both, without
from espalier.automata.languages.dfa import Dfa
from espalier.errors import LimitExceeded, SchemaError
from espalier.grammar.ast import NEVER, Literal, Node
from espalier.schema.form import NodeId, Object, Property, Rest, String
from espalier.schema.lowering.notation import argument_names, is_argument
from espalier.schema.lowering.objects import ObjectRules
from espalier.schema.lowering.rulebook import RuleContext
from espalier.schema.lowering.spelling import Members, literal
from espalier.schema.pointers import below

OTHERS = "undeclared names are ASCII identifiers and no keywords; the grammar does not keep one from coming twice"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentRules(ObjectRules):
    """Converts the object at the top. pointer: where in the schema a node comes from. text: writes an automaton's
    language as rules."""

    brackets: ClassVar[tuple[str, str]] = ("(", ")")
    pointer: Callable[[NodeId], str]
    text: Callable[[Dfa, RuleContext], Node]

    def writable(self, case: Object, context: RuleContext) -> Object:
        """The object without optional properties whose names are no identifiers. Raises SchemaError for a required
        one."""
        for prop in case.properties:
            if is_argument(prop.name):
                continue
            if prop.required:
                raise SchemaError(unwritable(prop.name), pointer=self._at(prop, context))
            self.book.note(context.pointer, "properties", f"{unwritable(prop.name)}: it is left out")
        return replace(case, properties=tuple(prop for prop in case.properties if is_argument(prop.name)))

    def written(self, value: dict[str, Any], context: RuleContext, members: Members | None) -> Node:
        """One constant object as arguments; with `members` in every order. Raises SchemaError for a name that is no
        identifier."""
        for name in value:
            if not is_argument(name):
                raise SchemaError(unwritable(name), pointer=context.pointer)
        layout, constants = self.layout, self.book.constants
        parts = [
            self.member(Literal(name), literal(inner, layout, 0, constants, members)) for name, inner in value.items()
        ]
        if members is not None:
            return self.constant(parts, context)
        return self._in_order(parts, context)

    def _at(self, prop: Property, context: RuleContext) -> str:
        """The pointer of a property: the node's own, unless a reference leads elsewhere."""
        written = self.pointer(prop.node)
        return written if written.endswith(below("", prop.name)) else below(context.pointer, "properties", prop.name)

    def key(self, name: str) -> str:
        return name

    def colon(self) -> Node:
        return Literal("=")

    def _name(self, group: Rest, declared: tuple[str, ...], allowed: Dfa | None, context: RuleContext) -> Node:
        keyword = "patternProperties" if group.patterns else "additionalProperties"
        wanted = String(patterns=group.patterns, not_patterns=group.not_patterns, excluded=declared)
        inside = replace(context, base=f"{context.base}-key")
        self.book.note(context.pointer, keyword, OTHERS)
        try:
            names = both(self.strings.language(wanted, keyword, context.pointer), argument_names())
            names = names if allowed is None else both(names, allowed)
            return NEVER if names is None else self.text(names.minimised(), inside)
        except LimitExceeded as error:
            self.book.gap(context.pointer, keyword, error.message)
        names = without(argument_names(), Dfa.of_words(declared) if declared else None)
        return NEVER if names is None else self.text(names, inside)


def unwritable(name: str) -> str:
    return f"the name {name!r} cannot be written as an argument in Python"
