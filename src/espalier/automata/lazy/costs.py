"""The least number of bytes that an expression, the rest of a character, or a text without some words reads.

It knows no items, and of positions only what can be read there.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

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
from espalier.time_limit import check as check_time

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
    cost = _plain_cost(node, of_rule)
    if cost is not None:
        return cost
    if isinstance(node, Sequence):
        total = 0
        for item in node.items:
            if (cost := _plain_cost(item, of_rule)) is None:
                break
            total += cost
        else:
            return min(total, ENDLESS)
    match node:
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


def _plain_cost(node: Node, of_rule: Callable[[str], int]) -> int | None:
    """What an expression costs that says so itself; None for others, whose parts have to be looked at."""
    if type(node) is Literal:
        return len(node.text) if node.text.isascii() else len(node.text.encode())
    if type(node) is RuleRef:
        return of_rule(node.name)
    return 0 if type(node) is Repeat and not node.min else None


def narrowed(words: tuple[bytes, ...], at: int) -> dict[int, tuple[bytes, ...]]:
    """The words by their byte at `at`, for those that have one."""
    by_byte: dict[int, list[bytes]] = {}
    for word in words:
        if len(word) > at:
            by_byte.setdefault(word[at], []).append(word)
    return {byte: tuple(some) for byte, some in by_byte.items()}


def least_without(start: Any, words: tuple[bytes, ...], at: int) -> int:
    """The least number of bytes of a text from the position `start` of a shared automaton on that is none of these
    words, of which `at` bytes are read; ENDLESS where every text is one: a search along the words, the way that is
    shortest without them first."""
    if start.is_over:
        return ENDLESS if any(len(word) == at for word in words) else 0
    count = 0
    heap: list[tuple[int, int, int, Any, tuple[bytes, ...]]] = [(start.least, 0, at, start, words)]
    while heap:
        check_time()
        least, _, depth, place, left = heappop(heap)
        if not left:
            return least
        if place.met().is_over:
            if not any(len(word) == depth for word in left):
                return least
            continue
        by_byte = narrowed(left, depth)
        read = depth - at + 1
        for members, target in place.edges:
            for byte, some in by_byte.items():
                if members >> byte & 1:
                    members &= ~(1 << byte)
                    count += 1
                    heappush(heap, (read + target.least, count, depth + 1, target, some))
            if members:
                count += 1
                heappush(heap, (read + target.least, count, depth + 1, target, ()))
    return ENDLESS
