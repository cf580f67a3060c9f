"""Writes `ToolCalls` as a GBNF grammar for llama.cpp: free text, calls, or text and then calls."""

from __future__ import annotations

from espalier.automata.phrases.occurrences import until
from espalier.constraints.compiler import Compiler
from espalier.constraints.to_gbnf import GrammarUnion, of_automaton, of_dfa
from espalier.constraints.tools.compile import BLANK, free_text
from espalier.constraints.tools.grammar import calls_grammar
from espalier.constraints.tools.spec import ToolCalls
from espalier.grammar.ast import Grammar, Literal, Repeat, alt, seq


def tool_calls_grammar(spec: ToolCalls, compiler: Compiler, before: str) -> Grammar:
    """See `to_gbnf.grammar_of`."""
    if spec.choice.mode == "none" or spec.content is not None:
        return of_automaton(spec, compiler)
    calls = calls_grammar(spec)
    if spec.choice.mode == "required":
        return calls.grammar
    book = GrammarUnion()
    text = book.add(of_dfa(free_text(spec)))
    marker = spec.wire.marker
    if not marker:
        # Where nothing but whitespace has come, calls may still begin.
        return book.grammar(alt(text, seq(Repeat(BLANK), book.add(calls.grammar))))
    line_end = Repeat(Literal("\n"), 0, 1)
    behind = seq(book.add(of_dfa(until([marker.encode()]))), book.add(calls.after_marker), line_end)
    return book.grammar(alt(text, behind))
