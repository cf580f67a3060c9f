"""Writes `After` and `Thinking` as GBNF grammars for llama.cpp.

Refused are limits on tokens, which no grammar counts, and texts that a grammar would read in two ways.
"""

from __future__ import annotations

from itertools import product

from espalier.automata.phrases.occurrences import until
from espalier.constraints.after.border import GAP, WHITESPACE
from espalier.constraints.after.spec import After
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Gbnf
from espalier.constraints.to_gbnf import NO_COUNTING, GrammarUnion, grammar_of, of_dfa, refused
from espalier.grammar.ast import CharClass, Grammar, Literal, Node, Repeat, alt, seq
from espalier.grammar.printer import print_grammar
from espalier.grammar.ranges import merge
from espalier.tokens.vocab import Vocab

_BYTES = Compiler(Vocab.bytes())  # caches the grammars that `_can_begin` walks, one byte a token


def after_grammar(spec: After, compiler: Compiler, before: str) -> Grammar:
    """See `to_gbnf.grammar_of`."""
    if spec.max_before is not None:
        raise refused(spec, NO_COUNTING, "leave the limit out")
    if spec.opens is not None and spec.opens[0] in WHITESPACE.decode():
        raise refused(spec, "its opening begins with whitespace")
    answer = spec.answer_in(before)
    if answer:
        raise refused(spec, "the prompt holds a part of the answer already")
    book = GrammarUnion()
    inner = grammar_of(spec.spec, compiler, before)
    rest = _behind_gap(spec, book, inner, compiler, before) if spec.gap else book.add(inner)
    if answer is not None:
        return book.grammar(rest)
    waiting: list[Node] = [book.add(of_dfa(until([spec.marker.encode()])))]
    if spec.opens is not None and not spec.opened_in(before):
        waiting = [Repeat(_blanks(WHITESPACE), 0, GAP), Literal(spec.opens), *waiting]
    return book.grammar(seq(*waiting, rest))


def thinking_grammar(spec: Thinking, compiler: Compiler, before: str) -> Grammar:
    """See `to_gbnf.grammar_of`."""
    if spec.max_tokens is not None:
        raise refused(spec, NO_COUNTING, "leave the limit out")
    thought = grammar_of(spec.thought, compiler, before)
    if spec.begun(before):
        return thought
    answer = grammar_of(spec.spec, compiler, before)
    start = spec.start.encode()
    if any(
        _can_begin(answer, bytes(blanks) + start) for n in range(GAP + 1) for blanks in product(WHITESPACE, repeat=n)
    ):
        raise refused(spec, f"the answer itself can begin with {spec.start!r}")
    book = GrammarUnion()
    return book.grammar(alt(book.add(thought), book.add(answer)))


def _behind_gap(spec: After, book: GrammarUnion, inner: Grammar, compiler: Compiler, before: str) -> Node:
    """The inner text with the whitespace before it. What begins with an opening reads the whitespace itself."""
    parts = spec.spec.beginnings()
    grammars = [inner] if parts == (spec.spec,) else [grammar_of(part, compiler, before) for part in parts]
    gap = _gap(grammars)
    behind = [seq(gap, book.add(grammar)) for grammar in grammars]
    return alt(*behind) if grammars == [inner] else alt(book.add(inner), *behind)


def _gap(beginnings: list[Grammar]) -> Node:
    """The whitespace between the marker and the inner text: only such as the inner text cannot begin with."""
    others = bytes(
        blank for blank in WHITESPACE if not any(_can_begin(grammar, bytes([blank])) for grammar in beginnings)
    )
    return Repeat(_blanks(others), 0, GAP) if others else seq()


def _can_begin(grammar: Grammar, data: bytes) -> bool:
    """Whether any text of the grammar begins with these bytes."""
    matcher = _BYTES.compile(Gbnf(print_grammar(grammar), root=grammar.root)).matcher()
    for byte in data:
        if not matcher.allows(byte):
            return False
        matcher.advance(byte)
    return True


def _blanks(members: bytes) -> Node:
    return CharClass(merge((blank, blank) for blank in members))
