"""GBNF through our own byte automata: the language that the grammar says, exactly. It parses, no more: what
`compile_grammar` checks, it does not."""

from __future__ import annotations

from espalier.automata.dfa import Dfa
from espalier.automata.network import Network
from espalier.constraints.automaton_matcher import automaton_of, compile_grammar
from espalier.constraints.base import Compiled
from espalier.constraints.compile import Compiler
from espalier.constraints.spec import Gbnf
from espalier.grammar.parser import parse


def compile_gbnf(spec: Gbnf, compiler: Compiler) -> Compiled:
    """Raises GrammarError with line and column, VocabError for bytes or tokens that the vocabulary lacks,
    LimitExceeded for a grammar that is too large."""
    return compile_grammar(parse(spec.grammar, root=spec.root), spec, compiler.vocab, compiler.trie)


def gbnf_language(spec: Gbnf, compiler: Compiler) -> Dfa | Network:
    """Raises GrammarError, LimitExceeded."""
    return automaton_of(parse(spec.grammar, root=spec.root))
