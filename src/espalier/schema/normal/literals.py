"""Schema literals: a subschema that must hold, or must not (a literal in the sense of logic), and the table of them.

    not {"$ref": "#/$defs/a"}      SchemaLiteral(subschema of /$defs/a, positive=False)

Everything above speaks of schemas only through these. A schema that is nothing but a reference has no literal of its
own: its target has. What a literal says of a value is in `keywords/`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from espalier.errors import SchemaError
from espalier.schema.normal.operations import Operation, operations
from espalier.schema.read.documents import Resource, SchemaStore, Subschema
from espalier.time_limit import check as check_time

Scope: TypeAlias = tuple[Resource, ...]
"""The resources that were entered, outermost first, each once: what `$dynamicRef` and `$recursiveRef` depend on. Empty
in schemas that have neither."""


class SchemaLiteral:
    """A subschema that must hold (positive), or must not.

    constant: 1 if every value fits, -1 if none does, else 0. ops: the operations of the subschema. origins: what caused
    a negation: pointers of keywords (`not`, `oneOf`, …), or the negated literals that this one is part of. group: the
    `ObjectGroup` of the schema, once it was asked for.
    """

    __slots__ = ("constant", "group", "ops", "origins", "positive", "scope", "subschema")

    def __init__(
        self, subschema: Subschema, scope: Scope, positive: bool, constant: int, ops: tuple[Operation, ...]
    ) -> None:
        self.subschema = subschema
        self.scope = scope
        self.positive = positive
        self.constant = constant
        self.ops = ops
        self.origins: dict[str | SchemaLiteral, None] = {}
        self.group: Any = None

    def __repr__(self) -> str:
        return f"{'' if self.positive else 'not '}{self.subschema.pointer or '/'}"

    @property
    def origin(self) -> str:
        """The pointer of the first keyword that caused the negation."""
        return next(iter(self.all_origins()))

    def all_origins(self) -> list[str]:
        """The pointers of all keywords known so far to cause the negation; if none does, the subschema's pointer."""
        pointers: dict[str, None] = {}
        stack, seen = [self], {self}
        while stack:
            check_time()
            for origin in stack.pop().origins:
                if isinstance(origin, str):
                    pointers[origin] = None
                elif origin not in seen:
                    seen.add(origin)
                    stack.append(origin)
        return list(pointers) or [self.subschema.at()]

    @property
    def rank(self) -> tuple[int, bool]:
        """Sorts literals by their position in the text."""
        return (self.subschema.order, self.positive)


class ObjectGroup:
    """`properties`, `patternProperties` and `additionalProperties` of one schema, or of an `unevaluatedProperties`
    rewritten as such. at: the pointer to name in messages about its patterns. found: answers of `facts.cover`."""

    __slots__ = ("at", "found", "patterns", "properties", "rest")

    def __init__(
        self,
        properties: dict[str, SchemaLiteral],
        patterns: tuple[tuple[str, SchemaLiteral], ...],
        rest: SchemaLiteral | None,
        at: str,
    ) -> None:
        self.at = at
        self.properties = properties
        self.patterns = patterns
        self.rest = rest
        self.found: dict[str, tuple[SchemaLiteral, ...]] = {}


class ArrayGroup:
    """`prefixItems` and `items` of one schema, or of an `unevaluatedItems` rewritten as such. None: any value."""

    __slots__ = ("prefix", "rest")

    def __init__(self, prefix: tuple[SchemaLiteral | None, ...], rest: SchemaLiteral | None) -> None:
        self.prefix = prefix
        self.rest = rest


class LiteralTable:
    """One literal for each subschema, scope and sign, made when first asked for.

    formats: `format` is asserted. closed: objects take no undeclared names (`closing.py`). unevaluated: some schema has
    an `unevaluated*` keyword. reached: the subschemas whose operations were read. anything, nothing: the literals that
    every value fits, and that none does.
    """

    def __init__(self, store: SchemaStore, *, formats: bool, closed: bool = False) -> None:
        self.store = store
        self.formats = formats
        self.closed = closed
        self.unevaluated = bool({"unevaluatedProperties", "unevaluatedItems"} & store.keywords)
        self.reached: set[Subschema] = set()
        self.anything = SchemaLiteral(store.main.root, (), True, 1, ())
        self.nothing = SchemaLiteral(store.main.root, (), True, -1, ())
        self._scoped = bool({"$dynamicRef", "$recursiveRef"} & store.keywords)
        self._known: dict[tuple[Subschema, Scope, bool], SchemaLiteral] = {}

    def literal(
        self, subschema: Subschema, parent: SchemaLiteral | None, positive: bool, origin: str | SchemaLiteral = ""
    ) -> SchemaLiteral:
        """The literal of a subschema that stands in the parent, or that the parent refers to. References are followed.

        origin: what causes the negation, where it is one. Raises SchemaError for a reference that leads to itself.
        """
        scope = () if parent is None else parent.scope
        seen: set[Subschema] = set()
        while True:
            if self._scoped and subschema.resource not in scope:
                scope = (*scope, subschema.resource)
            known = self._known.get((subschema, scope, positive))
            if known is not None:
                if origin and not positive:
                    known.origins[origin] = None
                return known
            ops = self._operations(subschema)
            if len(ops) != 1 or ops[0][0] != "ref":
                break
            if subschema in seen:
                raise SchemaError("this reference leads to itself", pointer=subschema.at(ops[0][1]))
            check_time()
            seen.add(subschema)
            subschema = self.target(SchemaLiteral(subschema, scope, True, 0, ops), ops[0][1])
        constant = (-1 if subschema.value is False else 0 if ops else 1) * (1 if positive else -1)
        literal = SchemaLiteral(subschema, scope, positive, constant, ops)
        if origin and not positive:
            literal.origins[origin] = None
        self._known[subschema, scope, positive] = literal
        return literal

    def _operations(self, subschema: Subschema) -> tuple[Operation, ...]:
        if subschema.ops is None:
            self.reached.add(subschema)
            read = not isinstance(subschema.value, bool)
            subschema.ops = (
                tuple(operations(subschema, formats=self.formats, unevaluated=self.unevaluated, closed=self.closed))
                if read
                else ()
            )
        ops: tuple[Operation, ...] = subschema.ops
        return ops

    def target(self, literal: SchemaLiteral, keyword: str) -> Subschema:
        """The target of a literal's `$ref`, `$dynamicRef` or `$recursiveRef`. Raises SchemaError, UnsupportedError."""
        subschema = literal.subschema
        if keyword == "$recursiveRef":
            target = subschema.resource.root
            if target.resource.recursive:
                for resource in reversed(literal.scope):
                    if not resource.recursive:
                        break
                    target = resource.root
            return target
        target, fragment = self.store.resolve(subschema, subschema.value[keyword], keyword)
        if keyword == "$dynamicRef" and target.resource.dynamic.get(fragment) is target:
            for resource in literal.scope:
                if fragment in resource.dynamic:
                    return resource.dynamic[fragment]
        return target
