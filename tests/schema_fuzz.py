"""Random small schemas and values that are likely to touch their keywords, for tests."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

NAMES = ("a", "b", "ab", "c1")
STRINGS = ("", "a", "b", "ab", "abc", "1", "c1")
NUMBERS = (-1, 0, 0.5, 1, 1.0, 1.5, 2, 3, 4, 6)
PATTERNS = ("^a", "b", "[0-9]", "^.b?$")
TYPES = ("null", "boolean", "number", "integer", "string", "array", "object")


class Maker:
    """Schemas of one draft. only: the keywords that may occur (all of the draft if empty)."""

    def __init__(self, random: Random, *, draft: str = "2020-12", only: tuple[str, ...] = (), depth: int = 3) -> None:
        self.random = random
        self.draft = draft
        self.only = only
        self.depth = depth
        self.makers: dict[str, Callable[[int], Any]] = {
            "type": lambda _: random.choice(TYPES) if random.random() < 0.7 else random.sample(TYPES, 2),
            "enum": lambda _: [self.value(2) for _ in range(random.randint(1, 4))],
            "const": lambda _: self.value(2),
            "allOf": self.several,
            "anyOf": self.several,
            "oneOf": self.several,
            "not": self.schema,
            "if": self.schema,
            "then": self.schema,
            "else": self.schema,
            "minimum": lambda _: random.choice(NUMBERS),
            "maximum": lambda _: random.choice(NUMBERS),
            "exclusiveMinimum": lambda _: random.choice(NUMBERS),
            "exclusiveMaximum": lambda _: random.choice(NUMBERS),
            "multipleOf": lambda _: random.choice((1, 2, 0.5, 1.5, 3)),
            "minLength": self.count,
            "maxLength": self.count,
            "pattern": lambda _: random.choice(PATTERNS),
            "prefixItems": self.several,
            "items": self.schema,
            "minItems": self.count,
            "maxItems": self.count,
            "uniqueItems": lambda _: True,
            "contains": self.schema,
            "minContains": self.count,
            "maxContains": self.count,
            "unevaluatedItems": self.schema,
            "properties": self.by_names,
            "patternProperties": lambda depth: self.by_name(depth, PATTERNS),
            "additionalProperties": self.schema,
            "required": lambda _: random.sample(NAMES, random.randint(1, 2)),
            "propertyNames": self.schema,
            "minProperties": self.count,
            "maxProperties": self.count,
            "dependentRequired": lambda _: {random.choice(NAMES): random.sample(NAMES, 1)},
            "dependentSchemas": self.by_names,
            "unevaluatedProperties": self.schema,
            "$ref": lambda _: random.choice(("#/$defs/one", "#/$defs/two")),
        }
        if draft != "2020-12":
            del self.makers["prefixItems"]
            self.makers["items"] = self.one_or_several
            self.makers["additionalItems"] = self.schema
            # In 2019-09 jsonschema lets `contains` evaluate items, and `additionalProperties` not all properties.
            del self.makers["unevaluatedItems"], self.makers["unevaluatedProperties"]
        if draft in ("draft-07", "draft-06", "draft-04"):
            for name in ("dependentRequired", "dependentSchemas", "minContains", "maxContains"):
                del self.makers[name]
            self.makers["dependencies"] = lambda depth: {
                random.choice(NAMES): random.choice((self.schema(depth), random.sample(NAMES, 1)))
            }
        if draft == "draft-06":
            for name in ("if", "then", "else"):
                del self.makers[name]
        if draft == "draft-04":
            for name in ("const", "if", "then", "else", "contains", "propertyNames"):
                del self.makers[name]
            self.makers["exclusiveMinimum"] = self.makers["exclusiveMaximum"] = lambda _: random.random() < 0.5
            self.makers["not"] = self.objects
        self.chosen = [name for name in self.makers if not only or name in only]
        #: Keywords that the first object of a document holds together, besides others.
        self.together: tuple[str, ...] = ()

    def document(self) -> Any:
        """A whole schema. `$ref` leads to two definitions without references."""
        found = self.schema(0)
        if isinstance(found, dict) and "$ref" in self.chosen:
            plain = Maker(self.random, draft=self.draft, only=("type", "enum", "required", "minimum"), depth=1)
            found = found | {"$defs": {"one": plain.objects(1), "two": plain.objects(1)}}
        addresses = {
            "draft-04": "http://json-schema.org/draft-04/schema#",
            "draft-06": "http://json-schema.org/draft-06/schema#",
            "draft-07": "http://json-schema.org/draft-07/schema#",
            "2019-09": "https://json-schema.org/draft/2019-09/schema",
            "2020-12": "https://json-schema.org/draft/2020-12/schema",
        }
        if isinstance(found, dict):
            return {"$schema": addresses[self.draft]} | found
        return found

    def schema(self, depth: int) -> Any:
        if self.draft != "draft-04" and depth and self.random.random() < 0.12:
            return self.random.random() < 0.5
        return self.objects(depth)

    def objects(self, depth: int) -> Any:
        names = self.chosen
        if depth >= self.depth:
            names = [n for n in names if n not in APPLIED] or ["type"]
        count = self.random.choice((1, 1, 2, 2, 3, 4) if depth < 2 else (1, 1, 2))
        kept = self.random.sample(names, min(count, len(names)))
        kept = [*self.together, *(name for name in kept if name not in self.together)]
        self.together = ()
        found = {name: self.makers[name](depth + 1) for name in kept if name in self.makers}
        if not isinstance(found.get("items"), list):
            found.pop("additionalItems", None)  # where it means nothing, jsonschema fails
        if self.draft == "draft-04":
            for strict, plain in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
                if strict in found:
                    found.setdefault(plain, self.random.choice(NUMBERS))
        return found

    def several(self, depth: int) -> list[Any]:
        make = self.objects if self.draft == "draft-04" else self.schema
        return [make(depth) for _ in range(self.random.randint(1, 3))]

    def one_or_several(self, depth: int) -> Any:
        make = self.objects if self.draft == "draft-04" else self.schema
        return self.random.choice((make, self.several))(depth)

    def by_names(self, depth: int) -> dict[str, Any]:
        return self.by_name(depth, NAMES)

    def by_name(self, depth: int, names: tuple[str, ...]) -> dict[str, Any]:
        make = self.objects if self.draft == "draft-04" else self.schema
        return {name: make(depth) for name in self.random.sample(names, self.random.randint(1, 2))}

    def count(self, depth: int) -> Any:
        return self.random.choice((0, 1, 1, 2, 2, 3, 2.0))

    def value(self, depth: int = 0) -> Any:
        """A JSON value."""
        kind = self.random.choice("oooaaasnnb0" if depth == 0 else "oasssnnnb0" if depth < 3 else "snb0")
        if kind == "o":
            names = self.random.sample(NAMES, self.random.randint(0, 3))
            return {name: self.value(depth + 1) for name in names}
        if kind == "a":
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 4))]
        pools: dict[str, tuple[Any, ...]] = {"s": STRINGS, "n": NUMBERS, "b": (True, False), "0": (None,)}
        return self.random.choice(pools[kind])


APPLIED = frozenset(
    (
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "prefixItems",
        "items",
        "additionalItems",
        "contains",
        "unevaluatedItems",
        "properties",
        "patternProperties",
        "additionalProperties",
        "propertyNames",
        "dependentSchemas",
        "dependencies",
        "unevaluatedProperties",
    )
)
