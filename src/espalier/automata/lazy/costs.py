"""The least number of bytes that an expression, or the rest of a character, reads. It knows no items, no positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from espalier.automata.languages.nfa import DONE, ByteSet, utf8_edges
from espalier.automata.lazy.linear import ENDLESS
from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Literal,
    Node,
    Repeat,
    RuleRef,
    Sequence,
    TokenRef,
    fold,
)

Utf8: TypeAlias = tuple[tuple[tuple[ByteSet, int], ...], ...]
"""An automaton that reads one character, see `nfa.utf8_edges`."""


def rest_of_character(nodes: Utf8, at: int) -> int:
    """The least number of bytes from a node to the end of the character."""
    least, level = 1, {at}
    while not any(child == DONE for node in level for _, child in nodes[node]):
        least += 1
        level = {child for node in level for _, child in nodes[node]}
    return least


def least_bytes(node: Node, of_rule: Callable[[str], int]) -> int:
    """The least number of bytes that an expression reads, at least ENDLESS where it matches nothing."""
    match node:
        case Literal(text):
            return len(text.encode())
        case RuleRef(name):
            return of_rule(name)
        case CharClass() | AnyChar():
            nodes = utf8_edges(node.scalars())
            return rest_of_character(nodes, 0) if nodes and nodes[0] else ENDLESS
        case TokenRef():
            return 1

    def visit(inner: Node, parts: list[int]) -> int:
        match inner:
            case Repeat(_, low, _):
                return low * parts[0] if low else 0
            case Alternative():
                return min(parts)
            case Sequence():
                return sum(parts)
            case _:
                return least_bytes(inner, of_rule)

    return min(fold(node, visit), ENDLESS)
