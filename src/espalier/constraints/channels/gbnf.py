"""Writes `Channels` as a GBNF grammar for llama.cpp, which reads a special token as the text of its name."""

from __future__ import annotations

from dataclasses import replace

from espalier.chat.reading.channel_header import OPENING, message_begun
from espalier.constraints.channels.compile import MessageCalls, members_of
from espalier.constraints.channels.spec import Channels
from espalier.constraints.compiler import Compiler
from espalier.constraints.to_gbnf import NO_COUNTING, GrammarUnion, grammar_of, of_dfa, refused
from espalier.constraints.tools.grammar import calls_grammar
from espalier.grammar.ast import Grammar, alt, seq


def channels_grammar(spec: Channels, compiler: Compiler, before: str) -> Grammar:
    """See `to_gbnf.grammar_of`."""
    if spec.max_tokens is not None:
        raise refused(spec, NO_COUNTING, "leave the limit out")
    if message_begun(before):
        raise refused(spec, "the prompt holds a part of a message already")
    book = GrammarUnion()
    parts = []
    for inner, headers, _ in members_of(spec, compiler):
        start = headers.text.start if OPENING not in before else headers.message
        if isinstance(inner, MessageCalls):
            grammar = calls_grammar(inner).grammar
        else:
            grammar = grammar_of(inner, compiler, "")
        parts.append(seq(book.add(of_dfa(replace(headers.text, start=start))), book.add(grammar)))
    return book.grammar(alt(*parts))
