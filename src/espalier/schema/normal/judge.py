"""Judges whether a given value satisfies a literal: for the values of `enum` and `const`, and for property names.

    holds(literal of {"minimum": 1}, 0)      False

Scalars are judged here, exactly; arrays and objects by the `jsonschema` package. Formats, where they are asserted, are
those of `patterns/formats.py`. It builds no normal form.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

from espalier.errors import Cancelled, LimitExceeded, SchemaError
from espalier.schema.normal.literals import LiteralTable, SchemaLiteral
from espalier.schema.normal.validator import is_panic, validator_class
from espalier.schema.patterns.ecma import found
from espalier.schema.patterns.formats import FORMATS, NARROWER
from espalier.schema.read.documents import Document, Subschema
from espalier.schema.read.values import ARRAY, NUMBER, OBJECT, STRING, exact, is_whole, key, type_of


class UndecidedValue(Exception):
    """Whether the value fits cannot be told."""


class ValueJudge:
    """Judges values by the literals of one table."""

    def __init__(self, table: LiteralTable) -> None:
        self.table = table
        self.validators: dict[Subschema, Any] = {}
        self.registry: Any = None

    def holds(self, literal: SchemaLiteral, value: Any) -> bool:
        """Whether a value satisfies a literal. Raises UndecidedValue where that cannot be told, LimitExceeded."""
        return self.judge(literal, value, type_of(value), 0)

    def judge(self, literal: SchemaLiteral, value: Any, kind: int, depth: int) -> bool:
        if literal.constant:
            return literal.constant > 0
        if depth > 100:
            raise SchemaError("this schema refers to itself without end", pointer=literal.subschema.at())
        if kind not in (ARRAY, OBJECT) or all(name in ("type", "values") for name, _ in literal.ops):
            return self.scalar(literal, value, kind, depth) is literal.positive
        return self.container(literal, value) is literal.positive

    def scalar(self, literal: SchemaLiteral, value: Any, kind: int, depth: int) -> bool:
        def fits(subschema: Subschema) -> bool:
            return self.judge(self.table.literal(subschema, literal, True), value, kind, depth + 1)

        for name, stated in literal.ops:
            if name in TESTS:
                wanted, test = TESTS[name]
                if kind == wanted and not test(stated, value):
                    return False
            elif name == "type":
                mask, whole = stated
                if not mask & kind:
                    return False
                if kind == NUMBER and whole and not is_whole(value):
                    return False
            elif name == "values":
                if key(value) not in stated[0]:
                    return False
            elif name == "format":
                if kind == STRING and not _in_format(stated, value):
                    return False
            elif name in APPLIED and not APPLIED[name](self, literal, stated, fits):
                return False
        return True

    def container(self, literal: SchemaLiteral, value: Any) -> bool:
        """Judge with `jsonschema`. It starts at the subschema, so it cannot know the dynamic scope."""
        if literal.scope[1:]:
            raise UndecidedValue
        try:
            return bool(self.validator(literal.subschema).is_valid(_plain(value)))
        except RecursionError:
            raise LimitExceeded(
                f"the schema at {literal.subschema.at()} is nested too deeply to judge a value"
            ) from None
        except (LimitExceeded, Cancelled):
            raise
        except Exception as error:  # a fault of the validator is no verdict
            raise UndecidedValue from error
        except BaseException as error:
            if not is_panic(error):
                raise
            raise UndecidedValue from error

    def validator(self, subschema: Subschema) -> Any:
        if subschema not in self.validators:
            import jsonschema  # noqa: PLC0415  # slow to import, rarely needed
            from referencing import Registry  # noqa: PLC0415  # slow to import, rarely needed
            from referencing.jsonschema import specification_with  # noqa: PLC0415

            if self.registry is None:
                registry: Any = Registry()
                store = self.table.store
                documents = {_address(resource.document): resource.document for resource in store.resources.values()}
                documents |= {uri: resource.document for uri, resource in store.resources.items() if resource.outer}
                for uri, document in documents.items():
                    draft = document.root.resource.draft
                    resource: Any = specification_with(draft.uri).create_resource(document.contents)
                    registry = registry.with_resource(uri, resource)
                self.registry = registry
            draft = subschema.resource.draft
            schema: Any = subschema.value
            if subschema.pointer in subschema.resource.document.subschemas:
                schema = {"$ref": f"{_address(subschema.resource.document)}#{_quote_pointer(subschema.pointer)}"}
            self.validators[subschema] = validator_class(getattr(jsonschema, draft.validator))(
                schema,
                registry=self.registry,
                format_checker=_format_checker(draft.formats) if self.table.formats else None,
            )
        return self.validators[subschema]


def _address(document: Document) -> str:
    return document.root.resource.uri or document.shown.rstrip("#") or "urn:espalier:schema"


def _quote_pointer(pointer: str) -> str:
    return pointer.replace("%", "%25").replace("#", "%23").replace(" ", "%20")


def _plain(value: Any) -> Any:
    """Whole numbers as int (draft 4 accepts no others as integers), Decimals as float."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, Decimal | float):
        return int(value) if value == int(value) else float(value)
    return value


@cache
def _format_checker(names: frozenset[str]) -> Any:
    from jsonschema import FormatChecker  # noqa: PLC0415  # slow to import, rarely needed

    checker = FormatChecker(formats=())
    for name in names:
        checker.checks(name)(lambda value, name=name: not isinstance(value, str) or _in_format(name, value))
    return checker


def _in_format(name: str, text: str) -> bool:
    """Raises UndecidedValue where our pattern is narrower than the specification of the format, and does not match,
    though `jsonschema` sees no fault."""
    from jsonschema import FormatChecker  # noqa: PLC0415  # slow to import, rarely needed

    if re.fullmatch(FORMATS[name], text):
        return True
    if name in NARROWER and FormatChecker().conforms(text, name):
        raise UndecidedValue
    return False


def _low(stated: tuple[Fraction, bool, str], value: Any) -> bool:
    bound, strict, _ = stated
    return exact(value) > bound if strict else exact(value) >= bound


def _high(stated: tuple[Fraction, bool, str], value: Any) -> bool:
    bound, strict, _ = stated
    return exact(value) < bound if strict else exact(value) <= bound


def _multiple(stated: Fraction, value: Any) -> bool:
    return not exact(value) % stated


TESTS: dict[str, tuple[int, Callable[[Any, Any], bool]]] = {
    "low": (NUMBER, _low),
    "high": (NUMBER, _high),
    "multiple": (NUMBER, _multiple),
    "min_length": (STRING, lambda stated, value: len(value) >= stated),
    "max_length": (STRING, lambda stated, value: len(value) <= stated),
    "pattern": (STRING, found),
}

Test = Callable[[Subschema], bool]


def _ref(judge: ValueJudge, literal: SchemaLiteral, stated: Any, test: Test) -> bool:
    return test(judge.table.target(literal, stated))


def _if(judge: ValueJudge, literal: SchemaLiteral, stated: Any, test: Test) -> bool:
    kids = literal.subschema.kids
    chosen = kids.get("then" if test(kids["if"]) else "else")
    return chosen is None or test(chosen)


APPLIED: dict[str, Callable[[ValueJudge, SchemaLiteral, Any, Test], bool]] = {
    "ref": _ref,
    "all": lambda _, literal, stated, test: all(map(test, literal.subschema.kids["allOf"].values())),
    "any": lambda _, literal, stated, test: any(map(test, literal.subschema.kids["anyOf"].values())),
    "one": lambda _, literal, stated, test: sum(map(test, literal.subschema.kids["oneOf"].values())) == 1,
    "not": lambda _, literal, stated, test: not test(literal.subschema.kids["not"]),
    "if": _if,
}
