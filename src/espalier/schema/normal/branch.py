"""A branch: what a set of literals says of values of one type, with choices (`anyOf`, `not`, `if`) still to be made.

`grow` makes the choices, one after another, and drops what contradicts itself at once. It builds no cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from espalier.errors import SchemaError
from espalier.schema.normal.facts import ArrayFacts, Contradiction, Facts, Judge, NumberFacts, ObjectFacts, StringFacts
from espalier.schema.normal.literals import Literal
from espalier.schema.read.documents import Place
from espalier.schema.read.values import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING, type_of
from espalier.time_limit import check as check_time

Step: TypeAlias = tuple[Any, ...]
"""A method of the branch or of its facts, and its arguments."""
Alternative: TypeAlias = tuple[Step, ...]

EXACT, ANY_OF, NO_NEGATIONS, NO_CHOICES = range(4)
"""How much is left out so that a schema stays within the limits: nothing; that options of `oneOf` exclude each other;
whatever a negation leaves open; whatever is open once there are many branches."""
FEW = 32
"""Branches, at the last of these levels."""
LOOK_AHEAD = 3
"""Choices inside one another that are tried to see that an option is impossible."""
STEPS = 64
"""Alternatives tried for each branch that is allowed."""

FACTS: dict[int, Callable[[], Facts]] = {
    NULL: Facts,
    BOOLEAN: Facts,
    NUMBER: NumberFacts,
    STRING: StringFacts,
    ARRAY: ArrayFacts,
    OBJECT: ObjectFacts,
}


class Whole(Judge, Protocol):
    """What a branch asks of the expansion that it is part of."""

    anything: Literal
    unevaluated: bool
    """Some schema asks what was evaluated."""

    def literal(self, place: Place, parent: Literal, positive: bool, origin: str | Literal = "") -> Literal:
        """The literal of a place that stands in the parent, or is referred to by it."""
        ...

    def target(self, literal: Literal, keyword: str) -> Place: ...

    def keyword(self, literal: Literal, name: str, value: Any, branch: Branch) -> None:
        """An operation that holds."""
        ...

    def negated(self, literal: Literal, branch: Branch) -> list[Alternative] | None:
        """The ways in which a literal can fail for this type, None if it does in any case (or nobody can say how)."""
        ...


class Overflow(Exception):
    """More branches than the limit."""


class Branch:
    __slots__ = (
        "before",
        "choices",
        "excluded",
        "facts",
        "kind",
        "later",
        "left",
        "level",
        "parents",
        "unevaluated",
        "values",
        "whole",
    )

    def __init__(self, whole: Whole, kind: int, level: int) -> None:
        self.whole = whole
        self.kind = kind
        self.level = level
        self.facts = FACTS[kind]()
        self.parents: dict[Literal, tuple[Literal, ...]] = {}
        """Every literal that holds here, and where it was applied."""
        self.choices: list[tuple[str, list[Alternative]]] = []
        """Still to be made, each with its pointer."""
        self.values: dict[Any, Any] | None = None
        self.excluded: dict[Any, Any] = {}
        self.unevaluated: list[tuple[Literal, str]] = []
        self.before = 0
        """Choices that were open before the alternative that is being run."""
        self.later: list[tuple[Literal, int, list[Literal], list[Literal]]] = []
        """Calls of `only` that wait for choices to be made."""
        self.left: tuple[tuple[str | Literal, str], ...] = ()
        """Keywords that were left out, so that more fits than should, and why."""

    def clone(self) -> Branch:
        new = Branch.__new__(Branch)
        new.whole, new.kind, new.level = self.whole, self.kind, self.level
        new.facts = self.facts.clone()
        new.parents = dict(self.parents)
        new.choices = list(self.choices)
        new.values = self.values
        new.excluded = dict(self.excluded) if self.excluded else self.excluded
        new.unevaluated = list(self.unevaluated)
        new.left = self.left
        new.before = 0
        new.later = list(self.later)
        return new

    # Steps

    def add(self, literal: Literal, parent: Literal | None = None) -> None:
        """The literal holds. Raises Contradiction."""
        if literal.constant:
            if literal.constant < 0:
                raise Contradiction(literal.place.at())
            return
        known = self.parents.get(literal)
        if parent is not None:
            self.check_cycle(literal, parent)
        self.parents[literal] = (known or ()) + ((parent,) if parent is not None else ())
        if known is not None:
            return
        if literal.positive:
            for name, value in literal.ops:
                self.whole.keyword(literal, name, value, self)
            return
        alternatives = self.whole.negated(literal, self)
        if alternatives is None:
            return
        if not alternatives:
            raise Contradiction(literal.origin)
        if len(alternatives) == 1:
            self.run(alternatives[0])
        elif self.level >= NO_NEGATIONS:
            self.leave(literal, "there are too many ways in which it can fail")
        else:
            self.choices.append((literal.origin, alternatives))

    def check_cycle(self, literal: Literal, parent: Literal) -> None:
        """A literal applied to itself, without a step into the value, means nothing. Raises SchemaError."""
        if parent.place is not literal.place and literal not in self.parents:
            return
        stack, seen = [parent], {parent}
        while stack:
            check_time()
            ancestor = stack.pop()
            if ancestor.place is literal.place and ancestor.scope == literal.scope:
                raise SchemaError("this schema refers to itself without end", pointer=literal.place.at())
            for older in self.parents.get(ancestor, ()):
                if older not in seen:
                    seen.add(older)
                    stack.append(older)

    def leave(self, pointer: str | Literal, note: str) -> None:
        """pointer: of the keyword, or the literal that is left out."""
        self.left = (*self.left, (pointer, note))

    def choose(self, pointer: str, alternatives: list[Alternative]) -> None:
        """One of these holds. pointer: of the keyword that says so."""
        self.choices.append((pointer, alternatives))

    def restrict(self, values: dict[Any, Any], at: str) -> None:
        """One of these values."""
        kept = {k: v for k, v in (self.values if self.values is not None else values).items() if k in values}
        self.values = {k: v for k, v in kept.items() if type_of(v) == self.kind and k not in self.excluded}
        if not self.values:
            raise Contradiction(at)

    def exclude(self, values: dict[Any, Any], at: str) -> None:
        """None of these scalars."""
        mine = {k: v for k, v in values.items() if type_of(v) == self.kind}
        self.excluded = {**self.excluded, **mine}
        full = {NULL: 1, BOOLEAN: 2}.get(self.kind)
        if full is not None and len(self.excluded) == full:
            raise Contradiction(at)
        if self.values is not None:
            self.restrict(self.values, at)

    def only(self, literal: Literal, chosen: int, others: list[Literal], denied: list[Literal]) -> None:
        """Of the options of `oneOf` none but the chosen one holds. What cannot hold anyhow is not denied, so the
        choices inside the chosen one come first."""
        if len(self.choices) > self.before:
            self.later.append((literal, chosen, others, denied))
            return
        for i, other in enumerate(others):
            if i == chosen or other.constant < 0 or self.refutes(other, literal):
                continue
            if self.level >= ANY_OF:
                self.leave(literal.place.at("oneOf"), "that only one option fits was left out: too many ways")
            else:
                self.add(denied[i], literal)

    def refutes(self, literal: Literal, parent: Literal) -> bool:
        """The literal contradicts what holds already, as far as can be seen without making choices."""
        trial = self.clone()
        trial.choices = []
        try:
            trial.add(literal, parent)
            trial.facts.settle(self.whole)
            return not trial.is_open(LOOK_AHEAD)
        except Contradiction:
            return True

    def is_open(self, depth: int) -> bool:
        """Every choice has an alternative that does not fail at once."""
        choices, self.choices = self.choices, []
        return all(any(self.survives(alternative, depth) for alternative in choice) for _, choice in choices)

    def survives(self, alternative: Alternative, depth: int) -> bool:
        trial = self.clone()
        try:
            trial.take(tuple(step for step in alternative if step[0] != "only"))
        except Contradiction:
            return False
        return depth == 0 or trial.is_open(depth - 1)

    # Choices

    def take(self, alternative: Alternative) -> None:
        """Make a choice. Raises Contradiction."""
        self.before = len(self.choices)
        self.run(alternative)
        self.facts.settle(self.whole)

    def run(self, alternative: Alternative) -> None:
        for name, *arguments in alternative:
            method = getattr(self, name) if name in OWN else getattr(self.facts, name)
            method(*arguments)

    def entails(self, alternative: Alternative) -> bool:
        """The alternative would tell nothing new."""
        for step in alternative:
            if step[0] == "add":
                if step[1] not in self.parents and step[1].constant <= 0:
                    return False
                if step[1].constant == 0:
                    self.check_cycle(step[1], step[2])
            elif not self.facts.entails(step, self.whole):
                return False
        return True


OWN = {"add", "only", "exclude", "restrict", "choose"}


def grow(start: Branch, limit: int, reasons: list[tuple[str, ...]]) -> list[Branch]:
    """All branches without choices. reasons: why branches were dropped. Raises Overflow beyond the limit."""
    done: list[Branch] = []
    stack = [start]
    steps = 0
    while stack:
        check_time()
        branch = stack.pop()
        while branch.choices or branch.later:
            check_time()
            if not branch.choices:
                try:
                    branch.take((("only", *branch.later.pop(0)),))
                except Contradiction as why:
                    reasons.append(why.pointers)
                    break
                continue
            shortest = min(range(len(branch.choices)), key=lambda i: len(branch.choices[i][1]))
            pointer, alternatives = branch.choices.pop(shortest)
            if not branch.whole.unevaluated and any(map(branch.entails, alternatives)):
                continue
            if branch.level == NO_CHOICES and (len(stack) + len(done) > FEW or steps > limit * STEPS):
                branch.leave(pointer, "with what else is to be chosen there are too many ways")
                continue
            grown: list[Branch] = []
            for alternative in alternatives:
                steps += 1
                new = branch.clone()
                try:
                    new.take(alternative)
                except Contradiction as why:
                    reasons.append(why.pointers)
                    continue
                grown.append(new)
            many = steps > limit * STEPS and branch.level < NO_CHOICES
            if many or len(stack) + len(done) + len(grown) > limit:
                raise Overflow
            if not grown:
                break
            branch, *rest = grown
            stack.extend(reversed(rest))
        else:
            done.append(branch)
    return done
