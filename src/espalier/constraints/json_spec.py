"""JSON mode through our own automata. JSON Schema is in `schema_spec.py`."""

from __future__ import annotations

from espalier.automata.dfa import Dfa
from espalier.automata.network import Network
from espalier.constraints.automaton_matcher import automaton_of, compile_grammar
from espalier.constraints.base import Compiled
from espalier.constraints.compile import Compiler
from espalier.constraints.spec import JsonObject
from espalier.grammar.ast import Grammar
from espalier.grammar.json_mode import json_grammar


def compile_object(spec: JsonObject, compiler: Compiler) -> Compiled:
    """JSON mode is a grammar of our own. Raises VocabError."""
    return compile_grammar(object_grammar(spec), spec, compiler.vocab, compiler.trie)


def object_language(spec: JsonObject, compiler: Compiler) -> Dfa | Network:
    return automaton_of(object_grammar(spec))


def object_grammar(spec: JsonObject) -> Grammar:
    return json_grammar(kinds=spec.kinds, whitespace=spec.whitespace, indent=spec.indent, max_depth=spec.max_depth)
