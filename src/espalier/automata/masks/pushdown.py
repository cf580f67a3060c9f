"""Token masks of a lazy pushdown automaton over one vocabulary, assembled from cached parts.

A token is allowed if its bytes can be read from any stack of the state. What a position allows before its rule returns
does not depend on the stack below it, so that part of the mask is computed once, as a walk of the token trie over the
empty stack. The walk also gives the trie nodes at which the rule may have returned in the middle of a token; from there
the walk goes on with the stacks below. Nesting therefore makes new states, but no new walks.

Where a network is explored on demand, a walk stops at positions whose part is found in another way (`parts.py:Hand`):
those that all schemas share, and those inside names and constants, which are looked up in the trie without rows.
It knows no EOS and no grammar source.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.nfa import ByteSet
from espalier.automata.lazy.explored import LazyState
from espalier.automata.lazy.items import LiteralText
from espalier.automata.lazy.keys import Keys
from espalier.automata.lazy.linear import ANY_BYTE, KeyedLinear
from espalier.automata.lazy.network import LazyNetwork
from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Landings, missing_bytes, missing_error
from espalier.automata.masks.parts import (
    FEW,
    NO_NODES,
    PARTS_BYTES,
    Hand,
    MaskPart,
    MaskWords,
    PartStore,
    Sharing,
    TrieNodes,
    nodes_of_any,
)
from espalier.automata.masks.positions import PositionNetwork
from espalier.automata.masks.rows import HandedStates, StackRows
from espalier.automata.masks.stacks import MAX_INTERNED, MAX_WORK, StackAutomaton
from espalier.automata.masks.states import Stacks
from espalier.automata.masks.walker import Walker, WalkerPool, Words
from espalier.errors import VocabError
from espalier.grammar.ast import TokenRef
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

CACHE_BYTES = 64 * 2**20
MAX_PARTS = 50_000
"""Parts that are remembered by position."""
MAX_ROWS = 100_000
"""The most states whose transitions are kept as rows of a table; past that the table is rebuilt."""


class PushdownMachine:
    """A `Machine` whose states are sets of stacks."""

    def __init__(
        self,
        network: PositionNetwork,
        vocab: Vocab,
        trie: TokenTrie,
        *,
        cache_bytes: int = CACHE_BYTES,
        parts_bytes: int = PARTS_BYTES,
        max_rows: int = MAX_ROWS,
        max_interned: int = MAX_INTERNED,
        max_work: int = MAX_WORK,
        needs_bytes: bool = True,
        shared: Sharing | None = None,
    ) -> None:
        """shared: parts that all schemas of the vocabulary share, for a network that is explored on demand.
        needs_bytes: raise VocabError if the grammar reads bytes that have no token of their own. False only for
        machines that compute no masks."""
        if needs_bytes and (missing := missing_bytes(network.needed_bytes(), vocab)):
            raise missing_error(missing, "a grammar that is not regular could lead into a dead end")
        self.network = network
        self._vocab = vocab
        self._trie = trie
        self._tokens = vocab.tokens
        self._letter = network.classes.tolist()
        self._refs = [_matching(ref, vocab, trie) for ref in network.refs]  # each (W,) int32
        self._automaton = StackAutomaton(network, max_interned=max_interned, max_work=max_work)
        self._rows = StackRows(self._automaton, max_rows)
        self._max_rows = max_rows
        self._walker: Walker | None = None
        self._shared = shared
        if shared is not None and isinstance(network, LazyNetwork):
            places, is_apart = network.places, shared.is_apart
            self._automaton.is_apart = lambda position: is_apart(places[position])
        self._store = PartStore(vocab.width, parts_bytes) if shared is None else shared.store
        self._whole = self._store.whole
        self._named = [self._store.words(ref) for ref in self._refs]
        # Only used under the lock, so a plain dict that is cleared when full is enough, and much faster than a cache.
        self._parts: dict[tuple[Stacks, TrieNodes], MaskPart] = {}
        self._masks: ByteCache[Stacks, Mask] = ByteCache(cache_bytes)
        self._spreads: dict[tuple[Stacks, TrieNodes], tuple[int, TrieNodes | None]] = {}
        self._widest: dict[Stacks, int] = {}
        self._reads: dict[int, ByteSet] = {}  # by position, the bytes that can come next
        self._lock = WorkLock()
        self._moves = 0
        self.start = self._automaton.start

    def accepts(self, state: Stacks) -> bool:
        return state.accepting

    def least(self, state: Stacks) -> int:
        return state.least

    def mask(self, state: Stacks) -> Mask:
        mask = self._masks.get(state)
        if mask is None:
            with self._lock:
                self._tidy()
                mask = self._mask(state)
            self._masks.put(state, mask, mask.nbytes)
        return mask

    def advance(self, state: Stacks, token: int) -> Stacks | None:
        known = state.moves
        if known is not None and token in known:
            return known[token]
        data = self._tokens[token] if 0 <= token < len(self._tokens) else b""
        with self._lock:
            self._tidy()
            after = self._automaton.read(state, data) if data else None
            for ref in self._refs_of(state) if self._refs else ():
                if masks.test(self._refs[ref], token):
                    also = self._automaton.take_token(state, ref)
                    after = also if after is None or also is None else self._automaton.union(after, also)
            if after is not None:
                if state.moves is None:
                    state.moves = {token: after}
                else:
                    state.moves[token] = after
                self._moves += 1
        return after

    def step(self, state: Stacks, byte: int) -> Stacks | None:
        with self._lock:
            self._automaton.spent = 0
            return self._automaton.step(state, self._letter[byte])

    def split(self, state: Stacks, owners: Sequence[int]) -> dict[int, Stacks]:
        """The stacks of a state by the owner of their top positions, the empty stack with -1. owners: by position."""
        with self._lock:
            return self._automaton.split(state, owners)

    def leave(self, state: Stacks, owners: Sequence[int]) -> Stacks:
        """The state after the calls of owned positions, which are on top of all stacks, have returned at once."""
        with self._lock:
            self._automaton.spent = 0
            return self._automaton.leave(state, owners)

    def union(self, state: Stacks, other: Stacks) -> Stacks:
        """The state with the stacks of both."""
        with self._lock:
            return self._automaton.union(state, other)

    def options(self, state: Stacks) -> tuple[ByteSet, tuple[int, ...]]:
        bytes_allowed: ByteSet = 0
        for position, _ in state.items:
            known = self._reads.get(position)
            if known is None:
                known = self._reads[position] = self.network.reads(position)
            bytes_allowed |= known
        return bytes_allowed, self._refs_of(state)

    def reference(self, number: int) -> tuple[str, NDArray[np.intp]]:
        return self.network.refs[number].spelling, masks.allowed_ids(self._refs[number], self._vocab.width)

    def successors(self, state: Stacks) -> list[tuple[int, Stacks]]:
        with self._lock:
            self._tidy()
            first = self._walk().reach(self._rows, self._rows.row(state))
            ends = np.flatnonzero(first >= 0).tolist()
            successors = [(int(first[end]), self._rows.states[end]) for end in ends]
            for ref in self._refs_of(state):
                after = self._automaton.take_token(state, ref)
                if after is not None:
                    successors.append((self._plainest(ref), after))
            return successors

    def fewest(self, state: Stacks) -> int | None:
        return None

    def stays_near(self, state: Stacks, most: int) -> bool:
        widest = self._widest.get(state)
        if widest is None:
            with self._lock:
                self._tidy()
                widest = self._widest[state] = self._farthest(state)
        return widest <= most

    def landings(self, state: Stacks) -> Landings:
        with self._lock:
            self._tidy()
            landed = self._walk().land(self._rows, self._rows.row(state))
            for ref in self._refs_of(state):
                named = self._automaton.take_token(state, ref)
                if named is None:
                    continue
                # A token that is also allowed by its bytes leads to the union of both states.
                matching = masks.allowed_ids(self._refs[ref], self._vocab.width)
                for before in np.unique(landed[matching]).tolist():
                    also = None if before < 0 else self._rows.states[before]
                    joined = named if also is None else self._automaton.union(also, named)
                    landed[matching[landed[matching] == before]] = self._rows.row(joined)
            ids = np.flatnonzero(landed >= 0).astype(np.int32)
            place = np.zeros(len(self._rows.states), dtype=np.int32)  # marking is several times faster than sorting
            place[landed[ids]] = 1
            rows = np.flatnonzero(place)
            place[rows] = np.arange(len(rows))
            states = [self._rows.states[row] for row in rows.tolist()]
        return Landings(ids=ids, which=place[landed[ids]], states=tuple(states))

    def _farthest(self, state: Stacks) -> int:
        """An upper bound, over all allowed tokens, on the bytes and named tokens that complete the text after the
        token. Computed from parts, as masks are."""
        automaton = self._automaton
        far = 0
        for ref in self._refs_of(state):
            after = automaton.take_token(state, ref)
            far = max(far, 0 if after is None else after.least)
        todo = [(self._whole, state)]
        seen = set(todo)
        while todo:
            places, current = todo.pop()
            for local, below in current.groups or automaton.groups(current):
                spread, exits = self._spreads.get((local, places)) or self._spread(local, places)
                far = max(far, spread + below.least)
                if exits is not None and below.items:
                    following = (exits, below.closed or automaton.close(below))
                    if following not in seen:
                        seen.add(following)
                        todo.append(following)
        return far

    def _spread(self, local: Stacks, places: TrieNodes) -> tuple[int, TrieNodes | None]:
        """The largest `least` that a token below these trie nodes leads to, over the empty stack; and the nodes at
        which the rule may have returned."""
        row = self._rows.row(local)
        first = self._walk().reach(self._rows, row, places.nodes)
        _, exits = self._walk().walk(self._rows, row, places.nodes)
        states = self._rows.states
        far = max((states[row].least for row in np.flatnonzero(first >= 0).tolist()), default=0)
        spread = self._spreads[local, places] = (far, self._store.nodes(exits) if exits.size else None)
        return spread

    def _plainest(self, ref: int) -> int:
        """One id that a reference matches: an ordinary token if there is one, otherwise a special token."""
        ids = self.reference(ref)[1].tolist()
        return int(next((i for i in ids if self._vocab.bytes_of(i)), ids[0]))

    def _refs_of(self, state: Stacks) -> tuple[int, ...]:
        if not self._refs:
            return ()
        tokens = self.network.tokens
        refs = {ref: None for position, _ in state.items for ref, _ in tokens[position]}
        return tuple(refs)

    def _mask(self, state: Stacks) -> Mask:
        automaton = self._automaton
        parts: set[MaskWords] = set()
        todo = [(self._whole, state)]
        seen = set(todo)
        while todo:
            places, current = todo.pop()
            for local, below in current.groups or automaton.groups(current):
                part = self._parts.get((local, places)) or self._part(local, places)
                if part.words is not None:
                    parts.add(part.words)
                if part.exits is not None and below.items:
                    following = (part.exits, below.closed or automaton.close(below))
                    if following not in seen:
                        seen.add(following)
                        todo.append(following)
                for hand in part.hands:
                    under = below
                    for position in hand.pushed:
                        under = automaton.push(position, under)
                    enter = automaton.enter if hand.is_frame else automaton.push
                    following = (hand.nodes, enter(hand.position, under))
                    if following not in seen:
                        seen.add(following)
                        todo.append(following)
        for ref in self._refs_of(state):
            if (named := self._named[ref]) is not None:
                parts.add(named)
        return self._store.joined(frozenset(parts))

    def _part(self, local: Stacks, places: TrieNodes) -> MaskPart:
        """Walk the trie below these nodes from a state over the empty stack."""
        if len(self._parts) > MAX_PARTS:
            self._forget_parts()
        part: MaskPart | None = None
        if self._shared is None:
            part = self._store.part(*self._walk().walk(self._rows, self._rows.row(local), places.nodes))
        elif len(local.items) == 1 and isinstance(self.network, LazyNetwork):
            place = self.network.places[local.items[0][0]]
            if self._shared.is_apart(place):
                part = self._shared.part(place, places) or self._words(self._shared, self.network, place, places)
        if part is None:
            handed = HandedStates(self._rows)
            bits, exits = self._walk().walk(self._rows, self._rows.row(local), places.nodes, handed=handed)
            part = self._store.part(bits, exits, handed.hands(self._store))
        self._parts[local, places] = part
        return part

    def _words(self, shared: Sharing, network: LazyNetwork, place: LazyState, places: TrieNodes) -> MaskPart:
        """What a position of words alone allows: the tokens that begin a key or a text, and what follows those that end
        within a token."""
        explored = place.explored
        texts: list[LiteralText] = []
        keys: Keys | None = None
        for item in place.core:
            if isinstance(item, LiteralText):
                texts.append(item)
            elif isinstance(item, Keys) and keys is None:
                keys = item
            elif isinstance(item, Keys):
                return self._many_words(shared, network, place, places)
        wanted = () if keys is None else keys.wanted
        if (len(wanted) + len(texts)) * places.nodes.size > FEW:
            return self._many_words(shared, network, place, places)
        ids: list[int] = []
        ends: dict[LazyState, list[int]] = {}
        starts, follow = places.nodes.tolist(), shared.walkers.follow
        if keys is not None:
            keyed = keyed_of(keys)
            for key in wanted:
                below = [follow(keyed.texts[key][keys.at :], start, last=keyed.last) for start in starts]
                ids += [token for some, _, _ in below for token in some]
                if nodes := [node for _, _, node in below if node >= 0]:
                    ends.setdefault(explored.after_key(keys, key), []).extend(nodes)
        for text in texts:
            below = [follow(text.text[text.at :], start, last=ANY_BYTE) for start in starts]
            ids += [token for some, _, _ in below for token in some]
            if nodes := [node for _, _, node in below if node >= 0]:
                ends.setdefault(explored.start([text.after]), []).extend(nodes)
        hands = [
            Hand(self._store.nodes(np.array(sorted(set(at)), dtype=np.int32)), network.number(after), is_frame=True)
            for after, at in ends.items()
        ]
        return MaskPart(self._store.tokens(ids), None, tuple(hands))

    def _many_words(self, shared: Sharing, network: LazyNetwork, place: LazyState, places: TrieNodes) -> MaskPart:
        """The same for so many that an array of them is faster."""
        bits = masks.empty(self._vocab.width)
        ends: dict[LazyState, list[NDArray[np.int32]]] = {}
        explored = place.explored
        texts: list[LiteralText] = []
        for item in place.core:
            if isinstance(item, LiteralText):
                texts.append(item)
            elif isinstance(item, Keys):
                words, last = packed(item)
                spelled, nodes, which = shared.walkers.spell(words.some(item.wanted, item.at), places.nodes, last=last)
                bits |= spelled
                if last == ANY_BYTE:  # the same follows all of them
                    ends.setdefault(explored.after_key(item, item.wanted[0]), []).append(nodes)
                    continue
                for i in dict.fromkeys(which.tolist()):
                    ends.setdefault(explored.after_key(item, item.wanted[i]), []).append(nodes[which == i])
        if texts:
            texts.sort(key=lambda text: text.text[text.at :])
            words = Words.of([text.text[text.at :] for text in texts])
            spelled, nodes, which = shared.walkers.spell(words, places.nodes, last=ANY_BYTE)
            bits |= spelled
            for i in dict.fromkeys(which.tolist()):
                ends.setdefault(explored.start([texts[i].after]), []).append(nodes[which == i])
        hands = [
            Hand(self._store.nodes(nodes_of_any(at)), network.number(after), is_frame=True)
            for after, at in ends.items()
            if any(some.size for some in at)
        ]
        return self._store.part(bits, NO_NODES, tuple(hands))

    def _forget_parts(self) -> None:
        self._parts.clear()
        self._spreads.clear()
        self._widest.clear()

    def _walk(self) -> WalkerPool | Walker:
        if self._shared is not None:
            return self._shared.walkers
        if self._walker is None:
            self._walker = Walker(self._trie, self._vocab.width)
        return self._walker

    def _tidy(self) -> None:
        """Clear the memories that have grown past their bounds, and reset the work counter. Only between walks."""
        self._automaton.spent = 0
        if self.network.is_full:
            self._masks.clear()
            self._rows.clear()
            self._forget_parts()
            self._reads.clear()
            self._moves = 0
            self._automaton.forget_positions()
        elif self._automaton.interned + self._moves > self._automaton.max_interned:
            self._rows.clear()
            self._forget_parts()
            self._automaton.forget()
            self._moves = 0
        elif len(self._rows.states) > self._max_rows // 2:
            self._rows.clear()


def packed(item: Keys) -> tuple[Words, int]:
    """The keys of an object as arrays, made once, and the byte with which what follows them begins."""
    keyed = keyed_of(item)
    if item.automaton.packed is None:
        item.automaton.packed = Words.of(keyed.texts)
    return item.automaton.packed, keyed.last


def keyed_of(item: Keys) -> KeyedLinear:
    """The automaton of some keys."""
    keyed = item.automaton.keyed
    if keyed is None:
        raise TypeError("an automaton without keys")
    return keyed


def _matching(ref: TokenRef, vocab: Vocab, trie: TokenTrie) -> Mask:
    """The ids that a token reference matches, `(W,) int32`. Raises VocabError if the vocabulary has no such token."""
    token = ref.id
    if ref.text is not None:
        token = vocab.special_id(ref.text)
        if token is None:
            spelled = trie.segment(ref.text.encode())
            token = spelled[0] if spelled and len(spelled) == 1 else None
    if token is None or not 0 <= token < vocab.width or not vocab.real_ids[token]:
        raise VocabError(f"the grammar names the token {ref.spelling.lstrip('!')}, which this vocabulary does not have")
    if not ref.negated:
        if token in vocab.eos_ids:
            raise VocabError(
                f"the grammar names the token {ref.spelling}, which ends the text",
                hint="leave it out: the text may end wherever the grammar is complete",
            )
        return masks.from_ids([token], vocab.width)
    allowed = vocab.real_ids.copy()
    allowed[[token, *vocab.eos_ids]] = False
    if not allowed.any():
        raise VocabError(f"no token is left for {ref.spelling}")
    return masks.from_bool(allowed)
