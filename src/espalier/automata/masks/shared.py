"""Parts of masks that all schemas of one vocabulary share: of positions in strings, numbers and the like.

What such a position allows before its rule returns is the same in every schema, so it is walked once for a vocabulary.
Large counts are alike too: a token is too short to tell 900 more characters from 1,000. Smaller ones are counted by
levels of the trie: the nodes at which one item of a repetition ends, those at which two do, and so on, from which what
follows the repetition is read. It knows no stacks below.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.automata.lazy.explored import LazyState
from espalier.automata.lazy.items import End, LazyItem, LiteralText, RuleCall, Times
from espalier.automata.lazy.keys import Except, Keys
from espalier.automata.masks.parts import FEW, NO_NODES, MaskPart, PartStore, TrieNodes, nodes_of_any
from espalier.automata.masks.rows import LeafRows
from espalier.automata.masks.walker import WalkerPool, Words
from espalier.grammar.ast import Node
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MAX_KNOWN = 20_000
"""Positions and nodes whose part is remembered; past that all are forgotten."""
MAX_ROWS = 100_000
"""Rows of positions that walks met; with half as many they start anew."""
MIN_COUNT = 4
"""Repetitions that may go on so often are counted by nodes of the trie, not by positions."""
MAX_DEPTH = 24
"""Parts inside parts; below them each count is a position."""


class SharedParts:
    """The parts of one vocabulary: what positions of shared automata allow, and the store of all schemas' masks."""

    def __init__(self, vocab: Vocab, trie: TokenTrie) -> None:
        self.store = PartStore(vocab.width)
        self.walkers = WalkerPool(trie, vocab.width)
        self._vocab = vocab
        self._trie = trie
        self._longest = trie.max_depth + 1
        self._parts: dict[tuple[LazyState, TrieNodes], MaskPart] = {}
        self._rows = LeafRows(MAX_ROWS)
        self._lock = WorkLock()

    def is_apart(self, place: LazyState) -> bool:
        """See `Sharing`."""
        is_apart = place.apart
        if is_apart is None:
            is_apart = place.explored.is_shared
            if not is_apart:
                read = [item for item in place.core if not isinstance(item, RuleCall | End)]
                is_apart = bool(read) and all(isinstance(item, Keys | LiteralText) for item in read)
                if not is_apart and len(read) == 1:
                    (item,) = read
                    is_apart = isinstance(item, Except) and item.after is place.explored.items.end and is_plain(item)
            place.apart = is_apart
        return is_apart

    def part(self, place: LazyState, nodes: TrieNodes) -> MaskPart | None:
        """See `Sharing`."""
        if place.explored.is_shared:
            return self._part(place, nodes)
        item = next((item for item in place.core if isinstance(item, Except)), None)
        return None if item is None else self._without(item, nodes)

    def _without(self, item: Except, below: TrieNodes) -> MaskPart:
        """What a shared automaton allows, without the tokens that end one of the words."""
        whole = self._part(item.start, below)
        refused: list[int] = []
        ends: set[int] = set()
        if len(item.words) * below.nodes.size > FEW:
            words = Words.of(item.words).some(range(len(item.words)), item.at)
            ends.update(self.walkers.spell(words, below.nodes)[1].tolist())
            refused = [token for node in ends for token in self._trie.ids_at(node)]
        else:
            for word, start in product(item.words, below.nodes.tolist()):
                ids, count, node = self.walkers.follow(word[item.at :], start)
                if node >= 0:
                    refused += ids[len(ids) - count :]
                    ends.add(node)
        if not ends:
            return whole
        left = None if whole.words is None else whole.words.without(refused, self._vocab.width)
        exits = whole.exits
        if exits is not None and not ends.isdisjoint(exits.nodes.tolist()):
            others = [node for node in exits.nodes.tolist() if node not in ends]
            exits = self.store.nodes(np.array(others, dtype=np.int32)) if others else None
        return MaskPart(left, exits)

    def _part(self, place: LazyState, nodes: TrieNodes, depth: int = 0) -> MaskPart:
        """depth: how many parts wait for this one."""
        part = self._parts.get((place, nodes))
        if part is None:
            short = place.explored.shortened(place, self._longest)
            part = self._parts.get((short, nodes))
            if part is None:
                with self._lock:
                    part = self._part_of(short, nodes, depth)
            if len(self._parts) > MAX_KNOWN:
                self._parts = {}
            self._parts[place, nodes] = self._parts[short, nodes] = part
        return part

    def _part_of(self, place: LazyState, nodes: TrieNodes, depth: int) -> MaskPart:
        if len(self._rows.states) > MAX_ROWS // 2 and depth == 0:
            self._rows.clear()
        counted = _CountedStates(self._rows) if depth < MAX_DEPTH else None
        if counted is not None and (repeat := counted_repeat(place)) is not None:
            return self._repeated(place, repeat, nodes, depth)
        bits, exits = self.walkers.walk(self._rows, self._rows.row(place), nodes.nodes, handed=counted)
        joined = _JoinedParts(bits, exits)
        for state, below in () if counted is None else counted.nodes.items():
            joined.add(self._part(state, self.store.nodes(nodes_of_any(below)), depth + 1))
        return joined.part(self.store)

    def _repeated(self, place: LazyState, repeat: CountedRepeat, nodes: TrieNodes, depth: int) -> MaskPart:
        """The part of a repetition: nodes at which so many items end, from one count to the next, and from them what
        follows the repetition. A token holds few items, so all larger counts have the same part."""
        explored = place.explored
        item = explored.start([explored.items.at(repeat.item, explored.items.end)])
        after = explored.start([repeat.after])
        joined = _JoinedParts(masks.empty(self._vocab.width), NO_NODES)
        levels: list[TrieNodes] = []
        level, count = nodes, 0
        while True:
            if count >= repeat.low:
                levels.append(level)
                if count and after.final:
                    joined.exits.append(level.nodes)
            if repeat.high is not None and count >= repeat.high:
                break
            one_more = self._part(item, level, depth + 1)
            if one_more.words is not None:
                one_more.words.put(joined.bits)
            if one_more.exits is None:
                break
            level, count = one_more.exits, count + 1
        if not after.is_over:
            if not all(isinstance(read, LiteralText | End) for read in after.core):
                inside = [some.nodes for some in levels if some is not self.store.whole]  # a walk has a root or nodes
                levels = [some for some in levels if some is self.store.whole]
                levels += [self.store.nodes(nodes_of_any(inside))] if inside else []
            for some in levels:
                joined.add(self._part(after, some, depth + 1))
        return joined.part(self.store)


def is_plain(item: Except) -> bool:
    """Whether the words are all that matters: along each of them the shared automaton stays where it is, and it can
    go on with other bytes too; or so it is after the first byte of all. Then the tokens are those of the shared
    automaton but for those that end a word."""
    start, at = item.start, item.at
    if at == 0 and len({word[:1] for word in item.words}) == 1 and item.words[0]:
        byte = item.words[0][0]
        start = next((target for members, target in start.met().edges if members >> byte & 1), start)
        at = 1
    if any(len(word) <= at for word in item.words):
        return False
    loops = sum(members for members, target in start.met().edges if target is start)
    used = 0
    for byte in set(b"".join([word[at:-1] for word in item.words])):
        used |= 1 << byte
    return not used & ~loops and bool(loops & ~used)


class _JoinedParts:
    """What several walks allow together."""

    def __init__(self, bits: Mask, exits: NDArray[np.int32]) -> None:
        self.bits = bits
        self.exits = [exits]

    def add(self, part: MaskPart) -> None:
        if part.words is not None:
            part.words.put(self.bits)
        if part.exits is not None:
            self.exits.append(part.exits.nodes)

    def part(self, store: PartStore) -> MaskPart:
        return store.part(self.bits, self.exits[0] if len(self.exits) == 1 else nodes_of_any(self.exits))


class CountedRepeat(NamedTuple):
    """A repetition: `item` at least `low` more times, at most `high` (None for any number), then `after`."""

    item: Node
    low: int
    high: int | None
    after: LazyItem


def counted_repeat(place: LazyState) -> CountedRepeat | None:
    """The repetition that begins at a position, if its counts make many positions."""
    times = place.item
    if not isinstance(times, Times):
        return None
    repeat, count = times.node, times.count
    low = max(repeat.min - count, 0)
    high = None if repeat.max is None else repeat.max - count
    if max(low, high or 0) < MIN_COUNT or not place.explored.items.cost(repeat.item):
        return None
    return CountedRepeat(repeat.item, low, high, times.after)


class _CountedStates:
    """The positions at which a walk stops, since a repetition begins there; and the nodes at which it did."""

    def __init__(self, rows: LeafRows) -> None:
        self._rows = rows
        self.nodes: dict[LazyState, list[NDArray[np.int32]]] = {}

    def takes(self, state: int) -> bool:
        return counted_repeat(self._rows.states[state]) is not None

    def take(self, state: int, nodes: NDArray[np.int32]) -> None:
        self.nodes.setdefault(self._rows.states[state], []).append(nodes)
