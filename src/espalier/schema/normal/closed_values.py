"""Finds undeclared names in a value of a closed schema (`closing.py`), without the normal form.

    ClosedValues({"properties": {"a": {}}}).undeclared({"a": 1, "b": 2})      ["$: 'b' is not declared"]

It walks the value with the schemas that apply to it. Which options of `anyOf`, `oneOf` and `if` apply is up to the
`jsonschema` package; the value itself is valid, which the caller has made sure of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from espalier.schema.normal.closing import says_others
from espalier.schema.normal.judge import UndecidedValue, ValueJudge
from espalier.schema.normal.literals import LiteralTable, SchemaLiteral
from espalier.schema.patterns.ecma import found
from espalier.schema.read.documents import SchemaStore, Subschema
from espalier.time_limit import check as check_time

MAX_WAYS = 20_000
"""Combinations of options that are tried for one value."""


class ClosedValues:
    """Judges the values of one schema. Raises as `SchemaStore` does."""

    def __init__(self, schema: Any, *, documents: Mapping[str, Any] | None = None, formats: bool = False) -> None:
        store = SchemaStore(schema, documents)
        self._table = LiteralTable(store, formats=formats, closed=True)
        self._judge = ValueJudge(self._table)
        self._root = self._table.literal(store.main.root, None, True)
        self._ways = 0

    def undeclared(self, value: Any) -> list[str]:
        """Messages on names that no schema declares, with their places; [] where the value is closed. value: valid
        under the schema. Raises UndecidedValue where that cannot be told."""
        self._ways = 0
        return self._errors((self._root,), value, "$")

    def _errors(self, literals: Sequence[SchemaLiteral], value: Any, path: str) -> list[str]:
        """What is undeclared with the combination of options that leaves the least."""
        if not isinstance(value, dict | list) or not literals:
            return []
        best: list[str] | None = None
        for applied in self._ways_to_apply(list(literals), (), value):
            check_time()
            self._ways += 1
            if self._ways > MAX_WAYS:
                raise UndecidedValue
            errors = self._errors_with(applied, value, path)
            if not errors:
                return []
            if best is None or len(errors) < len(best):
                best = errors
        return best or []

    def _ways_to_apply(
        self, todo: list[SchemaLiteral], applied: tuple[SchemaLiteral, ...], value: Any
    ) -> Iterator[tuple[SchemaLiteral, ...]]:
        """The schemas that apply to the value itself: one list for each choice among options that all hold."""
        todo = list(todo)
        while todo:
            literal = todo.pop()
            if literal.constant or literal in applied:
                continue
            applied = (*applied, literal)
            todo += self._in_place(literal, value)
            options = [self._inner(literal, kid) for kid in _kids(literal, "anyOf")]
            holding = [option for option in options if option.constant >= 0 and self._judge.holds(option, value)]
            if len(holding) > 1:
                for chosen in (*([option] for option in holding), holding):
                    yield from self._ways_to_apply([*todo, *chosen], applied, value)
                return
            todo += holding
        yield applied

    def _in_place(self, literal: SchemaLiteral, value: Any) -> Iterator[SchemaLiteral]:
        """The schemas of a schema that apply to the same value, besides those of `anyOf`."""
        for name, stated in literal.ops:
            if name == "ref":
                yield self._inner(literal, self._table.target(literal, stated))
            elif name == "all":
                yield from (self._inner(literal, kid) for kid in _kids(literal, "allOf"))
            elif name == "one":
                options = (self._inner(literal, kid) for kid in _kids(literal, "oneOf"))
                yield from (option for option in options if option.constant >= 0 and self._judge.holds(option, value))
            elif name == "if":
                condition = self._inner(literal, literal.subschema.kids["if"])
                is_met = self._judge.holds(condition, value)
                if is_met:
                    yield condition
                chosen = literal.subschema.kids.get("then" if is_met else "else")
                if chosen is not None:
                    yield self._inner(literal, chosen)
            elif name == "dependent_schemas" and isinstance(value, dict):
                kids: Mapping[str, Subschema] = literal.subschema.kids.get(stated) or {}
                yield from (self._inner(literal, kid) for name, kid in kids.items() if name in value)

    def _errors_with(self, applied: tuple[SchemaLiteral, ...], value: Any, path: str) -> list[str]:
        if any(name == "values" for literal in applied for name, _ in literal.ops):
            return []  # the value is listed as a whole
        if isinstance(value, list):
            return [
                error
                for index, item in enumerate(value)
                for error in self._item_errors(applied, value, index, item, f"{path}[{index}]")
            ]
        errors = [f"{path}: {name!r:.100} is not declared" for name in _undeclared_names(applied, value)]
        for name, inner in value.items():
            errors += self._errors(self._of_property(applied, name), inner, f"{path}.{name}")
        return errors

    def _item_errors(
        self, applied: tuple[SchemaLiteral, ...], value: list[Any], index: int, item: Any, path: str
    ) -> list[str]:
        literals, counted = self._of_item(applied, index, item)
        errors = self._errors(literals, item, path)
        return errors and self._errors((*literals, *counted), item, path) if counted else errors

    def _of_property(self, applied: tuple[SchemaLiteral, ...], name: str) -> list[SchemaLiteral]:
        """The schemas of a property's value."""
        stated: list[SchemaLiteral] = []
        unevaluated: list[SchemaLiteral] = []
        for literal in applied:
            kids = literal.subschema.kids
            mine = [kids["properties"][name]] if name in kids.get("properties", ()) else []
            mine += [kid for pattern, kid in kids.get("patternProperties", {}).items() if found(pattern, name)]
            if not mine and "additionalProperties" in kids:
                mine = [kids["additionalProperties"]]
            stated += [self._inner(literal, kid) for kid in mine]
            if "unevaluatedProperties" in kids:
                unevaluated.append(self._inner(literal, kids["unevaluatedProperties"]))
        return stated or unevaluated

    def _of_item(
        self, applied: tuple[SchemaLiteral, ...], index: int, item: Any
    ) -> tuple[list[SchemaLiteral], list[SchemaLiteral]]:
        """The schemas of an item, and those of `contains` that it satisfies: they may count for it or not."""
        stated: list[SchemaLiteral] = []
        counted: list[SchemaLiteral] = []
        for literal in applied:
            kids, items = literal.subschema.kids, literal.subschema.kids.get("items")
            is_listed = isinstance(literal.subschema.value.get("items"), list)
            first: Mapping[int, Subschema] = (items if is_listed else kids.get("prefixItems")) or {}
            rest = kids.get("additionalItems") if is_listed else items
            mine = first.get(index, rest)
            if mine is not None:
                stated.append(self._inner(literal, mine))
            if "contains" in kids:
                match = self._inner(literal, kids["contains"])
                if match.constant == 0 and self._judge.holds(match, item):
                    counted.append(match)
        return stated, counted

    def _inner(self, literal: SchemaLiteral, subschema: Subschema) -> SchemaLiteral:
        return self._table.literal(subschema, literal, True)


def _kids(literal: SchemaLiteral, keyword: str) -> Sequence[Subschema]:
    if keyword not in literal.subschema.resource.draft.keywords:
        return ()
    return list((literal.subschema.kids.get(keyword) or {}).values())


def _undeclared_names(applied: tuple[SchemaLiteral, ...], value: Mapping[str, Any]) -> list[str]:
    """The names of an object that no schema declares; [] where the object is not closed."""
    declared: set[str] = set()
    declares = False
    for literal in applied:
        schema = literal.subschema.value
        if says_others(schema, literal.subschema.resource.draft.keywords):
            return []
        if "properties" in schema:
            declares = True
            declared |= schema["properties"].keys()
        for name, stated in literal.ops:
            if name == "required":
                declared |= set(stated)
            elif name == "dependent_required":
                declared |= {other for present, others in stated[0].items() if present in value for other in others}
    return [name for name in value if name not in declared] if declares else []
