"""A network and a deterministic automaton at once: the network of the texts that both accept.

Each rule is taken once for every pair of the automaton's states that it can lead from and to (Bar-Hillel, Perles and
Shamir), only for pairs that are reached and that some text leads through, so nothing in the result is a dead end.
It knows nothing of vocabularies; token references are refused, since a token named by id has no bytes here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from espalier.automata.dfa import Dfa
from espalier.automata.fragment import Fragment, pruned, refine
from espalier.automata.network import Network, assemble
from espalier.automata.nfa import ByteSet, Symbol, bytes_in
from espalier.errors import GrammarError, LimitExceeded, UnsupportedError

MAX_PAIRS = 1_000_000
"""Pairs of a position and a state."""

Pair = tuple[int, int]
"""A position of the network and a state of the automaton."""
Name = tuple[int, int, int]
"""The start of a rule, and the automaton's states before and after it; -1 after the whole text."""


def intersect_network(network: Network, dfa: Dfa, *, max_pairs: int = MAX_PAIRS) -> Network:
    """Raises GrammarError if no text is left, LimitExceeded, UnsupportedError for a grammar that names tokens."""
    if any(network.tokens):
        raise UnsupportedError(
            "a grammar that names tokens cannot be intersected", hint="leave the <token> references out of one of them"
        )
    found = _Pairs(network, dfa, max_pairs)
    root: Name = (network.start, dfa.start, -1)
    number: dict[Name, int] = {root: 0}
    fragments: list[Fragment] = []
    names: list[str] = []
    todo = [root]
    states = 0
    for name in todo:  # grows as rules call others
        fragment = found.fragment(name, number, todo)
        if not fragment.final[0] and not fragment.edges[0] and not fragment.symbols[0]:
            raise GrammarError("no text satisfies this at all", hint="the parts contradict one another")
        states += len(fragment)
        if states > max_pairs:
            raise LimitExceeded(f"the intersection needs more than {max_pairs} states")
        fragments.append(fragment)
        names.append(network.rule[name[0]])
    return assemble(fragments, names, ())


class _Pairs:
    """Which pairs each rule meets, begun in each state of the automaton, and in which states it can end."""

    def __init__(self, network: Network, dfa: Dfa, max_pairs: int) -> None:
        self.network = network
        self.dfa = dfa
        joint = network.classes.astype(np.int64) * 256 + dfa.classes  # (256,)
        masks: dict[int, ByteSet] = {}
        for byte, letter in enumerate(joint.tolist()):
            masks[letter] = masks.get(letter, 0) | 1 << byte
        parts = refine(masks.values())
        firsts = [bytes_in(part)[0] for part in parts]
        self._masks = parts
        self._which = network.which[:, network.classes[firsts]]  # (P, C)
        self._table = dfa.table[:, dfa.classes[firsts]]  # (S, C)
        self._edges: dict[Pair, list[tuple[Pair, ByteSet]]] = {}
        self.ends: dict[Pair, set[int]] = {}  # by the start of a rule and the state before it
        self._explore(max_pairs)

    def _explore(self, max_pairs: int) -> None:
        net = self.network
        seen: set[tuple[Pair, Pair]] = set()
        waiting: dict[Pair, list[tuple[Pair, int]]] = {}  # by callee: who called, and where it goes on
        start = (net.start, self.dfa.start)
        self.ends[start] = set()
        todo: list[tuple[Pair, Pair]] = [(start, start)]
        while todo:
            item = todo.pop()
            if item in seen:
                continue
            seen.add(item)
            if len(seen) > max_pairs:
                raise LimitExceeded(f"the intersection needs more than {max_pairs} states")
            entry, (position, state) = item
            if net.final[position] and state not in self.ends[entry]:
                self.ends[entry].add(state)
                todo += [(caller, (after, state)) for caller, after in waiting.get(entry, ())]
            todo += [(entry, target) for target, _ in self.edges((position, state))]
            for callee, after in net.calls[position]:
                inner = (callee, state)
                waiting.setdefault(inner, []).append((entry, after))
                if inner not in self.ends:
                    self.ends[inner] = set()
                    todo.append((inner, inner))
                todo += [(entry, (after, end)) for end in self.ends[inner]]

    def edges(self, pair: Pair) -> list[tuple[Pair, ByteSet]]:
        """Where the bytes lead from a pair; the sets of bytes may overlap if the network's do."""
        known = self._edges.get(pair)
        if known is None:
            position, state = pair
            joined: dict[Pair, ByteSet] = {}
            row = zip(self._which[position].tolist(), self._table[state].tolist(), self._masks, strict=True)
            for index, target, members in row:
                if index >= 0 and target >= 0:
                    for after in self.network.moves[position][index]:
                        joined[after, target] = joined.get((after, target), 0) | members
            known = self._edges[pair] = list(joined.items())
        return known

    def calls(self, pair: Pair) -> Iterator[tuple[Name, Pair]]:
        """The rules that can be called at a pair, by how they end, and where each returns to."""
        position, state = pair
        for callee, after in self.network.calls[position]:
            for end in sorted(self.ends[callee, state]):
                yield (callee, state, end), (after, end)

    def fragment(self, name: Name, number: dict[Name, int], todo: list[Name]) -> Fragment:
        """One rule between two states. The rules that it calls are numbered, and added to `todo` if they are new."""
        start, before, end = name
        place: dict[Pair, int] = {(start, before): 0}
        order: list[Pair] = [(start, before)]
        edges: list[list[tuple[ByteSet, tuple[int, ...]]]] = []
        mentions: list[list[tuple[Name, int]]] = []
        final: list[bool] = []

        def at(pair: Pair) -> int:
            if pair not in place:
                place[pair] = len(order)
                order.append(pair)
            return place[pair]

        for pair in order:  # grows as pairs are met
            edges.append(_by_bytes([(members, at(target)) for target, members in self.edges(pair)]))
            mentions.append([(callee, at(target)) for callee, target in self.calls(pair)])
            position, state = pair
            ends_here = bool(self.dfa.accepting[state]) if end < 0 else state == end
            final.append(self.network.final[position] and ends_here)
        # Calls are numbered only once it is known which of them are left: others may not exist at all.
        distinct = list(dict.fromkeys(callee for row in mentions for callee, _ in row))
        index = {callee: i for i, callee in enumerate(distinct)}
        found = pruned(
            Fragment(
                edges=edges,
                symbols=[_by_symbol([(("rule", index[callee]), target) for callee, target in row]) for row in mentions],
                final=final,
                leaf=[self.network.leaf[position] for position, _ in order],
            )
        )
        for row in found.symbols:
            for i, ((kind, local), targets) in enumerate(row):
                callee = distinct[local]
                if callee not in number:
                    number[callee] = len(number)
                    todo.append(callee)
                row[i] = ((kind, number[callee]), targets)
        return found


def _by_bytes(pairs: list[tuple[ByteSet, int]]) -> list[tuple[ByteSet, tuple[int, ...]]]:
    """Edges with disjoint sets of bytes, each with all that its bytes lead to."""
    parts = refine(members for members, _ in pairs)
    joined: dict[tuple[int, ...], ByteSet] = {}
    for part in parts:
        targets = tuple(sorted({target for members, target in pairs if part & members}))
        if targets:
            joined[targets] = joined.get(targets, 0) | part
    return [(members, targets) for targets, members in joined.items()]


def _by_symbol(pairs: list[tuple[Symbol, int]]) -> list[tuple[Symbol, tuple[int, ...]]]:
    joined: dict[Symbol, set[int]] = {}
    for symbol, target in pairs:
        joined.setdefault(symbol, set()).add(target)
    return [(symbol, tuple(sorted(targets))) for symbol, targets in joined.items()]
