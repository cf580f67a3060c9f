"""The machine of a safety filter over one vocabulary: masks and landings of states that are rows of numbers
(`kernels.py`).

A state's mask is put together from what each part refuses by itself (`alone/`). Where an escape is in progress, and for
where tokens lead, it is computed by what differs from a state that is known already: two states that read the same
bytes soon become one, because a match in progress seldom goes on.
A state is the bytes of its row. It knows no patterns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.nfa import ByteSet
from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.layout import KIND, TrieLayout, lay_out
from espalier.automata.masks.machine import Landings
from espalier.constraints.safety.alone.refusals import Refusals, tables_by_part
from espalier.constraints.safety.alone.tries import readings_of
from espalier.constraints.safety.memory import CombinationNumbers, Recent
from espalier.constraints.safety.parts import Tables
from espalier.constraints.safety.readings import DOUBLE, KEPT, NESTED, NUMBER, READINGS, ROW, SINGLE, SPECIAL, WRITTEN
from espalier.errors import LimitExceeded
from espalier.time_limit import WorkLock
from espalier.time_limit import check as check_time
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

CACHE_BYTES = 64 * 2**20
LANDINGS_BYTES = 64 * 2**20
LANES_BYTES = 16 * 2**20
MAX_NEAR = 48
"""How many known lanes a new one is compared with."""
MAX_LANDED = 8
"""How many states whose landings are known a new one is compared with, half a megabyte each."""
MAX_ROWS = 2**16
"""The most distinct states after one token."""
NEAR = 8
"""The most tokens that complete a text, after any allowed token, unless a user's own patterns need more: one ends a
character, and a few bytes lead out of what is pending."""
LIKELY = b"x \n-\x80\xa0\xbf"
"""Bytes that complete most texts that one byte can complete: tried before a search."""
MAX_SEARCHED = 20_000
MAX_KNOWN = 50_000


Result = TypeVar("Result")


class Hit(NamedTuple):
    """A match. rule: its number. reading: one of `readings.py`."""

    rule: int
    reading: int


class _Lane(NamedTuple):
    """One reading of a state whose tokens are known. row: `(10,) int64`. refused: the tokens, `(W,) uint32`."""

    row: NDArray[np.int64]
    refused: NDArray[np.uint32]


class SafetyMachine:
    """A `Machine` whose states are `bytes`. Thread-safe: the kernels run under a lock."""

    def __init__(self, tables: Tables, vocab: Vocab, trie: TokenTrie, *, near: int = NEAR) -> None:
        kernels = _kernels()
        self._kernels = kernels
        self._filter = tuple(tables)
        self._parts = len(tables.first)
        self._size = READINGS * (1 + self._parts)
        self._width = vocab.width
        self._near = near
        self._eos = frozenset(vocab.eos_ids)
        self._laid = lay_out(trie)
        self._depth = trie.max_depth + 2
        self._words = masks.words(vocab.width)
        self._texts: Mask = masks.from_ids(self._laid.ids, vocab.width)
        self._data = vocab.tokens
        heads, bytes_ = self._laid.heads.T
        sizes = (self._laid.nodes[heads, kernels.SKIP] - heads).astype(np.float64)  # nodes below each first byte
        self._below: NDArray[np.float64] = np.bincount(bytes_, weights=sizes, minlength=256).astype(np.float64)
        self._lock = WorkLock()
        self._rows, self._last = np.zeros((2, ROW), dtype=np.int64), np.zeros(1, dtype=np.int64)  # scratch
        self._met = CombinationNumbers(self._parts, tables.letters.shape[1])
        self._masks: ByteCache[bytes, Mask] = ByteCache(CACHE_BYTES)
        self._landings: ByteCache[bytes, Landings] = ByteCache(LANDINGS_BYTES)
        self._lanes: ByteCache[tuple[int, int, int], NDArray[np.uint32]] = ByteCache(LANES_BYTES)
        self._recent: dict[tuple[int, bool], Recent[_Lane]] = {}
        self._ends: Recent[_StateLandings] = Recent(MAX_LANDED)
        self._kinds = [
            int(np.bitwise_or.reduce(KIND[[ord(character) for character in special]])) for special in SPECIAL
        ]
        self._read = readings_of(trie, vocab.tokens, self._words)
        parts = tables_by_part(tables)
        self._alone = [Refusals(tables.points, parts, n, reading, self._below) for n, reading in enumerate(self._read)]
        self._accepts: dict[bytes, bool] = {}
        self._least: dict[bytes, int] = {}
        self._own = frozenset(range(256)) - frozenset(vocab.missing_bytes())
        self.start: bytes = np.zeros(self._size, dtype=np.int64).tobytes()

    def _call(self, kernel: Callable[[Any], int]) -> int:
        """Run a kernel that begins with a state, under the lock; where there is no room, all numbers are forgotten
        and it runs again."""
        return self._again(lambda: self._once(kernel(self._met.arrays)))

    # What a state is.

    def _row(self, state: bytes) -> NDArray[np.int64]:
        """A state as numbers, a fresh copy, `(N,) int64`."""
        return np.frombuffer(state, dtype=np.int64).copy()

    def read(self, state: bytes, data: bytes) -> bytes | Hit | None:
        """The state after some bytes, the match that they complete, or None where they are not valid UTF-8 here."""
        with self._lock:
            hit, _ = self._run(state, data)
            return self._states(self._rows[:1])[0] if hit == 0 else _hit(hit)

    def pending(self, state: bytes) -> Hit | None:
        """The match that the end of the text would complete, None if there is none."""
        with self._lock:
            return _hit(self._run_to_end(state))

    def idle(self, state: bytes) -> bool:
        """Whether no match, no character and no escape is in progress."""
        return self._idle_until(state, b"") == 0

    def begun(self, text: bytes | bytearray) -> int:
        """How many bytes at the end of a text without a match came after the filter was idle last."""
        return len(text) - self._idle_until(self.start, bytes(text))

    def _idle_until(self, state: bytes, data: bytes) -> int:
        with self._lock:
            return self._run(state, data)[1]

    # `Machine`

    def accepts(self, state: bytes) -> bool:
        accepted = self._accepts.get(state)
        if accepted is None:
            if len(self._accepts) >= MAX_KNOWN:
                self._accepts = {}
            with self._lock:
                accepted = self._accepts[state] = self._run_to_end(state) == 0
        return accepted

    def advance(self, state: bytes, token: int) -> bytes | None:
        if not 0 <= token < len(self._data) or token in self._eos or not (data := self._data[token]):
            return None
        after = self.read(state, data)
        return after if isinstance(after, bytes) else None

    def step(self, state: bytes, byte: int) -> bytes | None:
        after = self.read(state, bytes([byte]))
        return after if isinstance(after, bytes) else None

    def options(self, state: bytes) -> tuple[ByteSet, tuple[int, ...]]:
        with self._lock:
            _, codes = self._again(lambda: self._options(self._enter(state)))
        return sum(1 << byte for byte in np.flatnonzero(codes == 0).tolist()), ()

    def reference(self, number: int) -> tuple[str, NDArray[np.intp]]:
        raise IndexError(number)

    def least(self, state: bytes) -> int:
        if self.accepts(state):
            return 0
        fewest_tokens = self._least.get(state)
        if fewest_tokens is None:
            if len(self._least) >= MAX_KNOWN:
                self._least = {}
            missing = int(np.frombuffer(state, dtype=np.int64, count=1)[0]) & 15  # bytes of a character
            fewest = max(1, missing)
            fewest_tokens = self._least[state] = fewest if self._ends_after(state, fewest) else self._search(state)
        return fewest_tokens

    def _ends_after(self, state: bytes, count: int) -> bool:
        """Whether a few likely bytes complete the text; no fewer than `count` can."""
        for byte in LIKELY:
            if byte in self._own and (after := self.step(state, byte)) is not None:
                if count == 1:
                    if self.accepts(after):
                        return True
                elif self._ends_after(after, count - 1):
                    return True
        return False

    def _search(self, state: bytes) -> int:
        """The bytes of a shortest completion, over bytes that have a token of their own."""
        seen = {state}
        todo = deque([(state, 0)])
        while todo:
            check_time()
            at, far = todo.popleft()
            for after in self._after_bytes(at):
                if after in seen:
                    continue
                if self.accepts(after):
                    return far + 1
                seen.add(after)
                todo.append((after, far + 1))
            if len(seen) > MAX_SEARCHED:
                raise LimitExceeded(
                    "the end of the text cannot be found: the filter's patterns leave too few ways on",
                    hint="give fewer patterns of your own",
                )
        raise LimitExceeded(
            "the text cannot be completed: every way on completes a match of the filter",
            hint="change the filter's own patterns, which together leave nothing here",
        )

    def _after_bytes(self, state: bytes) -> list[bytes]:
        """The states after each byte that has a token of its own."""
        with self._lock:
            rows, codes = self._again(lambda: self._options(self._enter(state)))
            own = [byte for byte in np.flatnonzero(codes == 0).tolist() if byte in self._own]
            return self._states(np.unique(rows[own], axis=0))

    def fewest(self, state: bytes) -> int | None:
        return None

    def stays_near(self, state: bytes, most: int) -> bool:
        return most >= self._near

    def mask(self, state: bytes) -> Mask:
        mask = self._masks.get(state)
        if mask is None:
            with self._lock:
                mask = ~self._again(lambda: self._refused_tokens(state)).view(np.int32)
            np.bitwise_and(mask, self._texts, out=mask)
            mask.setflags(write=False)
            self._masks.put(state, mask, mask.nbytes + len(state))
        return mask

    def landings(self, state: bytes) -> Landings:
        landings = self._landings.get(state)
        if landings is None:
            with self._lock:
                landings = self._again(lambda: self._new_landings(state))
            self._landings.put(state, landings, 2 * landings.ids.nbytes + (len(state) + 40) * len(landings.states))
        return landings

    def successors(self, state: bytes) -> list[tuple[int, bytes]]:
        landings = self.landings(state)
        first = np.full(len(landings.states), -1, dtype=np.int64)
        first[landings.which[::-1]] = landings.ids[::-1]
        return list(zip(first.tolist(), landings.states, strict=True))

    # Kernels; the lock is held.

    def _run(self, state: bytes, data: bytes) -> tuple[int, int]:
        """What `kernels.run` returns, and how many bytes were read when the filter was idle last."""
        row, read = self._row(state), np.frombuffer(data, dtype=np.uint8)
        hit = self._call(lambda met: self._kernels.run(row, read, self._rows, self._last, self._filter, met))
        return hit, int(self._last[0])

    def _run_to_end(self, state: bytes) -> int:
        row = self._row(state)
        return self._call(lambda met: self._kernels.ends(row, self._rows, self._filter, met))

    def _enter(self, state: bytes) -> NDArray[np.int64]:
        """The row of a state, `(10,) int64`. It holds as long as nothing is forgotten."""
        row = np.zeros(ROW, dtype=np.int64)
        own = self._row(state)
        self._call(lambda met: self._kernels.enter(own, row, self._filter, met))
        return row

    def _options(
        self, row: NDArray[np.int64], low: int = 0, high: int = READINGS
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows after each byte, `(256, 8)`, and what reading it returned, `(256,)`, `int64`. Raises _Forgotten."""
        rows, codes = np.zeros((257, ROW), dtype=np.int64), np.empty(256, dtype=np.int64)
        rows[256] = row
        self._once(self._kernels.options(rows, codes, low, high, self._filter, self._met.arrays))
        return rows[:256, :KEPT], codes

    def _once(self, code: int) -> int:
        """Raises _Forgotten if a kernel had no room: its rows then mean nothing any more."""
        if code == self._kernels.FULL:
            raise _Forgotten
        return int(code)

    def _again(self, job: Callable[[], Result]) -> Result:
        """Do a job that works with rows; where there is no room, all numbers are forgotten and it begins again."""
        while True:
            try:
                return job()
            except _Forgotten:
                check_time()
                self._met.forget()
                self._lanes.clear()
                self._recent.clear()
                self._ends = Recent(MAX_LANDED)

    def _states(self, rows: NDArray[np.int64]) -> list[bytes]:
        """The states of rows, `(n, 8)` or wider."""
        states = np.empty((len(rows), self._size), dtype=np.int64)
        self._kernels.leave_all(np.ascontiguousarray(rows), states, self._met.arrays)
        return [row.tobytes() for row in states]

    def _refused_tokens(self, state: bytes) -> NDArray[np.uint32]:
        """The refused tokens, `(W,) uint32`: by the text as it is written, and by the decoded ones where a token
        holds a quotation mark or a backslash; otherwise these read it as the first does."""
        row = self._enter(state)
        if row[0]:
            refused = np.zeros(self._words, dtype=np.uint32)
            self._walk(row, None, refused, 0, READINGS, 0)
            return refused
        written = int(row[NUMBER])
        refused = self._alone_refused(WRITTEN, written).copy()
        for reading in (DOUBLE, SINGLE, NESTED):
            escape, number = int(row[reading]), int(row[NUMBER + reading])
            if escape == self._kernels.PLAIN:
                if number != written:
                    refused |= self._alone_refused(WRITTEN, number) & ~self._read[reading].special
                refused |= self._alone_refused(reading, number)
            else:
                is_whole = escape & 7 > self._kernels.PLAIN
                refused |= self._lane(reading, escape, number, is_whole=is_whole)
        return refused

    def _alone_refused(self, reading: int, number: int) -> NDArray[np.uint32]:
        """The tokens that one reading refuses, `(W,) uint32`, where no escape is in progress: as it is written all of
        them, else only those that hold a quotation mark of this reading or a backslash."""
        escape = self._kernels.PLAIN if reading else 0
        key = (reading, escape, number)
        known = self._lanes.get(key)
        if known is not None:
            return known
        refused, is_in_doubt = self._alone[reading].of(self._met.arrays[0][number])
        if is_in_doubt:
            row = np.zeros(ROW, dtype=np.int64)
            row[reading], row[NUMBER + reading] = escape, number
            more = np.zeros(self._words, dtype=np.uint32)
            self._walk(row, None, more, reading, reading + 1, 0, laid=self._read[reading].doubtful.laid)
            refused |= more
        self._lanes.put(key, refused, refused.nbytes)
        return refused

    def _lane(self, reading: int, escape: int, number: int, *, is_whole: bool) -> NDArray[np.uint32]:
        """The tokens that one of the decoded readings refuses, `(W,) uint32`, where no string has begun or an escape is
        in progress. is_whole: all of them, else only those that hold a quotation mark of this reading or a backslash.
        """
        key = (reading, escape, number)
        known = self._lanes.get(key)
        if known is not None:
            return known
        row = np.zeros(ROW, dtype=np.int64)
        row[NUMBER + reading] = number
        row[reading] = escape
        after, codes = self._options(row, reading, reading + 1)
        sign = np.where(codes == 0, after[:, NUMBER + reading] << 33 | after[:, reading], -1)  # (256,)
        recent = self._recent.setdefault((reading, is_whole), Recent(MAX_NEAR))
        nearest = recent.nearest(sign, self._below)
        refused = np.zeros(self._words, dtype=np.uint32) if nearest is None else nearest.refused.copy()
        kinds = 0 if is_whole else self._kinds[reading]
        self._walk(row, None if nearest is None else nearest.row, refused, reading, reading + 1, kinds)
        if not is_whole:
            refused &= self._read[reading].special
        lane = _Lane(row, refused)
        self._lanes.put(key, refused, refused.nbytes)
        recent.add(sign, lane)
        return refused

    def _walk(
        self,
        row: NDArray[np.int64],
        other: NDArray[np.int64] | None,
        refused: NDArray[np.uint32],
        low: int,
        high: int,
        kinds: int,
        ends: _Ends | None = None,
        laid: TrieLayout | None = None,
    ) -> int:
        """Fill the refused tokens, and the rows after the others where `ends` is given; returns how many rows there
        are. laid: a part of the trie, None for all of it. Raises _Forgotten."""
        laid = self._laid if laid is None else laid
        stack = np.empty((2, self._depth, ROW), dtype=np.int64)
        stack[0, 0] = row
        stack[1, 0] = row if other is None else other
        at = _NO_ENDS if ends is None else ends
        count = self._once(
            self._kernels.walk(
                laid.nodes,
                laid.ids,
                other is not None,
                low,
                high,
                kinds,
                KIND,
                stack[0],
                stack[1],
                refused,
                at.landed,
                at.kept,
                at.count,
                at.slots,
                self._filter,
                self._met.arrays,
            )
        )
        check_time()
        if count < 0:
            raise LimitExceeded(f"one token leads to more than {MAX_ROWS} states of the filter")
        return count

    def _new_landings(self, state: bytes) -> Landings:
        row = self._enter(state)
        after, codes = self._options(row)
        sign = np.where(codes == 0, after @ _MIXING, -1)  # (256,)
        nearest = self._ends.nearest(sign, self._below)
        refused = np.zeros(self._words, dtype=np.uint32)
        if nearest is None:
            ends = _Ends.empty(32 * self._words)
            ends.count = self._walk(row, None, refused, 0, READINGS, 0, ends)
        else:
            ends = nearest.ends.copy()
            ends.count = self._walk(row, nearest.row, refused, 0, READINGS, 0, ends)
        ends.forget_unused()
        self._ends.add(sign, _StateLandings(row, ends))
        ids = np.flatnonzero(ends.landed >= 0).astype(np.int32)
        return Landings(ids=ids, which=ends.landed[ids], states=tuple(self._states(ends.kept[: ends.count])))


@dataclass(slots=True)
class _Ends:
    """Where tokens lead. landed: the number of the row after each, -1 for none, `(32 W,) int32`. kept: rows, `(M, 10)
    int64`, of which `count` are there. slots: see `kernels._keep`, `(2 M,) int32`."""

    landed: NDArray[np.int32]
    kept: NDArray[np.int64]
    count: int
    slots: NDArray[np.int32]

    @staticmethod
    def empty(size: int) -> _Ends:
        return _Ends(
            np.full(size, -1, dtype=np.int32),
            np.empty((MAX_ROWS, ROW), dtype=np.int64),
            0,
            np.full(2 * MAX_ROWS, -1, dtype=np.int32),
        )

    def copy(self) -> _Ends:
        copied = np.empty((MAX_ROWS, ROW), dtype=np.int64)
        copied[: self.count] = self.kept[: self.count]
        return _Ends(self.landed.copy(), copied, self.count, np.full(2 * MAX_ROWS, -1, dtype=np.int32))

    def forget_unused(self) -> None:
        """Number anew the rows that some token leads to, and drop the others."""
        used = np.zeros(self.count + 1, dtype=np.bool_)  # the last stands for none
        used[self.landed] = True
        used[-1] = False
        number = np.cumsum(used, dtype=np.int32) - 1
        number[-1] = -1
        self.landed = number[self.landed]
        self.kept = self.kept[: self.count][used[:-1]]
        self.count = len(self.kept)


class _StateLandings(NamedTuple):
    """A state whose landings are known. row: `(10,) int64`."""

    row: NDArray[np.int64]
    ends: _Ends


_NO_ENDS = _Ends(np.empty(0, dtype=np.int32), np.empty((0, ROW), dtype=np.int64), 0, np.empty(1, dtype=np.int32))
_MIXING = np.random.default_rng(20_26).integers(-(2**62), 2**62, size=KEPT, dtype=np.int64)
"""Makes one number of a row, to compare rows by; it only decides which known state a new one is compared with."""


class _Forgotten(Exception):
    """There was no room for a number; all must be forgotten."""


@cache
def _kernels() -> Any:
    return import_module("espalier.constraints.safety.kernels")  # numba is loaded with the first machine


def _hit(hit: int) -> Hit | None:
    return Hit(*divmod(hit - 1, READINGS)) if hit > 0 else None
