"""An object of a schema as the arguments of a call: `(city="Paris", days=3)`, each name as an identifier of Python.

What has a name that cannot be written is left out. It knows nothing of values: what an argument holds is another rule.
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
from espalier.schema.gbnf.layout import Layout
from espalier.schema.gbnf.linear import join
from espalier.schema.gbnf.notation import Constants, argument_names, is_argument
from espalier.schema.gbnf.objects import Objects, Place
from espalier.schema.gbnf.spelling import literal
from espalier.schema.pointers import below

OTHERS = "names that are not declared are ASCII identifiers and no keywords; nothing stops one from coming twice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments(Objects):
    """Converts the object at the top. pointer: where a node comes from. text: what an automaton accepts, as rules."""

    brackets: ClassVar[tuple[str, str]] = ("(", ")")
    pointer: Callable[[NodeId], str]
    text: Callable[[Dfa, Place], Node]

    def writable(self, case: Object, place: Place) -> Object:
        """Without the optional properties that cannot be written. Raises SchemaError for a required one."""
        for prop in case.properties:
            if is_argument(prop.name):
                continue
            if prop.required:
                raise SchemaError(unwritable(prop.name), pointer=self._at(prop, place))
            self.book.note(place.pointer, "properties", f"{unwritable(prop.name)}: it is left out")
        return replace(case, properties=tuple(prop for prop in case.properties if is_argument(prop.name)))

    def _at(self, prop: Property, place: Place) -> str:
        """The node says it best, unless it is elsewhere because of a reference."""
        found = self.pointer(prop.node)
        return found if found.endswith(below("", prop.name)) else below(place.pointer, "properties", prop.name)

    def _key(self, name: str) -> Node:
        return Literal(name)

    def _member(self, name: Node, value: Node) -> Node:
        return join(name, join(Literal("="), value))

    def _name(self, group: Rest, declared: tuple[str, ...], allowed: Dfa | None, place: Place) -> Node:
        keyword = "patternProperties" if group.patterns else "additionalProperties"
        wanted = String(patterns=group.patterns, not_patterns=group.not_patterns, excluded=declared)
        inside = replace(place, base=f"{place.base}-key")
        self.book.note(place.pointer, keyword, OTHERS)
        try:
            found = both(self.strings.language(wanted, keyword, place.pointer), argument_names())
            found = found if allowed is None else both(found, allowed)
            return NEVER if found is None else self.text(found.minimised(), inside)
        except LimitExceeded as error:
            self.book.gap(place.pointer, keyword, error.message)
        found = without(argument_names(), Dfa.of_words(declared) if declared else None)
        return NEVER if found is None else self.text(found, inside)


def constant_arguments(value: dict[str, Any], layout: Layout, constants: Constants, pointer: str) -> Node:
    """One object as arguments. Raises SchemaError for a name that cannot be written."""
    for name in value:
        if not is_argument(name):
            raise SchemaError(unwritable(name), pointer=pointer)
    if not value:
        return join(Literal("("), join(layout.blank, Literal(")")))
    node = join(layout.last(0), Literal(")"))
    for i, (name, inner) in reversed(list(enumerate(value.items()))):
        before = layout.between(0) if i else layout.first(0)
        node = join(before, join(Literal(f"{name}="), join(literal(inner, layout, 0, constants), node)))
    return join(Literal("("), node)


def unwritable(name: str) -> str:
    return f"the name {name!r} cannot be written as an argument in Python"
