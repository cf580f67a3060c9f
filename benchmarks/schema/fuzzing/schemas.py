"""Random schemas over all keywords of a draft, with patterns, names, texts and numbers that are hard to get right."""

from __future__ import annotations

from random import Random
from typing import Any

from benchmarks.schema.fuzzing.patterns import HARD, Patterns
from tests.schema_fuzz import Maker

NAMES = ("a", "b", "ab", "c1", 'q"t', "b\\s", "s/l", "é", "😀", "", "a b", "\x7f", "n\nl")
NUMBERS = (-1, 0, 0.5, 1, 1.0, 1.5, 2, 3, 10, 100, -0.25, 1e2, 1e-2, 123456789012345678)
FORMATS = ("date", "time", "date-time", "email", "ipv4", "uuid", "uri")


class HardMaker(Maker):
    """`Maker` with the whole alphabet in its texts, names and patterns."""

    def __init__(self, random: Random, *, draft: str = "2020-12", only: tuple[str, ...] = (), depth: int = 3) -> None:
        super().__init__(random, draft=draft, only=only, depth=depth)
        self.patterns = Patterns(random)
        self.makers["pattern"] = lambda _: self.patterns.pattern()
        self.makers["patternProperties"] = lambda depth: self.by_name(
            depth, tuple(self.patterns.pattern() for _ in range(2))
        )
        self.makers["required"] = lambda _: random.sample(NAMES, random.randint(1, 2))
        for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if draft != "draft-04" or name in ("minimum", "maximum"):
                self.makers[name] = lambda _: random.choice(NUMBERS)

    def objects(self, depth: int) -> Any:
        """Some schemas are of texts alone, so that patterns and lengths often meet."""
        if self.chosen != list(self.makers) or self.random.random() > 0.3:
            return super().objects(depth)
        names = [name for name in ("pattern", "minLength", "maxLength") if self.random.random() < 0.6]
        return {"type": "string"} | {name: self.makers[name](depth) for name in names}

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
        return "".join(self.random.choice((*HARD, "a", "b", "A", "1")) for _ in range(self.random.randint(0, 4)))
