"""Branches: what a set of literals says about values of one type, while choices (`anyOf`, `not`, `if`) are still open.

    in     literals {"anyOf": [{"minimum": 5}, {"maximum": 2}]}, type NUMBER, as a Branch with one open choice
    out    two branches without choices, whose facts are low=5, and high=2

`grow` makes the choices one by one and drops a branch as soon as its facts contradict each other. It builds no cases:
`assemble.py` does, from finished branches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from espalier.errors import SchemaError
from espalier.schema.normal.container_facts import ArrayFacts, ObjectFacts
from espalier.schema.normal.facts import Contradiction, Facts, NumberFacts, StringFacts
from espalier.schema.normal.inspect import Inspector
from espalier.schema.normal.literals import SchemaLiteral
from espalier.schema.read.values import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, STRING, type_of
from espalier.time_limit import check as check_time

Step: TypeAlias = tuple[Any, ...]
"""A method of the branch or of its facts, by name, and its arguments: `("longer", 3, "/minLength")`."""
Alternative: TypeAlias = tuple[Step, ...]
"""Steps that are taken together: one way to satisfy a choice."""

EXACT, ANY_OF, NO_NEGATIONS, NO_CHOICES = range(4)
"""Levels of approximation, tried in this order until the branches stay within the limit. Left out (so that more values
fit) are: nothing; that the options of `oneOf` exclude each other; also every negation that can fail in several ways;
also every choice once there are many branches."""
FEW = 32
"""Branches from which NO_CHOICES leaves choices out."""
LOOK_AHEAD = 3
"""Depth of nested choices that are tried to see that an option is impossible."""
STEPS = 64
"""Alternatives tried, for each branch that the limit allows."""

FACTS: dict[int, Callable[[], Facts]] = {
    NULL: Facts,
    BOOLEAN: Facts,
    NUMBER: NumberFacts,
    STRING: StringFacts,
    ARRAY: ArrayFacts,
    OBJECT: ObjectFacts,
}


class LiteralRules(Protocol):
    """The effect of literals on a branch; implemented in `keywords/table.py`."""

    def hold(self, literal: SchemaLiteral, branch: Branch) -> None:
        """State everything that a positive literal says of values of the branch's type. Raises Contradiction."""
        ...

    def ways_to_fail(self, literal: SchemaLiteral, branch: Branch) -> list[Alternative] | None:
        """How a value of the branch's type can fail to satisfy a literal. None: every value fails, or how they fail
        cannot be expressed (which is then reported with `branch.leave`)."""
        ...


class Overflow(Exception):
    """There are more branches than the limit allows."""


class Branch:
    """parents: every literal that holds here, and the literals that applied it. choices: still open, each with the
    pointer of its keyword. values: the only values possible, by key, None for any. excluded: scalars that are not.
    unevaluated: calls of `await_evaluation`, settled at the end. left: what was left out
    (a pointer or a literal), and why. later: calls of `only` that wait for open choices. before: how many choices were
    open before the alternative that is being run."""

    __slots__ = (
        "before",
        "choices",
        "excluded",
        "facts",
        "inspector",
        "kind",
        "later",
        "left",
        "level",
        "parents",
        "rules",
        "table",
        "unevaluated",
        "values",
    )

    def __init__(self, inspector: Inspector, rules: LiteralRules, kind: int, level: int) -> None:
        self.inspector = inspector
        self.table = inspector.table
        self.rules = rules
        self.kind = kind
        self.level = level
        self.facts = FACTS[kind]()
        self.parents: dict[SchemaLiteral, tuple[SchemaLiteral, ...]] = {}
        self.choices: list[tuple[str, list[Alternative]]] = []
        self.values: dict[Any, Any] | None = None
        self.excluded: dict[Any, Any] = {}
        self.unevaluated: list[tuple[str, SchemaLiteral, SchemaLiteral]] = []
        self.before = 0
        self.later: list[tuple[SchemaLiteral, int, list[SchemaLiteral], list[SchemaLiteral]]] = []
        self.left: tuple[tuple[str | SchemaLiteral, str], ...] = ()

    def clone(self) -> Branch:
        new = Branch.__new__(Branch)
        new.inspector, new.table, new.rules = self.inspector, self.table, self.rules
        new.kind, new.level = self.kind, self.level
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

    def add(self, literal: SchemaLiteral, parent: SchemaLiteral | None = None) -> None:
        """State that a literal holds; parent: the literal that applies it. Raises Contradiction."""
        if literal.constant:
            if literal.constant < 0:
                raise Contradiction(literal.subschema.at())
            return
        known = self.parents.get(literal)
        if parent is not None:
            self.check_cycle(literal, parent)
        self.parents[literal] = (known or ()) + ((parent,) if parent is not None else ())
        if known is not None:
            return
        if literal.positive:
            self.rules.hold(literal, self)
            return
        alternatives = self.rules.ways_to_fail(literal, self)
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

    def check_cycle(self, literal: SchemaLiteral, parent: SchemaLiteral) -> None:
        """Raises SchemaError for a literal that applies itself to the same value: such a schema means nothing."""
        if parent.subschema is not literal.subschema and literal not in self.parents:
            return
        stack, seen = [parent], {parent}
        while stack:
            check_time()
            ancestor = stack.pop()
            if ancestor.subschema is literal.subschema and ancestor.scope == literal.scope:
                raise SchemaError("this schema refers to itself without end", pointer=literal.subschema.at())
            for older in self.parents.get(ancestor, ()):
                if older not in seen:
                    seen.add(older)
                    stack.append(older)

    def leave(self, pointer: str | SchemaLiteral, note: str) -> None:
        """Leave a keyword out, so that more values fit. pointer: to the keyword, or the literal that is left out."""
        self.left = (*self.left, (pointer, note))

    def choose(self, pointer: str, alternatives: list[Alternative]) -> None:
        """At least one of the alternatives must hold. pointer: to the keyword that says so."""
        self.choices.append((pointer, alternatives))

    def restrict(self, values: dict[Any, Any], at: str) -> None:
        """The value is one of these (by key)."""
        common = {k: v for k, v in (self.values if self.values is not None else values).items() if k in values}
        self.values = {k: v for k, v in common.items() if type_of(v) == self.kind and k not in self.excluded}
        if not self.values:
            raise Contradiction(at)

    def exclude(self, values: dict[Any, Any], at: str) -> None:
        """The value is none of these scalars (by key)."""
        mine = {k: v for k, v in values.items() if type_of(v) == self.kind}
        self.excluded = {**self.excluded, **mine}
        full = {NULL: 1, BOOLEAN: 2}.get(self.kind)
        if full is not None and len(self.excluded) == full:
            raise Contradiction(at)
        if self.values is not None:
            self.restrict(self.values, at)

    def only(
        self, literal: SchemaLiteral, chosen: int, others: list[SchemaLiteral], denied: list[SchemaLiteral]
    ) -> None:
        """No option of `oneOf` but the chosen one holds. An option that cannot hold anyway needs no denial; to see
        that, the choices inside the chosen option are made first. others: all options. denied: their negations."""
        if len(self.choices) > self.before:
            self.later.append((literal, chosen, others, denied))
            return
        for i, other in enumerate(others):
            if i == chosen or other.constant < 0 or self.refutes(other, literal):
                continue
            if self.level >= ANY_OF:
                self.leave(literal.subschema.at("oneOf"), "that only one option fits was left out: too many ways")
            else:
                self.add(denied[i], literal)

    def await_evaluation(self, keyword: str, literal: SchemaLiteral, others: SchemaLiteral) -> None:
        """An `unevaluated*` keyword of a literal holds, or fails where the literal is negative. It waits until all
        choices are made: only then is it known what was evaluated. others: what evaluates, a positive literal."""
        self.unevaluated.append((keyword, literal, others))

    def is_evaluation_denied(self, literal: SchemaLiteral) -> bool:
        """Whether a literal was applied beside an `unevaluated*` keyword that fails."""
        stack, seen = [literal], {literal}
        while stack:
            check_time()
            for parent in self.parents.get(stack.pop(), ()):
                if not parent.positive and any(name.startswith("unevaluated") for name, _ in parent.ops):
                    return True
                if parent not in seen:
                    seen.add(parent)
                    stack.append(parent)
        return False

    def refutes(self, literal: SchemaLiteral, parent: SchemaLiteral) -> bool:
        """Whether a literal contradicts what holds already, as far as LOOK_AHEAD choices show."""
        trial = self.clone()
        trial.choices = []
        try:
            trial.add(literal, parent)
            trial.facts.settle(self.inspector)
            return not trial.is_open(LOOK_AHEAD)
        except Contradiction:
            return True

    def is_open(self, depth: int) -> bool:
        """Whether each open choice still has an alternative that does not contradict the facts. Uses up the choices."""
        choices, self.choices = self.choices, []
        return all(any(self.survives(alternative, depth) for alternative in choice) for _, choice in choices)

    def survives(self, alternative: Alternative, depth: int) -> bool:
        """Whether an alternative can be taken, on a copy, and leaves choices that are open to `depth`."""
        trial = self.clone()
        try:
            trial.take(tuple(step for step in alternative if step[0] != "only"))
        except Contradiction:
            return False
        return depth == 0 or trial.is_open(depth - 1)

    # Choices

    def take(self, alternative: Alternative) -> None:
        """Make a choice, and check the facts. Raises Contradiction."""
        self.before = len(self.choices)
        self.run(alternative)
        self.facts.settle(self.inspector)

    def run(self, alternative: Alternative) -> None:
        """Call the method of each step, on the branch or on its facts."""
        for name, *arguments in alternative:
            method = getattr(self, name) if name in OWN else getattr(self.facts, name)
            method(*arguments)

    def needs(self, alternatives: list[Alternative]) -> bool:
        """Whether a choice counts even where it asserts nothing new, since it says which names are declared."""
        if self.table.unevaluated or not self.table.closed or self.kind != OBJECT:
            return self.table.unevaluated
        return any(step[0] == "add" and step[1].positive for way in alternatives for step in way)

    def entails(self, alternative: Alternative) -> bool:
        """Whether an alternative would add nothing to what is known."""
        for step in alternative:
            if step[0] == "add":
                if step[1] not in self.parents and step[1].constant <= 0:
                    return False
                if step[1].constant == 0:
                    self.check_cycle(step[1], step[2])
            elif not self.facts.entails(step, self.inspector):
                return False
        return True


OWN = {"add", "only", "exclude", "restrict", "choose", "await_evaluation"}
"""Steps that are methods of the branch; all others are methods of its facts."""


def grow(start: Branch, limit: int, reasons: list[tuple[str, ...]]) -> list[Branch]:
    """All branches that result when every choice is made.

    limit: how many branches are allowed; beyond it, Overflow is raised. reasons: gets the pointers of each
    contradiction that drops a branch.
    """
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
            if not branch.needs(alternatives) and any(map(branch.entails, alternatives)):
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
