"""GBNF through llguidance, one code point per lexeme: exact, if slow.

llguidance's own translation makes greedy lexemes of repeated classes, which silently changes the language of a grammar
whose lexemes overlap. Without lexemes longer than one code point there is nothing to be greedy about. It does not know
how a grammar is parsed or checked.
"""

from __future__ import annotations

from espalier.constraints.base import Compiled
from espalier.constraints.compile import Compiler
from espalier.constraints.schema_matcher import LlgBackend, LlgCompiled, LlgRefusal
from espalier.constraints.spec import Gbnf
from espalier.errors import UnsupportedError
from espalier.grammar.analysis import left_recursive_cycles
from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Node,
    Repeat,
    RuleRef,
    Sequence,
    TokenRef,
    fold,
)
from espalier.grammar.check import validate
from espalier.grammar.parser import parse
from espalier.grammar.ranges import Ranges
from espalier.grammar.rewrite import remove_left_recursion, trim


def compile_gbnf(spec: Gbnf, compiler: Compiler) -> Compiled:
    """Raises GrammarError with line and column, UnsupportedError for token references."""
    grammar = parse(spec.grammar, root=spec.root)
    validate(grammar)
    grammar = trim(grammar)
    if left_recursive_cycles(grammar):
        grammar = remove_left_recursion(grammar)
    try:
        return LlgCompiled(spec, compiler.part(LlgBackend), to_lark(grammar))
    except LlgRefusal as refusal:
        raise UnsupportedError(f"this grammar cannot be enforced yet: {str(refusal)[:300]}") from refusal


def to_lark(grammar: Grammar) -> str:
    """The same language in llguidance's Lark, scannerless."""
    names = {name: f"r{i}" for i, name in enumerate(grammar.rules)}

    def visit(node: Node, parts: list[str]) -> str:
        match node:
            case Literal(text=text):
                return " ".join(f"/{_point(ord(c))}/" for c in text)
            case CharClass() | AnyChar():
                return _class(node.scalars())
            case RuleRef(name=name):
                return names[name]
            case TokenRef():
                raise UnsupportedError(
                    f"the grammar names a token, {node.spelling}, which this version cannot enforce",
                    hint="token references need the byte automata",
                )
            case Sequence():
                return f"({' '.join(parts)})" if parts else '""'
            case Alternative():
                return f"({' | '.join(parts)})"
            case Repeat(min=low, max=high):
                return f"({parts[0]}){{{low},{'' if high is None else high}}}"

    rules = [f"{names[name]}: {fold(rule.body, visit)}" for name, rule in grammar.rules.items()]
    head = '%llguidance {"no_forcing": true}'
    return "\n".join([head, f"start: {names[grammar.root]}", *rules])


def _class(ranges: Ranges) -> str:
    body = "".join(_point(lo) if lo == hi else f"{_point(lo)}-{_point(hi)}" for lo, hi in ranges)
    return f"/[{body}]/"


def _point(code_point: int) -> str:
    return f"\\x{{{code_point:x}}}"
