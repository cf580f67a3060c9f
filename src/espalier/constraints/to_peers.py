"""Writes a constraint for other mask engines: Lark text for llguidance, EBNF text for xgrammar.

Both are written from the grammar that llama.cpp would get, so they have exactly its texts. llguidance reads a text with
a greedy lexer, which our grammars do not have: a grammar without recursion becomes one terminal, any other one has
terminals of one character each. What has no grammar is refused by name. It knows neither engine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.rewinding import check_only_masks
from espalier.constraints.spec import Spec
from espalier.constraints.to_gbnf import grammar_of
from espalier.errors import CapabilityError, GrammarError, LimitExceeded, UnsupportedError
from espalier.grammar.analysis import references
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
    postorder,
)
from espalier.grammar.rewrite import portable, trim
from espalier.time_limit import check as check_time

MAX_TEXT = 4_000_000
"""Characters of a grammar; both engines refuse far smaller ones, each at a size of its own."""
HEADER = '%llguidance {"no_forcing": true}\n'
"""Without it a mask of llguidance holds one spelling alone wherever the next bytes are forced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrammarDialect:
    """How one engine writes the leaves. name: of a rule, by its number. literal, ranges: of a text and of sorted ranges
    of code points. empty: the empty text."""

    engine: str
    name: Callable[[int], str]
    literal: Callable[[str], str]
    ranges: Callable[[tuple[tuple[int, int], ...]], str]
    empty: str


def to_llguidance(spec: Spec, compiler: Compiler) -> str:
    """Lark text for llguidance 1.9, for exactly the texts of the spec. Raises CapabilityError, naming the kind and the
    reason; errors in the spec itself are raised as its compiler raises them."""
    grammar = _grammar(spec, compiler, "llguidance")
    if _is_recursive(grammar):
        rules = _write_grammar(grammar, SCANNERLESS, "{} : {}\n", first="start")
    else:
        rules = "start: R0\n" + _write_grammar(grammar, ONE_TERMINAL, "{}: {}\n", first="R0")
    return _check_size(spec, HEADER + rules)


def to_xgrammar(spec: Spec, compiler: Compiler) -> str:
    """EBNF text for xgrammar 0.2, with the start rule `root`, for exactly the texts of the spec. Raises as
    `to_llguidance`."""
    grammar = _grammar(spec, compiler, "xgrammar")
    return _check_size(spec, _write_grammar(grammar, XGRAMMAR, "{} ::= {}\n", first="root"))


def _grammar(spec: Spec, compiler: Compiler, engine: str) -> Grammar:
    check_only_masks(spec, "a grammar", field="constraint")
    try:
        grammar = trim(portable(trim(grammar_of(spec, compiler, ""))))
    except (UnsupportedError, LimitExceeded, GrammarError) as error:
        why = error.message.replace("llama.cpp", engine)
        raise CapabilityError(
            f"{spec.kind} cannot be written for {engine}: {why}", hint=error.hint, field="constraint"
        ) from error
    for rule in grammar.rules.values():
        for node in postorder(rule.body):
            if isinstance(node, TokenRef):
                raise CapabilityError(
                    f"{spec.kind} cannot be written for {engine}: it names the token {node.spelling}, and each engine "
                    "has its own way of taking special tokens",
                    field="constraint",
                )
            if isinstance(node, CharClass) and not node.scalars():
                raise CapabilityError(f"{spec.kind} cannot be written for {engine}: it has no text", field="constraint")
    return grammar


def _is_recursive(grammar: Grammar) -> bool:
    """Whether a rule is reached from itself."""
    waits = {name: {reference.name for reference in references(rule.body)} for name, rule in grammar.rules.items()}
    while waits:
        done = {name for name, others in waits.items() if not others}
        if not done:
            return True
        waits = {name: others - done for name, others in waits.items() if name not in done}
    return False


def _write_grammar(grammar: Grammar, dialect: GrammarDialect, line: str, *, first: str) -> str:
    ordered = [grammar.root, *(name for name in grammar.rules if name != grammar.root)]
    names = {name: first if place == 0 else dialect.name(place) for place, name in enumerate(ordered)}

    def visit(node: Node, parts: list[str]) -> str:
        check_time()
        match node:
            case Literal():
                return dialect.literal(node.text)
            case CharClass() | AnyChar():
                return dialect.ranges(tuple(node.scalars()))
            case RuleRef():
                return names[node.name]
            case Sequence():
                return f"({' '.join(parts)})" if parts else dialect.empty
            case Alternative():
                return f"({' | '.join(parts)})"
            case Repeat():
                return f"({parts[0]}){_times(node.min, node.max)}" if node.max != 0 else dialect.empty
            case TokenRef():
                raise GrammarError("a special token was not refused")
            case never:
                assert_never(never)

    return "".join(line.format(names[name], fold(grammar.rules[name].body, visit)) for name in ordered)


def _times(least: int, most: int | None) -> str:
    short = {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most))
    return short or f"{{{least},{'' if most is None else most}}}"


def _check_size(spec: Spec, text: str) -> str:
    if len(text) > MAX_TEXT:
        raise CapabilityError(f"{spec.kind} is too large to be written: over {MAX_TEXT} characters", field="constraint")
    return text


def _rust(code: int) -> str:
    return chr(code) if chr(code).isascii() and chr(code).isalnum() else f"\\u{{{code:x}}}"


def _rust_class(ranges: tuple[tuple[int, int], ...]) -> str:
    inner = "".join(_rust(low) if low == high else f"{_rust(low)}-{_rust(high)}" for low, high in ranges)
    return f"/[{inner}]/"


def _c(code: int) -> str:
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _c_class(ranges: tuple[tuple[int, int], ...]) -> str:
    return f"[{''.join(_c(low) if low == high else f'{_c(low)}-{_c(high)}' for low, high in ranges)}]"


ONE_TERMINAL = GrammarDialect(
    engine="llguidance",
    name=lambda place: f"R{place}",
    ranges=_rust_class,
    empty='""',
    literal=lambda text: f"/{''.join(_rust(ord(c)) for c in text)}/",
)
SCANNERLESS = GrammarDialect(
    engine="llguidance",
    name=lambda place: f"r{place}",
    ranges=_rust_class,
    empty='""',
    literal=lambda text: " ".join(_rust_class(((ord(c), ord(c)),)) for c in text).join(("(", ")")),
)
XGRAMMAR = GrammarDialect(
    engine="xgrammar",
    name=lambda place: f"r{place}",
    ranges=_c_class,
    empty='""',
    literal=lambda text: f'"{"".join(_c(ord(c)) for c in text)}"',
)
