"""What the keywords of one branch say about a number or a string, until two of them contradict each other.

    minimum 3, type integer          NumberFacts: low 3, integer
    minimum 3, maximum 2             raises Contradiction("/minimum", "/maximum")

A branch (`branch.py`) calls these methods by name, as the steps of its alternatives. Each fact is kept with the pointer
of the keyword that states it. Facts know no references and no choices: the branch has resolved both. Arrays and objects
are in `container_facts.py`.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from espalier.schema.normal.inspect import Inspector


class Contradiction(Exception):
    """No value satisfies all of these keywords."""

    def __init__(self, *pointers: str) -> None:
        super().__init__(*pointers)
        self.pointers = pointers


class CountRange:
    """A least and a most count, each with the pointer of the keyword that states it."""

    __slots__ = ("least", "least_at", "most", "most_at")

    def __init__(self) -> None:
        self.least = 0
        self.least_at = ""
        self.most: int | None = None
        self.most_at = ""

    def clone(self) -> CountRange:
        new = CountRange()
        new.least, new.least_at, new.most, new.most_at = self.least, self.least_at, self.most, self.most_at
        return new

    def at_least(self, least: int, at: str) -> None:
        if least > self.least:
            self.least, self.least_at = least, at
            self.check()

    def at_most(self, most: int, at: str) -> None:
        if self.most is None or most < self.most:
            self.most, self.most_at = most, at
            self.check()

    def check(self) -> None:
        if self.most is not None and self.most < self.least:
            raise Contradiction(*(at for at in (self.least_at, self.most_at) if at))


class Facts:
    """The facts about null and booleans: none beyond the type. The base of the others."""

    __slots__ = ()

    def clone(self) -> Facts:
        return self

    def settle(self, inspector: Inspector) -> None:
        """Check what was stated since the last call. Raises Contradiction."""

    def entails(self, step: tuple[Any, ...], inspector: Inspector) -> bool:
        """Whether a step would add nothing."""
        return False


class NumberFacts(Facts):
    """integer: whole numbers only. low, high: bounds; strict: without the bound itself. multiples: the
    value is a multiple of each. not_multiples: it is a multiple of none."""

    __slots__ = (
        "high",
        "high_at",
        "integer",
        "low",
        "low_at",
        "multiples",
        "not_multiples",
        "strict_high",
        "strict_low",
    )

    def __init__(self) -> None:
        self.integer = False
        self.low: Fraction | None = None
        self.high: Fraction | None = None
        self.strict_low = self.strict_high = False
        self.low_at = self.high_at = ""
        self.multiples: dict[Fraction, str] = {}
        self.not_multiples: dict[Fraction, str] = {}

    def clone(self) -> NumberFacts:
        new = NumberFacts()
        new.integer = self.integer
        new.low, new.strict_low, new.low_at = self.low, self.strict_low, self.low_at
        new.high, new.strict_high, new.high_at = self.high, self.strict_high, self.high_at
        new.multiples = dict(self.multiples)
        new.not_multiples = dict(self.not_multiples)
        return new

    def whole(self, at: str) -> None:
        self.integer = True

    def above(self, bound: Fraction, strict: bool, at: str) -> None:
        if self.low is None or bound > self.low or (bound == self.low and strict and not self.strict_low):
            self.low, self.strict_low, self.low_at = bound, strict, at
            self.check()

    def below(self, bound: Fraction, strict: bool, at: str) -> None:
        if self.high is None or bound < self.high or (bound == self.high and strict and not self.strict_high):
            self.high, self.strict_high, self.high_at = bound, strict, at
            self.check()

    def multiple(self, factor: Fraction, at: str) -> None:
        self.multiples.setdefault(factor, at)

    def not_multiple(self, factor: Fraction, at: str) -> None:
        self.not_multiples.setdefault(factor, at)

    def check(self) -> None:
        if self.low is not None and self.high is not None:
            strict = self.strict_low or self.strict_high
            if self.low > self.high or (self.low == self.high and strict):
                raise Contradiction(self.low_at, self.high_at)


class StringFacts(Facts):
    """length: in code points. patterns, not_patterns, formats: each with its pointer."""

    __slots__ = ("formats", "length", "not_patterns", "patterns")

    def __init__(self) -> None:
        self.length = CountRange()
        self.patterns: dict[str, str] = {}
        self.not_patterns: dict[str, str] = {}
        self.formats: dict[str, str] = {}

    def clone(self) -> StringFacts:
        new = StringFacts()
        new.length = self.length.clone()
        new.patterns = dict(self.patterns)
        new.not_patterns = dict(self.not_patterns)
        new.formats = dict(self.formats)
        return new

    def longer(self, least: int, at: str) -> None:
        self.length.at_least(least, at)

    def shorter(self, most: int, at: str) -> None:
        self.length.at_most(most, at)

    def pattern(self, pattern: str, at: str) -> None:
        self.patterns.setdefault(pattern, at)
        self.check_pattern(pattern)

    def not_pattern(self, pattern: str, at: str) -> None:
        self.not_patterns.setdefault(pattern, at)
        self.check_pattern(pattern)

    def format(self, name: str, at: str) -> None:
        self.formats.setdefault(name, at)

    def check_pattern(self, pattern: str) -> None:
        if pattern in self.patterns and pattern in self.not_patterns:
            raise Contradiction(self.patterns[pattern], self.not_patterns[pattern])
