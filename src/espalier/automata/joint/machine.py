"""The joint machine: a `Machine` whose states are tuples of its members' states.

A token is allowed if every member takes it and the joint state after it can still reach a common end. The intersection
of the members' masks is not enough for that: each member might be able to go on, and none in the way of another.

    ax|by      0 --a--> 1 --x--> 2          (0, 0) --a--> (1, 1) --x--> (2, 2)   a common end
               0 --b--> 3 --y--> 2          (0, 0) --b--> (3, 3)                 y or z: no byte for both
    ax|bz      the same with z for y

    >>> from espalier.automata.languages.algebra import language
    >>> from espalier.automata.masks.regular import RegularMachine
    >>> from espalier.grammar.regex.parse import parse_regex
    >>> from espalier.tokens.trie import build_trie
    >>> vocab = Vocab.bytes()
    >>> trie = build_trie(vocab.tokens)
    >>> members = [RegularMachine(language(parse_regex(regex)), vocab, trie) for regex in ("ax|by", "ax|bz")]
    >>> joint = JointMachine(members, vocab)
    >>> allowed = [masks.allowed_ids(machine.mask(machine.start), vocab.width) for machine in (*members, joint)]
    >>> [bytes(ids.tolist()) for ids in allowed]
    [b'ab', b'ab', b'a']

So the tokens that all members take are grouped by the joint state that they lead to, and each such state is judged
once (`search.py`: here `b` is refused, because the search ends at (3, 3) without an end); few tokens are judged one by
one. A joint state is made when it is met, and its mask is kept, both within bounds. It knows no EOS and no constraint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.automata.joint.members import JointMember, TokenLandings
from espalier.automata.joint.search import DEAD, UNKNOWN, JointSearch
from espalier.automata.languages.nfa import ByteSet
from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Landings, Machine, State
from espalier.errors import LimitExceeded
from espalier.time_limit import WorkLock
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.vocab import Vocab
from espalier.wording import OptionText, Setting

FEW = 256
"""At most so many tokens are judged one by one; more are grouped by the states they lead to."""
CACHE_BYTES = 32 * 2**20
"""The limit on what is kept about all states; past that it is forgotten."""
RECORD_BYTES = 400
MOVE_BYTES = 120
OPTION_BYTES = 4 * 2**20
ALIKE = 8
"""More joint states with the same part of one member are judged together."""
_REFUSED = np.zeros(1, dtype=np.bool_)
MAX_CODES = 4_000_000
"""The most combinations of two members' states that are counted in an array; more are sorted."""


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The tokens that all members take by bytes or by the same name, by the joint state after them.

    code: for each token 0 if a member refuses it, else 1 + the number of the state, `(32 W,) int32`. parts: for each
    state the number of each member's part, `(n, members)`, among the states of `landed`."""

    code: NDArray[np.int32]
    parts: NDArray[np.int64]
    landed: list[TokenLandings]

    def state(self, number: int) -> State:
        """A joint state."""
        return tuple(landed.states[part] for landed, part in zip(self.landed, self.parts[number].tolist(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class TokenSummary:
    """What is known about the tokens of one joint state. mask: `(W,) int32`, read-only. spread: after every allowed
    token at most so many tokens complete the text; None where that is not known."""

    mask: Mask
    spread: int | None


class _Record:
    """What is kept about one joint state. moves: by token, the state after it."""

    __slots__ = ("accepting", "looked", "moves")

    def __init__(self, accepting: bool) -> None:
        self.accepting = accepting
        self.looked: TokenSummary | None = None
        self.moves: dict[int, State] = {}


class JointMachine:
    """See above. machines: at least one. spelled: special tokens that are part of the text, and their bytes in it.

    may_strand: where a search was given up, whether the tokens that lead to the state are allowed, which may then turn
    out to be a dead end; otherwise LimitExceeded is raised. Thread-safe.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        vocab: Vocab,
        *,
        spelled: Mapping[int, bytes] | None = None,
        may_strand: bool = False,
        cache_bytes: int = CACHE_BYTES,
        search: Mapping[str, Any] | None = None,
    ) -> None:
        """search: options of `JointSearch`."""
        self.members = tuple(JointMember(machine, spelled or {}, vocab) for machine in machines)
        self.start: State = tuple(machine.start for machine in machines)
        self.may_strand = may_strand
        self._vocab = vocab
        self._lock = WorkLock()
        self._search = JointSearch(self.members, vocab, **(search or {}))
        self._records: dict[State, _Record] = {}
        self._held = 0  # bytes of all records
        self._cache_bytes = cache_bytes
        self._options: ByteCache[State, tuple[ByteSet, tuple[int, ...]]] = ByteCache(OPTION_BYTES)
        self._specials = tuple(sorted(set().union(*(member.named for member in self.members))))
        self._references = [(member, ref) for member in self.members for ref in range(len(member.references))]
        self._first_reference = np.cumsum([0, *(len(member.references) for member in self.members)]).tolist()
        self._has_every_byte = not vocab.missing_bytes()

    @property
    def size(self) -> int:
        """Bytes held in memory beside those of the members' machines, about."""
        return self._held + self._options.size + self._search.size + sum(member.size for member in self.members)

    def accepts(self, state: State) -> bool:
        return (self._records.get(state) or self._record(state)).accepting

    def is_sure(self, state: State) -> bool:
        """Whether a common end is known to be within reach; False where the search for one was given up."""
        with self._lock:
            return self._search.far(state) >= 0

    def is_dead(self, state: State) -> bool:
        """Whether no common end is within reach."""
        with self._lock:
            return self._search.far(state) == DEAD

    def way(self, state: State) -> list[int]:
        """A completion as symbols (see `members.py`). Raises LimitExceeded where none is known."""
        with self._lock:
            if self._search.far(state) < 0:
                raise self._given_up()
            return self._search.way(state)

    def mask(self, state: State) -> Mask:
        record = self._records.get(state)
        return (self._look(state) if record is None or record.looked is None else record.looked).mask

    def advance(self, state: State, token: int) -> State | None:
        record = self._records.get(state)
        if record is not None and token in record.moves:
            return record.moves[token]
        if not 0 <= token < self._vocab.width or not (self._vocab.bytes_of(token) or token in self._specials):
            return None
        with self._lock:
            self._search.begin()
            after = self._search.take(state, -1 - token)
            if after is None or not self._allows(after):
                return None
            self._record(state).moves[token] = after
            self._held += MOVE_BYTES
            return after

    def step(self, state: State, byte: int) -> State | None:
        with self._lock:
            after = self._search.take(state, byte)
            # Without all bytes, a state in the middle of a token may have no end of its own.
            if after is None or not self._has_every_byte or self._search.far(after) != DEAD:
                return after
            return None

    def options(self, state: State) -> tuple[ByteSet, tuple[int, ...]]:
        options = self._options.get(state)
        if options is None:
            with self._lock:
                options = self._new_options(state)
            self._options.put(state, options, 400)
        return options

    def _new_options(self, state: State) -> tuple[ByteSet, tuple[int, ...]]:
        read: ByteSet = -1
        refs: list[int] = []
        for place, (member, part) in enumerate(zip(self.members, state, strict=True)):
            members, named = member.machine.options(part)
            read &= members
            refs += [self._first_reference[place] + ref for ref in named]
        alive: ByteSet = 0
        while read:
            lowest = read & -read
            read ^= lowest
            if self.step(state, lowest.bit_length() - 1) is not None:
                alive |= lowest
        kept = [ref for ref in refs if any(self.advance(state, int(t)) is not None for t in self.reference(ref)[1])]
        return alive, tuple(kept)

    def reference(self, number: int) -> tuple[str, NDArray[np.intp]]:
        member, ref = self._references[number]
        return member.references[ref]

    def least(self, state: State) -> int:
        """A lower bound; `far` is an upper one."""
        return self._search.least(state)

    def far(self, state: State) -> int | None:
        """The length of the known completion in bytes and named tokens, None where none is known."""
        with self._lock:
            length = self._search.far(state)
        return length if length >= 0 else None

    def successors(self, state: State) -> list[tuple[int, State]]:
        landings = self.landings(state)
        first = np.full(len(landings.states), -1, dtype=np.int64)
        first[landings.which[::-1]] = landings.ids[::-1]  # the last one written is the lowest
        return list(zip(first.tolist(), landings.states, strict=True))

    def fewest(self, state: State) -> int | None:
        return None

    def stays_near(self, state: State, most: int) -> bool:
        spread = self._look(state).spread
        return spread is not None and spread <= most

    def landings(self, state: State) -> Landings:
        with self._lock:
            self._search.begin()
            groups = self._groups(state)
            alive = np.flatnonzero(self._lengths(groups) != DEAD)
            number = np.full(len(groups.parts) + 1, -1, dtype=np.int32)
            number[alive + 1] = np.arange(len(alive))
            which = number[groups.code]  # (32 W,)
            states = [groups.state(group) for group in alive.tolist()]
            for token, after in self._by_name(state):
                which[token] = len(states)
                states.append(after)
        ids = np.flatnonzero(which >= 0).astype(np.int32)
        return Landings(ids=ids, which=which[ids], states=tuple(states))

    def _record(self, state: State) -> _Record:
        with self._lock:
            record = self._records.get(state)
            if record is None:
                if self._held > self._cache_bytes:
                    self._records, self._held = {}, 0
                record = self._records[state] = _Record(self._search.accepts(state))
                self._held += RECORD_BYTES
            return record

    def _look(self, state: State) -> TokenSummary:
        record = self._record(state)
        look = record.looked
        if look is None:
            with self._lock:
                self._search.begin()
                look = self._new_look(state)
                look.mask.setflags(write=False)
                record.looked = look
                self._held += look.mask.nbytes
        return look

    def _new_look(self, state: State) -> TokenSummary:
        both = self.members[0].machine.mask(state[0]).copy()
        for member, part in zip(self.members[1:], state[1:], strict=True):
            np.bitwise_and(both, member.machine.mask(part), out=both)
        masks.set_bits_inplace(both, self._specials, False)
        if masks.count(both) <= FEW:
            met: dict[State, list[int]] = {}
            for token in masks.allowed_ids(both, self._vocab.width).tolist():
                after = self._search.take(state, -1 - token)
                if after is not None:
                    met.setdefault(after, []).append(token)
            alive = [after for after in met if self._allows(after)]
            both = masks.from_ids([token for after in alive for token in met[after]], self._vocab.width)
            lengths = {self._search.far(after) for after in alive}
        else:
            groups = self._groups(state)
            judged = self._lengths(groups)
            lengths = set(judged[judged != DEAD].tolist())
            if bool((judged == DEAD).any()):
                flags = np.concatenate([_REFUSED, judged != DEAD])[groups.code]  # (32 W,)
                np.bitwise_and(both, masks.from_bool(flags), out=both)
        for token, after in self._by_name(state):
            masks.set_bits_inplace(both, (token,), True)
            lengths.add(self._search.far(after))
        return TokenSummary(both, None if UNKNOWN in lengths else max(lengths, default=0))

    def _lengths(self, groups: Groups) -> NDArray[np.int64]:
        """For each joint state what `JointSearch.far` says, or more where an end is known, `(n,) int64`. Most states
        share what one member needs next, and are few again after that symbol: those are judged. Raises LimitExceeded
        where a search was given up and nothing may be stranded."""
        parts, landed = groups.parts, groups.landed
        lengths = np.full(len(parts), DEAD, dtype=np.int64)
        leader = min(range(len(landed)), key=lambda number: len(np.unique(parts[:, number])))
        for part in np.unique(parts[:, leader]).tolist():
            some = np.flatnonzero(parts[:, leader] == part)  # (k,)
            step = self._search.safe_step(leader, landed[leader].states[part]) if len(some) > ALIKE else None
            if step is None:
                continue
            symbol, ahead = step
            others = [number for number in range(len(landed)) if number != leader]
            ways = [landed[number].after(self.members[number], symbol) for number in others]
            reached, which = np.unique(
                np.stack([codes[parts[some, number]] for (codes, _), number in zip(ways, others, strict=True)]),
                axis=1,
                return_inverse=True,
            )  # (members - 1, m), (k,)
            far = np.full(reached.shape[1], DEAD, dtype=np.int64)
            for at, column in enumerate(reached.T.tolist()):
                if 0 not in column:
                    after = [states[code - 1] for (_, states), code in zip(ways, column, strict=True)]
                    after.insert(leader, ahead)
                    far[at] = self._search.far(tuple(after))
            far[far >= 0] += 1
            lengths[some] = far[which.reshape(-1)]
        for number in np.flatnonzero(lengths < 0).tolist():
            joint = groups.state(number)
            self._allows(joint)
            lengths[number] = self._search.far(joint)
        return lengths

    def _by_name(self, state: State) -> list[tuple[int, State]]:
        """The tokens without bytes that are allowed, and the state after each."""
        successors = []
        for token in self._specials:
            after = self._search.take(state, -1 - token)
            if after is not None and self._allows(after):
                successors.append((token, after))
        return successors

    def _allows(self, state: State) -> bool:
        far = self._search.far(state)
        if far == UNKNOWN and not self.may_strand:
            raise self._given_up()
        return far != DEAD

    def _groups(self, state: State) -> Groups:
        """The joint states after a token, dead ones included."""
        landed = [member.landed(part) for member, part in zip(self.members, state, strict=True)]
        code = landed[0].which.astype(np.int32)
        parts = np.arange(len(landed[0].states), dtype=np.int64)[:, None]  # (n, members so far)
        for other in landed[1:]:
            width = len(other.states) + 1
            wide = code.astype(np.int64) * width + other.which
            wide[(code == 0) | (other.which == 0)] = 0
            size = (len(parts) + 1) * width
            if size <= MAX_CODES:
                met = np.flatnonzero(np.bincount(wide, minlength=size))
                number = np.zeros(size, dtype=np.int32)
                met = met[met > 0]
                number[met] = np.arange(1, len(met) + 1)
                code = number[wide]
            else:
                met, places = np.unique(wide, return_inverse=True)
                # 0 is for refused tokens, of which there may be none.
                code = (places + (met[0] > 0)).astype(np.int32)
                met = met[met > 0]
            parts = np.concatenate([parts[met // width - 1], (met % width - 1)[:, None]], axis=1)
        for token in self._specials:
            code[token] = 0
        return Groups(code, parts, landed)

    def _given_up(self) -> LimitExceeded:
        return LimitExceeded(
            "whether a common end of the members can still be reached was not found within the bounds of the search",
            hint=OptionText("accept that text is taken back where it leads nowhere: ", Setting("dead_ends", "rewind")),
        )
