"""Writes `AnyOf` as a GBNF grammar for llama.cpp: an alternation of the members' grammars."""

from __future__ import annotations

from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.to_gbnf import GrammarUnion, grammar_of
from espalier.grammar.ast import Grammar, alt


def any_of_grammar(spec: AnyOf, compiler: Compiler, before: str) -> Grammar:
    """See `to_gbnf.grammar_of`."""
    book = GrammarUnion()
    return book.grammar(alt(*(book.add(grammar_of(member, compiler, before)) for member in spec.members)))
