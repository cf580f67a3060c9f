"""Parts of masks that all schemas of one vocabulary share: of positions in strings, numbers and the like.

What such a position allows before its rule returns is the same in every schema, so it is walked once for a vocabulary.
Large counts are alike too: a token is too short to tell 900 more characters from 1,000. It knows no stacks below.
"""

from __future__ import annotations

import numpy as np

from espalier.automata.lazy.explored import LazyState
from espalier.automata.lazy.items import End, Except, Keys, LiteralText, RuleCall
from espalier.automata.lazy.network import LazyNetwork
from espalier.automata.masks.parts import NO_NODES, MaskPart, PartStore, TrieNodes
from espalier.automata.masks.pushdown import PushdownMachine
from espalier.automata.masks.walker import WalkerPool, Words
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MAX_KNOWN = 20_000
"""Positions and nodes whose part is remembered; past that all are forgotten."""
MAX_POSITIONS = 100_000
"""Positions met by the walks; past that they start anew."""


class SharedParts:
    """The parts of one vocabulary: what positions of shared automata allow, and the store of all schemas' masks."""

    def __init__(self, vocab: Vocab, trie: TokenTrie) -> None:
        self.store = PartStore(vocab.width)
        self.walkers = WalkerPool(trie, vocab.width)
        self._vocab = vocab
        self._trie = trie
        self._longest = trie.max_depth + 1
        self._parts: dict[tuple[LazyState, TrieNodes], MaskPart] = {}
        self._machine: tuple[LazyNetwork, PushdownMachine] | None = None
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
                    is_apart = isinstance(item, Except) and item.after is place.explored.items.end and item.is_plain()
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
        words = Words.of(item.words)
        _, ends, _ = self.walkers.spell(words.some(range(len(item.words)), item.at), below.nodes)
        nodes = ends.tolist()
        if not nodes:
            return whole
        bits = masks.empty(self._vocab.width)
        if whole.words is not None:
            whole.words.put(bits)
        masks.set_bits_inplace(bits, tuple(token for node in nodes for token in self._trie.ids_at(node)), False)
        exits = NO_NODES if whole.exits is None else whole.exits.nodes
        kept = np.ones(exits.size, dtype=np.bool_)
        if exits.size:
            at = np.minimum(np.searchsorted(exits, ends), exits.size - 1)
            kept[at[exits[at] == ends]] = False
        return self.store.part(bits, exits[kept])

    def _part(self, place: LazyState, nodes: TrieNodes) -> MaskPart:
        part = self._parts.get((place, nodes))
        if part is None:
            short = place.explored.shortened(place, self._longest)
            part = self._parts.get((short, nodes))
            if part is None:
                with self._lock:
                    part = self._walk_part(short, nodes)
            if len(self._parts) > MAX_KNOWN:
                self._parts = {}
            self._parts[place, nodes] = self._parts[short, nodes] = part
        return part

    def _walk_part(self, place: LazyState, nodes: TrieNodes) -> MaskPart:
        if self._machine is None or len(self._machine[0].places) > MAX_POSITIONS:
            network = LazyNetwork(place)
            self._machine = network, PushdownMachine(network, self._vocab, self._trie, shared=_Alone(self))
        _, machine = self._machine
        return machine.part_at(place, nodes)


class _Alone:
    """The store and the walkers for the machine that walks shared positions itself."""

    def __init__(self, whole: SharedParts) -> None:
        self.store = whole.store
        self.walkers = whole.walkers

    def is_apart(self, place: LazyState) -> bool:
        return False

    def part(self, place: LazyState, nodes: TrieNodes) -> None:
        return None
