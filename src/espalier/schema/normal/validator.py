"""The validators of `jsonschema`, with patterns as ECMA-262 reads them and an exact `multipleOf`.

    validator_class(Draft202012Validator)({"pattern": r"^\\d$"}).is_valid("٣")      False

`jsonschema` itself searches with Python's `re`, whose `\\d` is the digits of all scripts. Every rule looks at the time
limit first. It knows neither the normal form nor texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

from espalier.schema.patterns.ecma import found
from espalier.schema.read.values import exact
from espalier.time_limit import check

Search: TypeAlias = Callable[[str, str], bool]
"""Whether a pattern matches somewhere in a text."""
KEPT = 64
"""Validator classes: one for each draft and function that searches."""


def is_panic(error: BaseException) -> bool:
    """Whether this is a panic of the validator's Rust library: what a RecursionError becomes there. It derives from
    BaseException, not from Exception."""
    return type(error).__name__ == "PanicException"


@lru_cache(maxsize=KEPT)
def validator_class(base: Any, search: Search = found) -> Any:
    """The validator class of one draft (a class of `jsonschema`). search: a function of a module: classes are kept,
    since making one costs more than most judgements."""
    from jsonschema.validators import extend  # noqa: PLC0415  # slow to import

    rules = base.VALIDATORS | {
        name: rule
        for name, rule in _rules(search, is_2019="$recursiveRef" in base.VALIDATORS).items()
        if name in base.VALIDATORS
    }  # a draft has no keyword of a later one
    extended: Any = extend(base, {name: _looking(rule) for name, rule in rules.items()})  # type: ignore[no-untyped-call]  # not in its stubs
    evolve = extended.evolve

    def evolve_with_rules(self: Any, **changes: Any) -> Any:
        """`evolve` takes the plain class for a schema that names its draft, as does the root behind `$ref: "#"`."""
        evolved = evolve(self, **changes)
        plain: Any = type(evolved)
        if plain is type(self):
            return evolved
        kind = extended if plain is base else validator_class(plain, search)
        return kind(
            evolved.schema,
            format_checker=evolved.format_checker,
            registry=evolved._registry,
            _resolver=evolved._resolver,
        )

    extended.evolve = evolve_with_rules
    return extended


def _looking(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule that first looks at the time limit: references let a small schema ask for a number of steps that doubles
    with each of its lines."""

    def rule_within_limit(validator: Any, wanted: Any, value: Any, schema: Any) -> Any:
        check()
        return rule(validator, wanted, value, schema)

    return rule_within_limit


def _rules(search: Search, *, is_2019: bool) -> dict[str, Callable[..., Any]]:
    """The rules that differ from those of `jsonschema`, by keyword."""
    from jsonschema import ValidationError  # noqa: PLC0415  # slow to import

    def multiple_of(validator: Any, factor: Any, value: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "number") and exact(value) % exact(factor):
            yield ValidationError(f"{value!r} is not a multiple of {factor}")

    def pattern(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "string") and not search(wanted, value):
            yield ValidationError(f"{value!r} does not match {wanted!r}")

    def pattern_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "object"):
            for expression, subschema in wanted.items():
                for name in value:
                    if search(expression, name):
                        yield from validator.descend(value[name], subschema, path=name, schema_path=expression)

    def matched(schema: Any, value: Any) -> set[str]:
        """Names that `properties` and `patternProperties` speak of."""
        patterns = schema.get("patternProperties", {})
        return {
            name
            for name in value
            if name in schema.get("properties", {}) or any(search(expression, name) for expression in patterns)
        }

    def additional_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if not validator.is_type(value, "object"):
            return
        known = matched(schema, value)
        others = [name for name in value if name not in known]
        if wanted is False and others:
            shown = ", ".join(map(repr, others))
            yield ValidationError(f"Additional properties are not allowed ({shown} unexpected)")
        elif wanted is not False:
            for name in others:
                yield from validator.descend(value[name], wanted, path=name)

    def holds(validator: Any, subschema: Any, part: Any) -> bool:
        return next(validator.descend(part, subschema), None) is None

    def applied(validator: Any, value: Any, schema: Any) -> Iterator[tuple[Any, Any]]:
        """The schemas within a schema that apply to the same value and hold, each with its validator."""
        for keyword in _REFERENCES:
            if keyword in schema and keyword in validator.VALIDATORS:
                resolved = _REFERENCES[keyword](validator._resolver, schema[keyword])
                yield validator.evolve(schema=resolved.contents, _resolver=resolved.resolver), resolved.contents
        if isinstance(value, dict):
            yield from ((validator, kid) for name, kid in schema.get("dependentSchemas", {}).items() if name in value)
        for keyword in ("allOf", "oneOf", "anyOf"):
            yield from ((validator, kid) for kid in schema.get(keyword, ()) if holds(validator, kid, value))
        if "if" in schema:
            fits = holds(validator, schema["if"], value)
            names = ("if", "then") if fits else ("else",)
            yield from ((validator, schema[name]) for name in names if name in schema)

    def evaluated(validator: Any, value: Any, schema: Any) -> set[str]:
        """Names that the keywords of a schema evaluate, those within it included."""
        if not isinstance(schema, dict):
            return set()
        names = matched(schema, value)
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if keyword in schema:
                names |= {name for name, part in value.items() if holds(validator, schema[keyword], part)}
        return names.union(*(evaluated(inner, value, kid) for inner, kid in applied(validator, value, schema)))

    def evaluated_items(validator: Any, value: Any, schema: Any) -> set[int]:
        """Positions that the keywords of a schema of 2019-09 evaluate: `contains` evaluates none there."""
        if not isinstance(schema, dict):
            return set()
        items = schema.get("items", [])
        is_whole = not isinstance(items, list) or ("items" in schema and "additionalItems" in schema)
        positions = set(range(len(value) if is_whole else min(len(items), len(value))))
        if _UNEVALUATED_ITEMS in schema:
            positions |= {at for at, part in enumerate(value) if holds(validator, schema[_UNEVALUATED_ITEMS], part)}
        return positions.union(
            *(evaluated_items(inner, value, kid) for inner, kid in applied(validator, value, schema))
        )

    def unevaluated_properties(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "object"):
            known = evaluated(validator, value, {key: inner for key, inner in schema.items() if key != _UNEVALUATED})
            for name in value:
                if name not in known and next(validator.descend(value[name], wanted, path=name), None) is not None:
                    yield ValidationError(f"Unevaluated properties are not allowed ({name!r} was unexpected)")

    def unevaluated_items(validator: Any, wanted: Any, value: Any, schema: Any) -> Iterator[Any]:
        if validator.is_type(value, "array"):
            others = {key: inner for key, inner in schema.items() if key != _UNEVALUATED_ITEMS}
            known = evaluated_items(validator, value, others)
            for at, part in enumerate(value):
                if at not in known and not holds(validator, wanted, part):
                    yield ValidationError(f"Unevaluated items are not allowed ({part!r} was unexpected)")

    # The library's rule of 2019-09 fails where `items` is a boolean, and lets `contains` evaluate items.
    of_draft = {_UNEVALUATED_ITEMS: unevaluated_items} if is_2019 else {}
    return of_draft | {
        "multipleOf": multiple_of,
        "pattern": pattern,
        "patternProperties": pattern_properties,
        "additionalProperties": additional_properties,
        _UNEVALUATED: unevaluated_properties,
    }


_UNEVALUATED = "unevaluatedProperties"
_UNEVALUATED_ITEMS = "unevaluatedItems"


def _recursive(resolver: Any, reference: str) -> Any:
    from referencing.jsonschema import lookup_recursive_ref  # noqa: PLC0415  # slow to import

    return lookup_recursive_ref(resolver)


_REFERENCES: dict[str, Callable[[Any, str], Any]] = {
    "$ref": lambda resolver, reference: resolver.lookup(reference),
    "$dynamicRef": lambda resolver, reference: resolver.lookup(reference),
    "$recursiveRef": _recursive,
}
