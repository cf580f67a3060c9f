"""Writes a constraint as GBNF text for llama.cpp's own grammar sampler.

A kind whose grammar says more than its automaton writes its own (`ConstraintKind.to_gbnf`); the others are written from
their automata. What no grammar can express is refused, never narrowed in silence. It knows no engine. llama.cpp reads
a special token as the text of its name, so no grammar written here names a token by itself.
"""

from __future__ import annotations

from espalier.automata.languages.dfa import Dfa
from espalier.constraints.compiler import Compiler, find_kind
from espalier.constraints.matching.rewinding import check_only_masks
from espalier.constraints.spec import Spec
from espalier.errors import CapabilityError, GrammarError, LimitExceeded, UnsupportedError
from espalier.grammar.ast import Grammar, Node, Rule, RuleRef, fold
from espalier.grammar.llama_limits import within_limits
from espalier.grammar.printer import print_grammar
from espalier.grammar.rewrite import portable as rewritten
from espalier.grammar.rewrite import trim
from espalier.schema.lowering.dfa_rules import dfa_rules
from espalier.schema.lowering.rulebook import one_of

NO_COUNTING = "a grammar counts no tokens"


def portable(spec: Spec, compiler: Compiler, *, before: str = "") -> str:
    """GBNF text with the start rule `root`, for exactly the texts that the spec's matcher of `compiler`
    accepts.

    before: what the prompt already holds of the model's turn, as for `Compiled.matcher`. Raises CapabilityError, saying
    why, for a constraint that no grammar expresses; errors in the spec itself are raised as its compiler raises them.
    """
    check_only_masks(spec, "a grammar", field="constraint")
    try:
        return print_grammar(within_limits(rewritten(trim(grammar_of(spec, compiler, before)))))
    except CapabilityError:
        raise
    except (UnsupportedError, LimitExceeded, GrammarError) as error:
        raise refused(spec, error.message, error.hint) from error


def refused(spec: Spec, why: str, hint: str | None = None) -> CapabilityError:
    """The error for a constraint that no grammar expresses."""
    return CapabilityError(
        f"{spec.kind} cannot be written as a grammar for llama.cpp: {why}", hint=hint, field="constraint"
    )


def grammar_of(spec: Spec, compiler: Compiler, before: str) -> Grammar:
    """The grammar of a spec, not yet checked against llama.cpp's limits. Raises CapabilityError, and UnsupportedError,
    LimitExceeded and GrammarError, which `portable` turns into CapabilityError."""
    kind = find_kind(spec)
    grammar = None if kind is None else kind.to_gbnf(spec, compiler, before)
    return of_automaton(spec, compiler) if grammar is None else grammar


def of_automaton(spec: Spec, compiler: Compiler) -> Grammar:
    """The grammar of a constraint whose automaton is deterministic. Raises CapabilityError, UnsupportedError,
    LimitExceeded."""
    automaton = compiler.language(spec, wanted_by="a grammar for llama.cpp")
    if not isinstance(automaton, Dfa):
        raise refused(
            spec,
            "its parts are not regular, and only together they say what is allowed",
            "leave out a part, or use a sampler of our own",
        )
    return of_dfa(automaton)


def of_dfa(dfa: Dfa) -> Grammar:
    """The grammar of a deterministic automaton. Raises LimitExceeded."""
    count = 0

    def fresh() -> str:
        nonlocal count
        count += 1
        return f"part-{count}"

    body, rules = dfa_rules(dfa, one_of, fresh)
    return Grammar.of([Rule("root", body), *rules])


class GrammarUnion:
    """Collects the rules of several grammars, renaming them so that no two names clash."""

    def __init__(self) -> None:
        self._rules: dict[str, Rule] = {}
        self._count = 0

    def add(self, grammar: Grammar) -> RuleRef:
        """Take in a grammar's rules. Returns a reference to its start rule."""
        self._count += 1
        names = {name: f"p{self._count}-{name}" for name in grammar.rules}

        def visit(node: Node, parts: list[Node]) -> Node:
            if isinstance(node, RuleRef):
                return RuleRef(names[node.name])
            return node.with_children(parts) if parts else node

        for name, rule in grammar.rules.items():
            self._rules[names[name]] = Rule(names[name], fold(rule.body, visit))
        return RuleRef(names[grammar.root])

    def grammar(self, root: Node) -> Grammar:
        """All rules taken in, under a start rule with this body."""
        return Grammar.of([Rule("root", root), *self._rules.values()])
