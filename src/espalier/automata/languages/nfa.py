"""Compiles an expression over code points to an NFA over bytes (Thompson's construction).

A reference to a rule is one symbol, or, for the rules in `inline`, the rule's own expression in its place. A set of
bytes is an int of 256 bits, bit b for byte b. Nothing here recurses over trees, so groups may be nested 10,000 deep.
It knows no vocabulary and no stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias, assert_never

from espalier.errors import LimitExceeded
from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Literal,
    Node,
    Position,
    Repeat,
    RuleRef,
    Sequence,
    TokenRef,
)
from espalier.grammar.ranges import Ranges
from espalier.time_limit import check as check_time

ByteSet: TypeAlias = int
"""256 bits, bit b for byte b."""
ByteNodes: TypeAlias = tuple[tuple[tuple[ByteSet, int], ...], ...]
"""The nodes of an automaton over the bytes of one character, each as its edges `(bytes, target node)`."""
Symbol: TypeAlias = tuple[str, int]
"""The label of an edge that reads no byte: `("rule", number)` or `("token", number of a token reference)`."""

DONE = -1
"""The target of the edge that reads the last byte of a character."""
WORDS = 32
"""An alternative of at least so many literals becomes one word graph instead of a path for each literal."""
_LAST_OF_LENGTH = (0x7F, 0x7FF, 0xFFFF, 0x10FFFF)


def byte_range(low: int, high: int) -> ByteSet:
    """The set of the bytes from `low` to `high`."""
    return (1 << (high + 1)) - (1 << low)


def bytes_in(members: ByteSet) -> list[int]:
    """The bytes of a set, ascending."""
    return [b for b in range(256) if members >> b & 1]


@lru_cache(maxsize=4096)
def utf8_edges(ranges: Ranges) -> ByteNodes:
    """The minimal acyclic automaton over UTF-8 bytes that reads one code point of `ranges`, which hold no surrogates.

    Node 0 is the start. A node is the tuple of its edges `(bytes, target node)`; the target of the last byte is DONE.
    """
    nodes: list[tuple[tuple[ByteSet, int], ...]] = [()]
    known: dict[tuple[tuple[ByteSet, int], ...], int] = {}

    def make(tails: list[tuple[tuple[int, int], ...]], root: bool) -> int:
        # The ranges are disjoint, so the ranges of first bytes are equal or disjoint.
        by_first: dict[tuple[int, int], list[tuple[tuple[int, int], ...]]] = {}
        for tail in tails:
            by_first.setdefault(tail[0], []).append(tail[1:])
        merged: dict[int, ByteSet] = {}
        for (low, high), rest in by_first.items():
            child = make(rest, False) if rest[0] else DONE
            merged[child] = merged.get(child, 0) | byte_range(low, high)
        edges = tuple(sorted((members, child) for child, members in merged.items()))
        if root:
            nodes[0] = edges
            return 0
        if edges not in known:
            known[edges] = len(nodes)
            nodes.append(edges)
        return known[edges]

    spelled = [tail for low, high in ranges for tail in _spellings(low, high)]
    if spelled:
        make(spelled, True)
    return tuple(nodes)


def _spellings(low: int, high: int) -> list[tuple[tuple[int, int], ...]]:
    """The UTF-8 encodings of a range of code points, as sequences of byte ranges."""
    spellings: list[tuple[tuple[int, int], ...]] = []
    todo = [(low, high)]
    while todo:
        low, high = todo.pop()
        cut = next((last for last in _LAST_OF_LENGTH if low <= last < high), None)
        if cut is None:
            # After the first byte that differs, both bounds must be aligned to whole blocks of continuation bytes.
            for bits in (6, 12, 18):
                block = (1 << bits) - 1
                if high > 0x7F and low & ~block != high & ~block:
                    if low & block:
                        cut = low | block
                        break
                    if high & block != block:
                        cut = (high & ~block) - 1
                        break
        if cut is not None and low <= cut < high:
            todo += [(cut + 1, high), (low, cut)]
            continue
        spellings.append(tuple(zip(chr(low).encode(), chr(high).encode(), strict=True)))
    return spellings


def word_graph(spelled: Iterable[bytes]) -> list[tuple[bool, tuple[tuple[int, int], ...]]]:
    """The minimal acyclic automaton of these words (Daciuk), as nodes `(a word ends here, ((byte, target), ...))`.

    Targets come before the nodes that lead to them; the root is last. Words are added in sorted order, so only the path
    of the last word is still open.
    """
    nodes: list[tuple[bool, tuple[tuple[int, int], ...]]] = []
    known: dict[tuple[bool, tuple[tuple[int, int], ...]], int] = {}
    path: list[list[tuple[int, int]]] = [[]]  # by depth: the finished edges of the open node at that depth
    ends = [False]
    last = b""

    def settle(depth: int) -> None:
        for at in range(len(path) - 1, depth, -1):
            node = (ends.pop(), tuple(path.pop()))
            if node not in known:
                known[node] = len(nodes)
                nodes.append(node)
            path[-1].append((last[at - 1], known[node]))

    for word in sorted(set(spelled)):
        check_time()
        shared = 0
        while shared < min(len(word), len(last)) and word[shared] == last[shared]:
            shared += 1
        settle(shared)
        for _ in range(len(word) - shared):
            path.append([])
            ends.append(False)
        ends[-1] = True
        last = word
    settle(0)
    # The root is a node of its own even if another node is equal to it.
    nodes.append((ends[0], tuple(path[0])))
    return nodes


@dataclass(slots=True)
class Nfa:
    """A nondeterministic automaton with states 0..n-1; each list has one entry for each state.

    epsilon: target states. edges: (bytes, target). symbols: (symbol, target). leaf: the position in the grammar's
    source of the terminal or reference that starts at the state. limit: the most states; `new` raises LimitExceeded
    past it.
    """

    epsilon: list[list[int]] = field(default_factory=list)
    edges: list[list[tuple[ByteSet, int]]] = field(default_factory=list)
    symbols: list[list[tuple[Symbol, int]]] = field(default_factory=list)
    leaf: list[Position | None] = field(default_factory=list)
    limit: int = 1_000_000

    def new(self) -> int:
        check_time()
        if len(self.edges) >= self.limit:
            raise LimitExceeded(
                f"the expression needs more than {self.limit} states", hint="lower the counts in {m,n}, or nest less"
            )
        self.epsilon.append([])
        self.edges.append([])
        self.symbols.append([])
        self.leaf.append(None)
        return len(self.edges) - 1

    def add(
        self,
        node: Node,
        start: int,
        end: int,
        *,
        symbol: Callable[[RuleRef | TokenRef], Symbol],
        inline: Mapping[str, Node],
    ) -> None:
        """Add paths from `start` to `end` that read `node`; no new edge leads into `start` or out of `end`.

        symbol: the symbol of a rule or token reference. inline: bodies of rules that replace their references.
        """
        todo: list[tuple[Node, int, int]] = [(node, start, end)]
        known: dict[int, ByteNodes] = {}  # by the id of a class, which a repetition copies many times
        while todo:
            node, s, t = todo.pop()
            match node:
                case Literal(text, position):
                    self._chain(text.encode(), s, t, position)
                case CharClass() | AnyChar():
                    edges = known.get(id(node))
                    if edges is None:
                        edges = known[id(node)] = utf8_edges(node.scalars())
                    self._character(edges, s, t, node.position)
                case RuleRef(name) if name in inline:
                    todo.append((inline[name], s, t))
                case RuleRef() | TokenRef():
                    self.symbols[s].append((symbol(node), t))
                    self.leaf[s] = node.position
                case Sequence(()):
                    self.epsilon[s].append(t)
                case Sequence(items):
                    inner = [s, *(self.new() for _ in items[1:]), t]
                    todo.extend((item, inner[i], inner[i + 1]) for i, item in enumerate(items))
                case Alternative(options) if len(options) >= WORDS and all(isinstance(o, Literal) for o in options):
                    self._words([o.text.encode() for o in options if isinstance(o, Literal)], s, t)
                    self.leaf[s] = node.position
                case Alternative(options):
                    for option in options:
                        # Each option has a state of its own, which keeps the option's leaf.
                        entry = self.new()
                        self.epsilon[s].append(entry)
                        todo.append((option, entry, t))
                case Repeat():
                    self._repeat(node, s, t, todo)
                case _:
                    assert_never(node)

    def _chain(self, text: bytes, s: int, t: int, leaf: Position | None) -> None:
        for i, byte in enumerate(text):
            target = t if i == len(text) - 1 else self.new()
            self.edges[s].append((1 << byte, target))
            self.leaf[s] = leaf
            s = target

    def _character(self, nodes: ByteNodes, s: int, t: int, leaf: Position | None) -> None:
        at = [s, *(self.new() for _ in nodes[1:])]
        for state, edges in zip(at, nodes, strict=True):
            self.edges[state].extend((members, t if child == DONE else at[child]) for members, child in edges)
            self.leaf[state] = leaf

    def _words(self, spelled: list[bytes], s: int, t: int) -> None:
        nodes = word_graph(spelled)
        at = [s if i == len(nodes) - 1 else self.new() for i in range(len(nodes))]
        for i, (ends, edges) in enumerate(nodes):
            self.edges[at[i]].extend((1 << byte, at[child]) for byte, child in edges)
            if ends:
                self.epsilon[at[i]].append(t)

    def _repeat(self, node: Repeat, s: int, t: int, todo: list[tuple[Node, int, int]]) -> None:
        copies = node.min if node.max is not None else max(node.min - 1, 0)
        for _ in range(copies):
            after = self.new()
            todo.append((node.item, s, after))
            s = after
        if node.max is None:
            first, last = self.new(), self.new()
            self.epsilon[s].append(first)
            self.epsilon[last] += [first, t]
            if node.min == 0:
                self.epsilon[first].append(t)
            todo.append((node.item, first, last))
            return
        for _ in range(node.max - node.min):
            after = self.new()
            self.epsilon[s].append(t)
            todo.append((node.item, s, after))
            s = after
        self.epsilon[s].append(t)


def class_masks(classes: Iterable[int], count: int) -> list[ByteSet]:
    """The bytes of each of `count` byte classes. classes: the class of each byte, 256 of them."""
    masks: list[ByteSet] = [0] * count
    for byte, number in enumerate(classes):
        masks[number] |= 1 << byte
    return masks


def closure(nfa: Nfa, start: int) -> list[int]:
    """The epsilon closure of a state, itself included. States that have nothing but epsilon edges are left out."""
    seen = {start}
    todo = [start]
    kept: list[int] = []
    while todo:
        state = todo.pop()
        epsilon = nfa.epsilon[state]
        if nfa.edges[state] or nfa.symbols[state] or not epsilon:
            kept.append(state)
        for target in epsilon:
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return kept
