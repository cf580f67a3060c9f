"""What is known of a value of one type, collected keyword by keyword until two of them contradict each other.

It knows no references and no choices: a branch (`branch.py`) has made them by then. A fact comes with the pointer of
the keyword that states it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Protocol

from espalier.schema.normal.literals import ArrayGroup, Literal, ObjectGroup
from espalier.schema.patterns.ecma import found


class Contradiction(Exception):
    """Nothing fits all of these keywords."""

    def __init__(self, *pointers: str) -> None:
        super().__init__(*pointers)
        self.pointers = pointers


class Judge(Protocol):
    """What facts ask of the whole."""

    def hopeless(self, literals: tuple[Literal, ...]) -> tuple[str, ...] | None:
        """The pointers that say why no value can fit all of these, None if that is not plain to see."""
        ...

    def implies(self, literals: tuple[Literal, ...], literal: Literal) -> bool:
        """Whatever fits these is plainly seen to fit this one."""
        ...


class Span:
    """A least and a most, each with the pointer that says so."""

    __slots__ = ("least", "least_at", "most", "most_at")

    def __init__(self) -> None:
        self.least = 0
        self.least_at = ""
        self.most: int | None = None
        self.most_at = ""

    def clone(self) -> Span:
        new = Span()
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
    """Of null and booleans nothing more is known than their type."""

    __slots__ = ()

    def clone(self) -> Facts:
        return self

    def settle(self, judge: Judge) -> None:
        """Raises Contradiction where what was stated since the last time cannot be."""

    def entails(self, step: tuple[Any, ...], judge: Judge) -> bool:
        """The step would tell nothing new."""
        return False


class NumberFacts(Facts):
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
    __slots__ = ("formats", "length", "not_patterns", "patterns")

    def __init__(self) -> None:
        self.length = Span()
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
        self.contrast(pattern)

    def not_pattern(self, pattern: str, at: str) -> None:
        self.not_patterns.setdefault(pattern, at)
        self.contrast(pattern)

    def format(self, name: str, at: str) -> None:
        self.formats.setdefault(name, at)

    def contrast(self, pattern: str) -> None:
        if pattern in self.patterns and pattern in self.not_patterns:
            raise Contradiction(self.patterns[pattern], self.not_patterns[pattern])


class ArrayFacts(Facts):
    __slots__ = ("contains", "extra", "groups", "size", "unique")

    def __init__(self) -> None:
        self.size = Span()
        self.groups: list[ArrayGroup] = []
        self.extra: dict[int, tuple[Literal, ...]] = {}
        self.contains: list[tuple[Literal, Literal, int, int | None, str]] = []
        self.unique = False

    def clone(self) -> ArrayFacts:
        new = ArrayFacts()
        new.size = self.size.clone()
        new.groups = list(self.groups)
        new.extra = dict(self.extra)
        new.contains = list(self.contains)
        new.unique = self.unique
        return new

    def longer(self, least: int, at: str) -> None:
        self.size.at_least(least, at)

    def shorter(self, most: int, at: str) -> None:
        self.size.at_most(most, at)

    def group(self, group: ArrayGroup) -> None:
        self.groups.append(group)

    def item(self, index: int, literal: Literal) -> None:
        self.extra[index] = (*self.extra.get(index, ()), literal)

    def every(self, literal: Literal) -> None:
        self.groups.append(ArrayGroup((), literal))

    def contain(self, match: Literal, other: Literal, least: int, most: int | None, at: str) -> None:
        if least or most is not None:
            if most is not None and most < least:
                raise Contradiction(at)
            if match.constant:  # all items match, or none does and it is not asked for
                self.size.at_least(least, at)
                if match.constant > 0 and most is not None:
                    self.size.at_most(most, at)
                return
            self.contains.append((match, other, least, most, at))
            self.size.at_least(least, at)

    def distinct(self) -> None:
        self.unique = True

    def literals(self, index: int) -> tuple[Literal, ...]:
        """What an item must be."""
        stated = [group.prefix[index] if index < len(group.prefix) else group.rest for group in self.groups]
        return (*(literal for literal in stated if literal is not None), *self.extra.get(index, ()))

    @property
    def first(self) -> int:
        """How many items are told apart by their place."""
        longest = max((len(group.prefix) for group in self.groups), default=0)
        return max(longest, max(self.extra, default=-1) + 1)

    def settle(self, judge: Judge) -> None:
        for index in range(min(self.size.least, max(1, self.first))):
            if (why := judge.hopeless(self.literals(index))) is not None:
                raise Contradiction(*why, self.size.least_at)

    def entails(self, step: tuple[Any, ...], judge: Judge) -> bool:
        if step[0] == "longer":
            return self.size.least >= int(step[1])
        if step[0] == "item":
            return judge.implies(self.literals(step[1]), step[2])
        return False


class Some:
    """Some name of a kind has a value that fits a literal. pattern: the names that match it; else the names that are
    not declared in the group. None for both: names that are not what the literal says."""

    __slots__ = ("at", "group", "literal", "pattern")

    def __init__(self, literal: Literal, at: str, *, pattern: str | None = None, group: ObjectGroup | None = None):
        self.literal = literal
        self.at = at
        self.pattern = pattern
        self.group = group

    def covers(self, name: str) -> bool:
        if self.pattern is not None:
            return found(self.pattern, name)
        group = self.group
        if group is None:
            return True
        return name not in group.properties and not any(found(pattern, name) for pattern, _ in group.patterns)


class ObjectFacts(Facts):
    __slots__ = ("extra", "forbidden", "groups", "names", "new", "required", "size", "some")

    def __init__(self) -> None:
        self.size = Span()
        self.groups: list[ObjectGroup] = []
        self.required: dict[str, str] = {}
        self.forbidden: dict[str, str] = {}
        self.extra: dict[str, tuple[Literal, ...]] = {}
        self.names: tuple[Literal, ...] = ()
        self.some: tuple[Some, ...] = ()
        self.new: dict[str, None] = {}
        """Names of which something was stated since `settle`."""

    def clone(self) -> ObjectFacts:
        new = ObjectFacts()
        new.size = self.size.clone()
        new.groups = list(self.groups)
        new.required = dict(self.required)
        new.forbidden = dict(self.forbidden)
        new.extra = dict(self.extra)
        new.names = self.names
        new.some = self.some
        new.new = dict(self.new)
        return new

    def longer(self, least: int, at: str) -> None:
        self.size.at_least(least, at)

    def shorter(self, most: int, at: str) -> None:
        self.size.at_most(most, at)

    def group(self, group: ObjectGroup) -> None:
        self.groups.append(group)
        self.new.update(dict.fromkeys(self.required))

    def require(self, name: str, at: str) -> None:
        if name not in self.required:
            if name in self.forbidden:
                raise Contradiction(self.forbidden[name], at)
            self.required[name] = at
            self.new[name] = None

    def forbid(self, name: str, at: str) -> None:
        if name in self.required:
            raise Contradiction(self.required[name], at)
        self.forbidden.setdefault(name, at)

    def child(self, name: str, literal: Literal) -> None:
        self.extra[name] = (*self.extra.get(name, ()), literal)
        self.new[name] = None

    def name(self, literal: Literal) -> None:
        self.names = (*self.names, literal)

    def exists(self, some: Some) -> None:
        self.some = (*self.some, some)

    def literals(self, name: str) -> tuple[Literal, ...]:
        """What the value of a name must be."""
        stated: tuple[Literal, ...] = ()
        for group in self.groups:
            stated += cover(group, name)
        return stated + self.extra.get(name, ())

    def settle(self, judge: Judge) -> None:
        for name in self.new:
            if name in self.required and (why := judge.hopeless(self.literals(name))) is not None:
                raise Contradiction(*why, self.required[name])
        self.new.clear()
        if self.size.most is not None and len(self.required) > self.size.most:
            raise Contradiction(next(iter(self.required.values())), self.size.most_at)

    def entails(self, step: tuple[Any, ...], judge: Judge) -> bool:
        if step[0] == "require":
            return step[1] in self.required
        if step[0] == "forbid":
            return step[1] in self.forbidden or any(lit.constant < 0 for lit in self.literals(step[1]))
        if step[0] == "child":
            return judge.implies(self.literals(step[1]), step[2])
        return False


def cover(group: ObjectGroup, name: str) -> tuple[Literal, ...]:
    """What a group says of the value of a name; kept, as it is asked again and again."""
    if (kept := group.found.get(name)) is not None:
        return kept
    stated = [group.properties[name]] if name in group.properties else []
    stated += [literal for pattern, literal in group.patterns if found(pattern, name)]
    if not stated and group.rest is not None and name not in group.properties:
        stated = [group.rest]
    # A pattern that matches, or a declaration, keeps the name from the rest even where it says nothing.
    group.found[name] = kept = tuple(literal for literal in stated if literal.constant <= 0)
    return kept
