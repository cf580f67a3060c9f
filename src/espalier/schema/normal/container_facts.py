"""What the keywords of one branch say about an array or an object, until two of them contradict each other.

    required ["a"], properties {"a": false}      raises Contradiction("/properties/a", "/required") in settle()

As in `facts.py`, a branch calls these methods by name. What items and properties must satisfy is kept as literals; the
nodes for them are made in `assemble.py` and `objects.py`.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from espalier.schema.normal.facts import Contradiction, CountRange, Facts
from espalier.schema.normal.inspect import Inspector
from espalier.schema.normal.literals import ArrayGroup, ObjectGroup, SchemaLiteral
from espalier.schema.patterns.ecma import found


class ArrayFacts(Facts):
    """size: how many items. groups: what schemas say of items. extra: more literals for an item, by index. contains:
    `(match, other, least, most, first, pointer)`: from index `first` on, between least and most items satisfy `match`,
    all others satisfy `other`. unique: no two items are equal."""

    __slots__ = ("contains", "extra", "groups", "size", "unique")

    def __init__(self) -> None:
        self.size = CountRange()
        self.groups: list[ArrayGroup] = []
        self.extra: dict[int, tuple[SchemaLiteral, ...]] = {}
        self.contains: list[tuple[SchemaLiteral, SchemaLiteral, int, int | None, int, str]] = []
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

    def item(self, index: int, literal: SchemaLiteral) -> None:
        self.extra[index] = (*self.extra.get(index, ()), literal)

    def every(self, literal: SchemaLiteral) -> None:
        self.groups.append(ArrayGroup((), literal))

    def contain(
        self, match: SchemaLiteral, other: SchemaLiteral, least: int, most: int | None, at: str, first: int = 0
    ) -> None:
        if least or most is not None:
            if most is not None and most < least:
                raise Contradiction(at)
            if least:
                self.size.at_least(first + least, at)
            if match.constant:  # every item matches, or none does and none needs to
                if match.constant > 0 and most is not None:
                    self.size.at_most(first + most, at)
                return
            self.contains.append((match, other, least, most, first, at))

    def distinct(self) -> None:
        self.unique = True

    def literals(self, index: int) -> tuple[SchemaLiteral, ...]:
        """All literals for the item at an index."""
        stated = [group.prefix[index] if index < len(group.prefix) else group.rest for group in self.groups]
        return (*(literal for literal in stated if literal is not None), *self.extra.get(index, ()))

    @property
    def first(self) -> int:
        """How many leading items have literals of their own."""
        longest = max((len(group.prefix) for group in self.groups), default=0)
        return max(longest, max(self.extra, default=-1) + 1)

    def settle(self, inspector: Inspector) -> None:
        for index in range(min(self.size.least, max(1, self.first))):
            if (why := inspector.contradiction(self.literals(index))) is not None:
                raise Contradiction(*why, self.size.least_at)

    def entails(self, step: tuple[Any, ...], inspector: Inspector) -> bool:
        if step[0] == "longer":
            return self.size.least >= int(step[1])
        if step[0] == "item":
            return inspector.implies(self.literals(step[1]), step[2])
        return False


class Exists:
    """A demand: at least one property whose name is in a set must satisfy `literal`.

    The set: names that match `pattern`; or names that `group` leaves to its `additionalProperties`; or, where both are
    None, every name, and then it is the name that must satisfy the literal, not the value (`by_name`).
    """

    __slots__ = ("at", "by_name", "group", "literal", "pattern")

    def __init__(
        self, literal: SchemaLiteral, at: str, *, pattern: str | None = None, group: ObjectGroup | None = None
    ):
        self.literal = literal
        self.at = at
        self.pattern = pattern
        self.group = group
        self.by_name = pattern is None and group is None

    @property
    def patterns(self) -> list[str]:
        """The patterns on which it depends whether a name is in the set."""
        if self.group is not None:
            return [pattern for pattern, _ in self.group.patterns]
        return [] if self.pattern is None else [self.pattern]

    def covers_undeclared(self, matched: Container[str]) -> bool:
        """Whether a name that no keyword mentions, and that matches just these of the patterns, is in the set."""
        if self.pattern is not None:
            return self.pattern in matched
        return not any(pattern in matched for pattern in self.patterns)

    def covers(self, name: str) -> bool:
        """Whether a name is in the set."""
        if self.pattern is not None:
            return found(self.pattern, name)
        group = self.group
        if group is None:
            return True
        return name not in group.properties and not any(found(pattern, name) for pattern, _ in group.patterns)


class ObjectFacts(Facts):
    """size: how many properties. groups: what schemas say of properties by name and pattern. required, forbidden:
    names, each with its pointer. extra: more literals for the value of a name. names: literals for every name. demands:
    see `Exists`. undeclared: those of them that a name meets which no keyword mentions. unsettled: names about which
    something was stated since `settle`."""

    __slots__ = ("demands", "extra", "forbidden", "groups", "names", "required", "size", "undeclared", "unsettled")

    def __init__(self) -> None:
        self.size = CountRange()
        self.groups: list[ObjectGroup] = []
        self.required: dict[str, str] = {}
        self.forbidden: dict[str, str] = {}
        self.extra: dict[str, tuple[SchemaLiteral, ...]] = {}
        self.names: tuple[SchemaLiteral, ...] = ()
        self.demands: tuple[Exists, ...] = ()
        self.undeclared: tuple[Exists, ...] = ()
        self.unsettled: dict[str, None] = {}

    def clone(self) -> ObjectFacts:
        new = ObjectFacts()
        new.size = self.size.clone()
        new.groups = list(self.groups)
        new.required = dict(self.required)
        new.forbidden = dict(self.forbidden)
        new.extra = dict(self.extra)
        new.names = self.names
        new.demands = self.demands
        new.undeclared = self.undeclared
        new.unsettled = dict(self.unsettled)
        return new

    def longer(self, least: int, at: str) -> None:
        self.size.at_least(least, at)

    def shorter(self, most: int, at: str) -> None:
        self.size.at_most(most, at)

    def group(self, group: ObjectGroup) -> None:
        self.groups.append(group)
        self.unsettled.update(dict.fromkeys(self.required))

    def require(self, name: str, at: str) -> None:
        if name not in self.required:
            if name in self.forbidden:
                raise Contradiction(self.forbidden[name], at)
            self.required[name] = at
            self.unsettled[name] = None

    def forbid(self, name: str, at: str) -> None:
        if name in self.required:
            raise Contradiction(self.required[name], at)
        self.forbidden.setdefault(name, at)

    def child(self, name: str, literal: SchemaLiteral) -> None:
        self.extra[name] = (*self.extra.get(name, ()), literal)
        self.unsettled[name] = None

    def name(self, literal: SchemaLiteral) -> None:
        self.names = (*self.names, literal)

    def demand(self, exists: Exists) -> None:
        self.demands = (*self.demands, exists)

    def literals(self, name: str) -> tuple[SchemaLiteral, ...]:
        """All literals for the value of a name."""
        stated: tuple[SchemaLiteral, ...] = ()
        for group in self.groups:
            stated += cover(group, name)
        return stated + self.extra.get(name, ())

    def settle(self, inspector: Inspector) -> None:
        for name in self.unsettled:
            if name not in self.required:
                continue
            literals = self.literals(name)
            if len(literals) == 1 and literals[0].constant == 0:
                continue  # nothing that it could contradict
            if (why := inspector.contradiction(literals)) is not None:
                raise Contradiction(*why, self.required[name])
        self.unsettled.clear()
        if self.size.most is not None and len(self.required) > self.size.most:
            raise Contradiction(next(iter(self.required.values())), self.size.most_at)

    def entails(self, step: tuple[Any, ...], inspector: Inspector) -> bool:
        if step[0] == "require":
            return step[1] in self.required
        if step[0] == "forbid":
            return step[1] in self.forbidden or any(lit.constant < 0 for lit in self.literals(step[1]))
        if step[0] == "child":
            return inspector.implies(self.literals(step[1]), step[2])
        return False


def cover(group: ObjectGroup, name: str) -> tuple[SchemaLiteral, ...]:
    """The literals of a group for the value of a name; the group keeps the answer."""
    if (covering := group.found.get(name)) is not None:
        return covering
    stated = [group.properties[name]] if name in group.properties else []
    stated += [literal for pattern, literal in group.patterns if found(pattern, name)]
    if not stated and group.rest is not None and name not in group.properties:
        stated = [group.rest]
    # A matching pattern or a declaration excludes `additionalProperties`, even if it asserts nothing itself.
    group.found[name] = covering = tuple(literal for literal in stated if literal.constant <= 0)
    return covering
