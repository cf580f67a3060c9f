"""Intersects a network with a DFA: the network of the texts that both accept (Bar-Hillel, Perles and Shamir).

Each rule is copied once for every pair of DFA states between which it can be read. Only reachable and co-reachable
pairs are kept, so the result has no dead ends. Token references are refused, because a token that is named by its id
has no bytes here. It knows no vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.fragment import Fragment, refine
from espalier.automata.languages.network import Network, assemble
from espalier.automata.languages.nfa import ByteSet, Symbol, bytes_in
from espalier.errors import GrammarError, LimitExceeded, UnsupportedError
from espalier.time_limit import check as check_time

MAX_PAIRS = 300_000
"""The most pairs of a position and a DFA state."""

Pair = tuple[int, int]
"""A position of the network and a state of the DFA."""
Name = tuple[int, int, int]
"""One copy of a rule: the rule's first position, and the DFA states before and after it (-1: any accept state)."""


def intersect_network(network: Network, dfa: Dfa, *, max_pairs: int = MAX_PAIRS) -> Network:
    """The intersection. Raises GrammarError if it is empty, LimitExceeded, UnsupportedError for token references."""
    if any(network.tokens):
        raise UnsupportedError(
            "a grammar that refers to tokens cannot be intersected", hint="leave the <token> references out"
        )
    pairs = _Pairs(network, dfa, max_pairs)
    root: Name = (network.start, dfa.start, -1)
    number: dict[Name, int] = {root: 0}
    fragments: list[Fragment] = []
    names: list[str] = []
    todo = [root]
    states = 0
    for name in todo:  # grows as rules call others
        fragment = pairs.fragment(name, number, todo)
        if not fragment.final[0] and not fragment.edges[0] and not fragment.symbols[0]:
            raise GrammarError("no text satisfies this at all", hint="the parts contradict one another")
        states += len(fragment)
        if states > max_pairs:
            raise _too_large(max_pairs)
        fragments.append(fragment)
        names.append(network.rule[name[0]])
    return assemble(fragments, names, ())


class _ReachedPairs(NamedTuple):
    """The pairs that one rule reaches from one DFA state, wherever it ends.

    order: the pairs, the entry first. before: for each pair, the indices of the pairs that lead to it by an edge or a
    call. ends: by DFA state, the indices of the pairs at which the rule may end.
    """

    order: list[Pair]
    before: list[list[int]]
    ends: dict[int, list[int]]


def _too_large(max_pairs: int) -> LimitExceeded:
    return LimitExceeded(
        f"the intersection needs more than {max_pairs} states",
        hint="a constraint that counts multiplies the states of a nested one: use max_tokens to bound the length",
    )


class _Pairs:
    """For each rule and each DFA state in which the rule is entered: the pairs it reaches and the states it ends in."""

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
        self._disjoint: dict[Pair, list[tuple[ByteSet, tuple[Pair, ...]]]] = {}
        self._met: dict[Pair, _ReachedPairs] = {}  # by a rule's first position and the state before it
        self.ends: dict[Pair, set[int]] = {}  # by a rule's first position and the state before it
        self._explore(max_pairs)

    def _explore(self, max_pairs: int) -> None:
        net = self.network
        seen: set[tuple[Pair, Pair]] = set()
        waiting: dict[Pair, list[tuple[Pair, int]]] = {}  # by called rule: the callers, and where each goes on
        start = (net.start, self.dfa.start)
        self.ends[start] = set()
        todo: list[tuple[Pair, Pair]] = [(start, start)]
        while todo:
            item = todo.pop()
            if item in seen:
                continue
            check_time()
            seen.add(item)
            if len(seen) > max_pairs:
                raise _too_large(max_pairs)
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
        """The edges of a pair. The sets of bytes may overlap if the network is nondeterministic."""
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

    def disjoint(self, pair: Pair) -> list[tuple[ByteSet, tuple[Pair, ...]]]:
        """The same edges with disjoint sets of bytes, each with all targets of its bytes."""
        known = self._disjoint.get(pair)
        if known is None:
            known = self._disjoint[pair] = _by_bytes(self.edges(pair))
        return known

    def calls(self, pair: Pair) -> Iterator[tuple[Name, Pair]]:
        """The copies of rules that can be called at a pair, and the pair that each returns to."""
        position, state = pair
        for callee, after in self.network.calls[position]:
            for end in sorted(self.ends[callee, state]):
                yield (callee, state, end), (after, end)

    def fragment(self, name: Name, number: dict[Name, int], todo: list[Name]) -> Fragment:
        """The fragment of one copy of a rule. The copies that it calls are numbered, and new ones added to `todo`."""
        start, state, end = name
        met = self._met.get((start, state))
        if met is None:
            met = self._met[start, state] = self._meet((start, state))
        accepting = self.dfa.accepting
        lasts = [i for state, last in met.ends.items() for i in last if (accepting[state] if end < 0 else state == end)]
        live = set(lasts)
        waiting = list(lasts)
        while waiting:
            check_time()
            for i in met.before[waiting.pop()]:
                if i not in live:
                    live.add(i)
                    waiting.append(i)
        # Only co-reachable calls are numbered: other copies may accept nothing.
        kept = sorted(live | {0})
        new = {met.order[i]: place for place, i in enumerate(kept)}
        fragment = Fragment(edges=[], symbols=[], final=[], leaf=[])
        last = set(lasts)
        for i in kept:
            check_time()
            pair = met.order[i]
            edges = ((members, tuple(new[t] for t in targets if t in new)) for members, targets in self.disjoint(pair))
            fragment.edges.append([(members, targets) for members, targets in edges if targets] if i in live else [])
            mentions = [(callee, new[target]) for callee, target in self.calls(pair) if target in new]
            for callee, _ in mentions if i in live else ():
                if callee not in number:
                    number[callee] = len(number)
                    todo.append(callee)
            fragment.symbols.append(
                _by_symbol([(("rule", number[callee]), target) for callee, target in mentions]) if i in live else []
            )
            fragment.final.append(i in last)
            fragment.leaf.append(self.network.leaf[pair[0]])
        return fragment

    def _meet(self, entry: Pair) -> _ReachedPairs:
        place: dict[Pair, int] = {entry: 0}
        order: list[Pair] = [entry]
        before: list[list[int]] = [[]]
        ends: dict[int, list[int]] = {}
        for i, pair in enumerate(order):  # grows as pairs are met
            check_time()
            if self.network.final[pair[0]]:
                ends.setdefault(pair[1], []).append(i)
            for target in dict.fromkeys(
                [*(target for target, _ in self.edges(pair)), *(target for _, target in self.calls(pair))]
            ):
                if target not in place:
                    place[target] = len(order)
                    order.append(target)
                    before.append([])
                before[place[target]].append(i)
        return _ReachedPairs(order, before, ends)


def _by_bytes(pairs: list[tuple[Pair, ByteSet]]) -> list[tuple[ByteSet, tuple[Pair, ...]]]:
    """Edges with disjoint sets of bytes, each with all targets of its bytes."""
    seen: ByteSet = 0
    for _, members in pairs:
        if seen & members:
            break
        seen |= members
    else:
        return [(members, (target,)) for target, members in pairs]
    joined: dict[tuple[Pair, ...], ByteSet] = {}
    for part in refine(members for _, members in pairs):
        targets = tuple(sorted({target for target, members in pairs if part & members}))
        if targets:
            joined[targets] = joined.get(targets, 0) | part
    return [(members, targets) for targets, members in joined.items()]


def _by_symbol(pairs: list[tuple[Symbol, int]]) -> list[tuple[Symbol, tuple[int, ...]]]:
    joined: dict[Symbol, set[int]] = {}
    for symbol, target in pairs:
        joined.setdefault(symbol, set()).add(target)
    return [(symbol, tuple(sorted(targets))) for symbol, targets in joined.items()]
