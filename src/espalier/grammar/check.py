"""Checks a parsed grammar: findings with positions for errors, likely slips and what llama.cpp refuses.

    check(parse('root ::= "a" | lost'))      [error: line 1, column 16: rule 'lost' is used and never defined]

It does not know vocabularies or engines, beyond what llama.cpp is known to refuse. The facts come from `analysis`; the
repairs are in `rewrite`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal as OneOf

from espalier.errors import GrammarError, excerpt
from espalier.grammar.analysis import (
    arrows,
    left_recursive_cycles,
    left_references,
    nullable,
    nullable_costs,
    productive,
    reachable,
    references,
)
from espalier.grammar.ast import Grammar, Node, Position, Repeat, Rule, fold
from espalier.grammar.rewrite import nullable_loops, remove_left_recursion

__all__ = [
    "GrammarFinding",
    "check",
    "left_recursive_cycles",
    "nullable",
    "productive",
    "reachable",
    "remove_left_recursion",
    "validate",
]

Severity = OneOf["error", "warning", "note"]

LLAMA_CPP_REPEATS = 2000
"""llama.cpp refuses a higher minimum or product of counts, and treats a higher maximum as no limit."""
NEAR_NAMES, NEAR_RULES = 20, 5000
"""Similar names are suggested for this many undefined names, in grammars of at most this many rules: it is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarFinding:
    """One fact to report about a grammar.

    code: no-root, undefined-rule, empty-language (errors: the grammar cannot be used); dead-rule, unreachable-rule,
    replaced-rule (warnings: likely a slip); left-recursion, nullable-loop, llama-cpp (notes: handled here, but refused
    or slow elsewhere).
    """

    severity: Severity
    code: str
    message: str
    rule: str | None = None
    position: Position | None = None
    hint: str | None = None

    def __str__(self) -> str:
        where = f"{self.position}: " if self.position else ""
        return f"{self.severity}: {where}{self.message}{f' ({self.hint})' if self.hint else ''}"


def check(grammar: Grammar) -> list[GrammarFinding]:
    """All findings: errors first, then warnings, then notes; each kind in the grammar's order."""
    alive = productive(grammar)
    return [*_errors(grammar, alive), *_warnings(grammar, alive), *_notes(grammar)]


def validate(grammar: Grammar, alive: frozenset[str] | None = None) -> None:
    """Raises GrammarError for the first finding that is an error. alive: `productive(grammar)`, where it is known."""
    for error in _errors(grammar, productive(grammar) if alive is None else alive):
        place = error.position
        raise GrammarError(
            error.message,
            line=place.line if place else None,
            column=place.column if place else None,
            excerpt=excerpt(grammar.source, place.offset) if place and grammar.source else "",
            hint=error.hint,
        )


def _errors(grammar: Grammar, alive: frozenset[str]) -> Iterator[GrammarFinding]:
    if grammar.root not in grammar.rules:
        yield GrammarFinding(severity="error", code="no-root", message=f"there is no rule named {grammar.root!r}")
    undefined: dict[str, None] = {}
    for rule in grammar.rules.values():
        for ref in references(rule.body):
            if ref.name in grammar.rules or ref.name in undefined:
                continue
            undefined[ref.name] = None
            near = _near(ref.name, grammar) if len(undefined) <= NEAR_NAMES else []
            yield GrammarFinding(
                severity="error",
                code="undefined-rule",
                message=f"rule {ref.name!r} is used and never defined",
                rule=rule.name,
                position=ref.position or rule.position,
                hint=f"did you mean {' or '.join(map(repr, near))}?" if near else None,
            )
    if grammar.root in grammar.rules and grammar.root not in alive:
        rule = grammar.rules[grammar.root]
        yield GrammarFinding(
            severity="error",
            code="empty-language",
            message=f"rule {rule.name!r} derives no finite sentence",
            rule=rule.name,
            position=rule.position,
            hint="every option refers back to a rule that never ends; give one of them an option that ends",
        )


def _warnings(grammar: Grammar, alive: frozenset[str]) -> Iterator[GrammarFinding]:
    used = reachable(grammar)
    for rule in grammar.rules.values():
        if rule.name not in alive and rule.name != grammar.root:
            yield _about(rule, "warning", "dead-rule", "derives no finite sentence: no text can use it")
        if rule.name not in used:
            yield _about(rule, "warning", "unreachable-rule", f"is not reached from {grammar.root!r}")
    for rule in grammar.replaced:
        yield _about(rule, "warning", "replaced-rule", "is defined again later; only the later one counts")


def _notes(grammar: Grammar) -> Iterator[GrammarFinding]:
    empty = nullable_costs(grammar)
    for cycle in left_recursive_cycles(grammar, left_references(grammar, empty)):
        message = f"starts with itself: {arrows(cycle)}. It is rewritten here; llama.cpp refuses it"
        yield _about(grammar.rules[cycle[0]], "note", "left-recursion", message)
    for rule in grammar.rules.values():
        for loop in nullable_loops(rule.body, empty):
            message = "repeats something that can be empty. It is rewritten here; llama.cpp may refuse it"
            yield _about(rule, "note", "nullable-loop", message, loop.position)
        if "_" in rule.name:
            yield _about(rule, "note", "llama-cpp", "has a name with `_`, which llama.cpp refuses")
        if counts := _counts_for_llama_cpp(rule.body):
            yield _about(rule, "note", "llama-cpp", counts)


def _about(rule: Rule, severity: Severity, code: str, message: str, position: Position | None = None) -> GrammarFinding:
    return GrammarFinding(
        severity=severity,
        code=code,
        message=f"rule {rule.name!r} {message}",
        rule=rule.name,
        position=position or rule.position,
    )


def _counts_for_llama_cpp(body: Node) -> str | None:
    """How llama.cpp treats counts that it does not enforce as written; None if it enforces all."""
    unbounded = False

    def visit(node: Node, parts: list[int]) -> int:
        nonlocal unbounded
        inner = max(parts, default=1)
        if not isinstance(node, Repeat):
            return inner
        most = node.max or node.min or 1
        if node.min <= LLAMA_CPP_REPEATS < most:
            unbounded = True
            most = max(node.min, 1)
        return inner * most

    if fold(body, visit) > LLAMA_CPP_REPEATS:
        return f"repeats more than {LLAMA_CPP_REPEATS} times, which llama.cpp refuses"
    return f"has a limit above {LLAMA_CPP_REPEATS}, which llama.cpp takes as no limit" if unbounded else None


def _near(name: str, grammar: Grammar) -> list[str]:
    """At most two rule names that are similar."""
    if len(grammar.rules) > NEAR_RULES:
        return []
    lengths = range(len(name) - 2, len(name) + 3)
    return get_close_matches(name, [other for other in grammar.rules if len(other) in lengths], n=2)
