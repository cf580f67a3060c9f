"""Whether a value that is known fits a schema: where `enum` and `const` list values, and where names are declared.

Scalars are judged here, exactly; arrays and objects by the `jsonschema` package. Formats are what
`patterns/formats.py` says, where they are asserted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, Protocol

from espalier.errors import LimitExceeded, SchemaError
from espalier.schema.normal.literals import Literal
from espalier.schema.patterns.cost import slow_pattern
from espalier.schema.patterns.ecma import found
from espalier.schema.patterns.formats import FORMATS, NARROWER
from espalier.schema.read.documents import Document, Place, Store
from espalier.schema.read.values import ARRAY, NUMBER, OBJECT, STRING, exact, is_whole, key, type_of


def is_panic(error: BaseException) -> bool:
    """Whether it is what a RecursionError becomes inside the validator's library in Rust, which is no Exception."""
    return type(error).__name__ == "PanicException"


class Reader(Protocol):
    """What it asks of the expansion."""

    store: Store
    formats: bool
    """They are asserted."""

    def literal(self, place: Place, parent: Literal, positive: bool) -> Literal: ...

    def target(self, literal: Literal, keyword: str) -> Place: ...


class Undecided(Exception):
    """The validator gave no answer."""


class Oracle:
    """holds(literal, value): raises Undecided where nobody can say."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.validators: dict[Place, Any] = {}
        self.registry: Any = None
        self.slow: dict[int, bool] = {}
        """By the length of a text: whether some pattern might take too long on it."""

    def holds(self, literal: Literal, value: Any) -> bool:
        return self.judge(literal, value, type_of(value), 0)

    def judge(self, literal: Literal, value: Any, kind: int, depth: int) -> bool:
        if literal.constant:
            return literal.constant > 0
        if depth > 100:
            raise SchemaError("this schema refers to itself without end", pointer=literal.place.at())
        if kind not in (ARRAY, OBJECT) or all(name in ("type", "values") for name, _ in literal.ops):
            return self.scalar(literal, value, kind, depth) is literal.positive
        return self.container(literal, value) is literal.positive

    def scalar(self, literal: Literal, value: Any, kind: int, depth: int) -> bool:
        def fits(place: Place) -> bool:
            return self.judge(self.reader.literal(place, literal, True), value, kind, depth + 1)

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

    def container(self, literal: Literal, value: Any) -> bool:
        """By `jsonschema`, from the place on. What was entered before is not known to it. It searches with `re`, so it
        is not asked where that might not come to an end."""
        if literal.scope[1:] or self.is_slow(len(repr(value))):
            raise Undecided
        try:
            return bool(self.validator(literal.place).is_valid(_plain(value)))
        except RecursionError:
            raise LimitExceeded(f"the schema at {literal.place.at()} is nested too deeply to judge a value") from None
        except Exception as error:  # whatever the validator stumbles on, it gave no answer
            raise Undecided from error
        except BaseException as error:
            if not is_panic(error):
                raise
            raise Undecided from error

    def is_slow(self, length: int) -> bool:
        length = 1 << length.bit_length()
        if length not in self.slow:
            documents = [one.document.contents for one in self.reader.store.resources.values()]
            self.slow[length] = slow_pattern(documents, length) is not None
        return self.slow[length]

    def validator(self, place: Place) -> Any:
        if place not in self.validators:
            from referencing import Registry  # noqa: PLC0415  # heavy, and seldom needed
            from referencing.jsonschema import specification_with  # noqa: PLC0415

            if self.registry is None:
                registry: Any = Registry()
                store = self.reader.store
                documents = {_address(resource.document): resource.document for resource in store.resources.values()}
                documents |= {uri: resource.document for uri, resource in store.resources.items() if resource.outer}
                for uri, document in documents.items():
                    draft = document.root.resource.draft
                    resource: Any = specification_with(draft.uri).create_resource(document.contents)
                    registry = registry.with_resource(uri, resource)
                self.registry = registry
            draft = place.resource.draft
            schema: Any = place.schema
            if place.pointer in place.resource.document.places:
                schema = {"$ref": f"{_address(place.resource.document)}#{_quoted(place.pointer)}"}
            self.validators[place] = _exact(draft.validator)(
                schema, registry=self.registry, format_checker=_format_checker() if self.reader.formats else None
            )
        return self.validators[place]


@cache
def _exact(name: str) -> Any:
    """The validator of a draft, with `multipleOf` on the decimal numbers that are written."""
    import jsonschema  # noqa: PLC0415  # heavy, and seldom needed
    from jsonschema.validators import extend  # noqa: PLC0415

    def multiple_of(validator: Any, factor: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
        if validator.is_type(value, "number") and exact(value) % exact(factor):
            yield jsonschema.ValidationError(f"{value!r} is not a multiple of {factor}")

    base: Any = getattr(jsonschema, name)
    made: Any = extend(base, {"multipleOf": multiple_of})  # type: ignore[no-untyped-call]  # not in its stubs
    return made


def _address(document: Document) -> str:
    return document.root.resource.uri or document.shown.rstrip("#") or "urn:espalier:schema"


def _quoted(pointer: str) -> str:
    return pointer.replace("%", "%25").replace("#", "%23").replace(" ", "%20")


def _plain(value: Any) -> Any:
    """Whole numbers as int, which is what draft 4 takes for integers, and no Decimals."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, Decimal | float):
        return int(value) if value == int(value) else float(value)
    return value


@cache
def _format_checker() -> Any:
    from jsonschema import FormatChecker  # noqa: PLC0415  # heavy, and seldom needed

    checker = FormatChecker(formats=())
    for name in FORMATS:
        checker.checks(name)(lambda value, name=name: not isinstance(value, str) or _in_format(name, value))
    return checker


def _in_format(name: str, text: str) -> bool:
    """Raises Undecided for what only the format's own specification might allow."""
    if re.fullmatch(FORMATS[name], text):
        return True
    if name in NARROWER:
        raise Undecided
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

Test = Callable[[Place], bool]


def _ref(oracle: Oracle, literal: Literal, stated: Any, test: Test) -> bool:
    return test(oracle.reader.target(literal, stated))


def _if(oracle: Oracle, literal: Literal, stated: Any, test: Test) -> bool:
    kids = literal.place.kids
    chosen = kids.get("then" if test(kids["if"]) else "else")
    return chosen is None or test(chosen)


APPLIED: dict[str, Callable[[Oracle, Literal, Any, Test], bool]] = {
    "ref": _ref,
    "all": lambda _, literal, stated, test: all(map(test, literal.place.kids["allOf"].values())),
    "any": lambda _, literal, stated, test: any(map(test, literal.place.kids["anyOf"].values())),
    "one": lambda _, literal, stated, test: sum(map(test, literal.place.kids["oneOf"].values())) == 1,
    "not": lambda _, literal, stated, test: not test(literal.place.kids["not"]),
    "if": _if,
}
