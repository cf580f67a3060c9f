"""Random schemas over all keywords of a draft, with patterns, names, texts and numbers that are hard to get right."""

from __future__ import annotations

from random import Random
from typing import Any

from tests.fuzz.patterns import HARD, Patterns
from tests.schema_fuzz import Maker

NAMES = ("a", "b", "ab", "c1", 'q"t', "b\\s", "s/l", "é", "😀", "", "a b", "\x7f", "n\nl")
NUMBERS = (-1, 0, 0.5, 1, 1.0, 1.5, 2, 3, 10, 100, -0.25, 1e2, 1e-2, 123456789012345678)
FORMATS = ("date", "time", "date-time", "email", "ipv4", "ipv6", "uuid", "uri", "hostname", "regex", "json-pointer")
FORMATTED = (
    "2024-02-29",
    "2023-02-29",
    "23:59:60Z",
    "12:00:00+01:00",
    "2024-01-01T00:00:00Z",
    "a@b.c",
    "1.2.3.4",
    "1.2.3.256",
    "::1",
    "12345678-1234-1234-1234-123456789abc",
    "http://a/b",
    "a.b",
    "[a-z]",
    "/a/~0",
)


class AssertedPatterns(Patterns):
    """`Patterns`, some with word boundaries, look-around and back-references."""

    def pattern(self) -> str:
        draw = self.random.random()
        if draw < 0.7:
            return super().pattern()
        parts = [self._alternatives(self.depth) for _ in range(self.random.randint(1, 2))]
        if draw < 0.85:
            parts.insert(self.random.randint(0, len(parts)), self.random.choice((r"\b", r"\b", r"\B")))
        if draw < 0.78 or 0.85 <= draw < 0.93:
            around = self.random.choice(("(?=", "(?!", "(?<=", "(?<!"))
            parts.insert(self.random.randint(0, len(parts)), f"{around}{self._class()})")
        if draw >= 0.93:
            parts = ["(" + self.random.choice(("a|b", "[ab]", "é|ab", "\"|'")) + ")", *parts, r"\1"]
        start, end = self.random.choice((("^", "$"), ("^", ""), ("", "$"), ("", "")))
        return f"{start}{''.join(f'(?:{part})' if '|' in part and part[0] != '(' else part for part in parts)}{end}"


class HardMaker(Maker):
    """`Maker` with the whole alphabet in its texts, names and patterns."""

    def __init__(self, random: Random, *, draft: str = "2020-12", only: tuple[str, ...] = (), depth: int = 3) -> None:
        super().__init__(random, draft=draft, only=only, depth=depth)
        self.patterns = AssertedPatterns(random)
        self.makers["pattern"] = lambda _: self.patterns.pattern()
        self.makers["patternProperties"] = lambda depth: self.by_name(
            depth, tuple(self.patterns.pattern() for _ in range(2))
        )
        self.makers["format"] = lambda _: random.choice(FORMATS)
        self.makers["required"] = lambda _: random.sample(NAMES, random.randint(1, 2))
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if draft != "draft-04" or name in ("minimum", "maximum"):
                self.makers[name] = lambda _: random.choice(NUMBERS)
        if not only:
            self.chosen = list(self.makers)

    def objects(self, depth: int) -> Any:
        """Some schemas are of texts alone, so that patterns and lengths often meet."""
        if self.together or self.chosen != list(self.makers) or self.random.random() > 0.4:
            return super().objects(depth)
        if self.random.random() < 0.35:
            return self._unique(depth)
        names = [name for name in ("pattern", "minLength", "maxLength", "format") if self.random.random() < 0.6]
        return {"type": "string"} | {name: self.makers[name](depth) for name in names}

    def _unique(self, depth: int) -> Any:
        """Arrays with unique items of one kind, or of any."""
        few = [self.value(2) for _ in range(self.random.randint(2, 12))]
        items = self.random.choice(
            (
                {"type": self.random.choice(("integer", "number", "string", "array", "object", "boolean"))},
                {"type": "string", "maxLength": self.random.randint(0, 2)},
                {"type": "integer", "minimum": 0, "maximum": self.random.randint(1, 14)},
                {"enum": few},
                self.objects(depth + 1) if depth < 2 else {},
            )
        )
        found: dict[str, Any] = {"type": "array", "uniqueItems": True, "items": items}
        for name in ("minItems", "maxItems", "contains"):
            if name in self.makers and self.random.random() < 0.25:
                found[name] = self.makers[name](depth + 1)
        return found

    def document(self) -> Any:
        """Some schemas refer to themselves."""
        found = super().document()
        if isinstance(found, dict) and self.random.random() < 0.3:
            self.makers["$ref"] = lambda _: self.random.choice(("#", "#/$defs/one", "#/$defs/two"))
            inner = {"one": self._recursive(), "two": self._recursive()}
            found = {"$ref": "#/$defs/one", "$schema": found["$schema"]} if self.random.random() < 0.5 else found
            return found | {"$defs": inner}
        return found

    def _recursive(self) -> Any:
        """An object or an array that may hold a reference."""
        inner = {"anyOf": [{"$ref": self.makers["$ref"](1)}, {"type": self.random.choice(("null", "string"))}]}
        if self.random.random() < 0.5:
            return {"type": "array", "items": inner} | {
                name: self.makers[name](1) for name in ("minItems", "maxItems")[: self.random.randint(0, 2)]
            }
        names = self.random.sample(NAMES, 2)
        return {"type": "object", "properties": {names[0]: inner, names[1]: self.objects(2)}, "required": names[1:]}

    def by_names(self, depth: int) -> dict[str, Any]:
        return self.by_name(depth, NAMES)

    def value(self, depth: int = 0) -> Any:
        kind = self.random.choice("oooaaasnnb0" if depth == 0 else "oasssnnnb0" if depth < 3 else "snb0")
        if kind == "s":
            return self.text()
        if kind == "o":
            names = self.random.sample(NAMES, self.random.randint(0, 3))
            return {name: self.value(depth + 1) for name in names}
        if kind == "a":
            return [self.value(depth + 1) for _ in range(self.random.randint(0, 4))]
        pools: dict[str, tuple[Any, ...]] = {"n": NUMBERS, "b": (True, False), "0": (None,)}
        return self.random.choice(pools[kind])

    def text(self) -> str:
        if self.random.random() < 0.15:
            return self.random.choice(FORMATTED)
        return "".join(self.random.choice((*HARD, "a", "b", "A", "1")) for _ in range(self.random.randint(0, 4)))
