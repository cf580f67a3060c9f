r"""Token masks of a grammar whose rules may have limits of tokens: a rule that had its tokens ends where it stands.

    root ::= name "!"      name ::= [ab]* "x"      at most 2 tokens of `name`, one byte a token

    ""      a, b, x        "a"   a, b, x           "ab"  ! alone: the two tokens are spent, the rule ends without its x

A token counts for the rule in which it begins. A state is a set of groups of stacks: those outside of the rules with a
limit, and for each visit of such a rule those inside, with the tokens of this visit so far. Where a group has had its
tokens, the rule's positions are taken off its stacks, unless the text ends within a character. So a rule never leads to
a dead end, however few tokens it has. Visits of one rule that follow one another without a byte between them count as
one visit. It knows no EOS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.network import Network
from espalier.automata.languages.nfa import ByteSet
from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Landings
from espalier.automata.masks.pushdown import CACHE_BYTES, PushdownMachine
from espalier.automata.masks.states import Stacks
from espalier.errors import UnsupportedError
from espalier.time_limit import check as check_time
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

OUTSIDE = -1
MAX_MOVES = 100_000
"""Tokens whose next state is remembered; past that all are forgotten."""


class RuleVisit(NamedTuple):
    """Stacks in one visit of a rule. rule: its number, OUTSIDE for none. begun: tokens that began in the visit."""

    rule: int
    begun: int
    stacks: Stacks


class TokenLimitState(NamedTuple):
    """visits: by rule and count. pending: bytes that the last character of the text still lacks."""

    visits: tuple[RuleVisit, ...]
    pending: int


class TokenLimitMachine:
    """A `Machine` over a network whose rules with a limit are called by their names. Thread-safe."""

    def __init__(self, network: Network, limits: Mapping[str, int], vocab: Vocab, trie: TokenTrie) -> None:
        """limits: the most tokens, by rule; none of these rules leads to another. Raises VocabError, and
        UnsupportedError for a grammar that names tokens."""
        if network.refs:
            raise UnsupportedError("a rule with a limit of tokens cannot stand in a grammar that names tokens")
        self.inner = PushdownMachine(network, vocab, trie)
        self._vocab = vocab
        self._most = list(limits.values())
        self._owner = _owners(network, list(limits))
        self._masks: ByteCache[TokenLimitState, Mask] = ByteCache(CACHE_BYTES)
        self._moves: dict[tuple[TokenLimitState, int], TokenLimitState | None] = {}
        start = {(rule, 0): part for rule, part in self._split(self.inner.start).items()}
        self.start = self._end_token(start, 0)

    def accepts(self, state: TokenLimitState) -> bool:
        return any(visit.stacks.accepting for visit in state.visits)

    def least(self, state: TokenLimitState) -> int:
        return min(visit.stacks.least for visit in state.visits)

    def mask(self, state: TokenLimitState) -> Mask:
        mask = self._masks.get(state)
        if mask is None:
            mask = reduce(np.bitwise_or, (self.inner.mask(visit.stacks) for visit in state.visits))  # (W,) int32
            mask.setflags(write=False)
            self._masks.put(state, mask, mask.nbytes)
        return mask

    def advance(self, state: TokenLimitState, token: int) -> TokenLimitState | None:
        key = (state, token)
        if key in self._moves:
            return self._moves[key]
        if len(self._moves) >= MAX_MOVES:
            self._moves = {}
        after = self._moves[key] = self._advance(state, token)
        return after

    def step(self, state: TokenLimitState, byte: int) -> TokenLimitState | None:
        """The state within the same token, whose end alone counts."""
        visits = self._read({(visit.rule, visit.begun): visit.stacks for visit in state.visits}, byte)
        return _state(visits, _pending(state.pending, bytes([byte]))) if visits else None

    def options(self, state: TokenLimitState) -> tuple[ByteSet, tuple[int, ...]]:
        return reduce(lambda members, visit: members | self.inner.options(visit.stacks)[0], state.visits, 0), ()

    def reference(self, number: int) -> tuple[str, NDArray[np.intp]]:
        return self.inner.reference(number)

    def successors(self, state: TokenLimitState) -> list[tuple[int, TokenLimitState]]:
        landings = self.landings(state)
        first = np.unique(landings.which, return_index=True)[1].tolist()
        return [(int(landings.ids[at]), landings.states[landings.which[at]]) for at in first]

    def fewest(self, state: TokenLimitState) -> int | None:
        return None

    def stays_near(self, state: TokenLimitState, most: int) -> bool:
        # A rule that ends early leaves no more bytes than the rule itself would have.
        return all(self.inner.stays_near(visit.stacks, most) for visit in state.visits)

    def landings(self, state: TokenLimitState) -> Landings:
        ids = masks.allowed_ids(self.mask(state), self._vocab.width).astype(np.int32)
        numbers: dict[TokenLimitState, int] = {}
        which = np.zeros(len(ids), dtype=np.int32)
        for at, token in enumerate(ids.tolist()):
            check_time()
            after = self.advance(state, token)
            if after is None:
                raise AssertionError("the mask allows a token that is refused")
            which[at] = numbers.setdefault(after, len(numbers))
        return Landings(ids=ids, which=which, states=tuple(numbers))

    def _advance(self, state: TokenLimitState, token: int) -> TokenLimitState | None:
        data = self._vocab.bytes_of(token) if 0 <= token < self._vocab.width else b""
        if not data or token in self._vocab.eos_ids:
            return None
        visits = {(visit.rule, visit.begun): visit.stacks for visit in state.visits}
        fresh: dict[tuple[int, int], Stacks] = {}
        for byte in data:
            read: dict[tuple[int, int], Stacks] = {}
            entered: dict[tuple[int, int], Stacks] = {}
            for source, is_fresh in ((visits, False), (fresh, True)):
                for (rule, count), stacks in source.items():
                    after = self.inner.step(stacks, byte)
                    for other, part in {} if after is None else self._split(after).items():
                        stays = other == rule and rule != OUTSIDE and not is_fresh
                        target, key = (read, (rule, count)) if stays else (entered, (other, 0))
                        target[key] = self._union(target.get(key), part)
            visits, fresh = read, entered
            if not visits and not fresh:
                return None
        ended = dict(fresh)
        for (rule, count), stacks in visits.items():
            key = (rule, min(count + 1, self._most[rule]))
            ended[key] = self._union(ended.get(key), stacks)
        return self._end_token(ended, _pending(state.pending, data))

    def _read(self, visits: Mapping[tuple[int, int], Stacks], byte: int) -> dict[tuple[int, int], Stacks]:
        read: dict[tuple[int, int], Stacks] = {}
        for (rule, count), stacks in visits.items():
            after = self.inner.step(stacks, byte)
            for other, part in {} if after is None else self._split(after).items():
                key = (other, count if other == rule else 0)
                read[key] = self._union(read.get(key), part)
        return read

    def _end_token(self, visits: dict[tuple[int, int], Stacks], pending: int) -> TokenLimitState:
        """The state after a token: rules that had their tokens are left, between characters."""
        done: dict[tuple[int, int], Stacks] = {}
        left: set[tuple[int, Stacks]] = set()
        todo = list(visits.items())
        while todo and not pending:
            key, stacks = todo.pop()
            rule, count = key
            if rule == OUTSIDE or count < self._most[rule]:
                done[key] = self._union(done.get(key), stacks)
            elif (rule, stacks) not in left:  # a rule without any tokens may follow itself
                left.add((rule, stacks))
                outside = self.inner.leave(stacks, self._owner)
                todo += [((other, 0), part) for other, part in self._split(outside).items()]
        return _state(visits if pending else done, pending)

    def _split(self, state: Stacks) -> dict[int, Stacks]:
        """The stacks by the rule in which they stand; those that are complete stand outside."""
        return self.inner.split(state, self._owner)

    def _union(self, stacks: Stacks | None, other: Stacks) -> Stacks:
        return other if stacks is None else self.inner.union(stacks, other)


def _state(visits: Mapping[tuple[int, int], Stacks], pending: int) -> TokenLimitState:
    return TokenLimitState(tuple(RuleVisit(*key, visits[key]) for key in sorted(visits)), pending)


def _pending(pending: int, data: bytes) -> int:
    """How many bytes the last character lacks after these bytes."""
    for byte in data:
        lead = next((more for low, more in ((0xF0, 3), (0xE0, 2), (0xC0, 1)) if byte >= low), 0)
        pending = pending - 1 if pending and 0x80 <= byte < 0xC0 else lead
    return pending


def _owners(network: Network, rules: Sequence[str]) -> list[int]:
    """By position: the number of the rule with a limit to which it belongs, itself or what it calls."""
    by_rule: dict[str, list[int]] = {}
    for position, name in enumerate(network.rule):
        by_rule.setdefault(name, []).append(position)
    owners = [OUTSIDE] * len(network.rule)
    for number, name in enumerate(rules):
        todo, seen = [name], {name}
        while todo:
            for position in by_rule.get(todo.pop(), ()):
                owners[position] = number
                called = {network.rule[start] for start, _ in network.calls[position]} - seen
                seen |= called
                todo += called
    return owners
