"""Regexes and choices as byte automata: one grammar rule, matched whole, from first byte to last."""

from __future__ import annotations

from espalier.automata.dfa import Dfa
from espalier.automata.network import Network
from espalier.constraints.automaton_matcher import automaton_of, compile_grammar
from espalier.constraints.base import Compiled
from espalier.constraints.compile import Compiler
from espalier.constraints.spec import Choice, Regex
from espalier.errors import RegexError, SpecError
from espalier.grammar.analysis import productive
from espalier.grammar.ast import EMPTY, Grammar, Literal, Node, Rule, alt
from espalier.grammar.regex import parse_regex

ROOT = "root"


def compile_regex(spec: Regex, compiler: Compiler) -> Compiled:
    """Raises RegexError with an offset, UnsupportedError for what is not regular, LimitExceeded for a pattern whose
    automaton is too large."""
    return compile_grammar(regex_grammar(spec), spec, compiler.vocab, compiler.trie)


def regex_language(spec: Regex, compiler: Compiler) -> Dfa | Network:
    """As `compile_regex`."""
    return automaton_of(regex_grammar(spec))


def regex_grammar(spec: Regex) -> Grammar:
    grammar = _one_rule(parse_regex(spec.pattern))
    if ROOT not in productive(grammar):
        raise RegexError("no text matches this pattern", pattern=spec.pattern)
    return grammar


def compile_choice(spec: Choice, compiler: Compiler) -> Compiled:
    """Raises SpecError for a text that UTF-8 cannot say, LimitExceeded for more choices than an automaton can hold."""
    return compile_grammar(_one_rule(_options(spec)), spec, compiler.vocab, compiler.trie)


def choice_language(spec: Choice, compiler: Compiler) -> Dfa:
    """As `compile_choice`."""
    _options(spec)
    return Dfa.of_words(spec.options)


def _options(spec: Choice) -> Node:
    for number, option in enumerate(spec.options):
        if any(0xD800 <= ord(c) < 0xE000 for c in option):
            raise SpecError(f"choice {number} holds half a character (a surrogate)", field="options")
    return alt(*(Literal(option) if option else EMPTY for option in spec.options))


def _one_rule(body: Node) -> Grammar:
    return Grammar.of([Rule(ROOT, body)], root=ROOT)
