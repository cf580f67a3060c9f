"""Runs the forward passes of all lanes: opens sequences, cuts long prefills into chunks, finds which lane an error is
about.

It knows no queue and no readers; it reports the lanes that failed, and the scheduler ends them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from espalier.decoding.ports import Append, Extend, Need, Rows, StepModel
from espalier.engines.scheduling.fair_queue import shares
from espalier.engines.scheduling.lanes import Lane, PendingAppend
from espalier.engines.scheduling.prefix_cache import HeldSequence, PrefixCache, SequencePool, common
from espalier.errors import CapabilityError, GenerationError, LimitExceeded
from espalier.sampling.fast.program import new_tuple

WORTH_WAITING = 32  # tokens: a prompt waits for another one that is computing a shared prefix of this length
WAITS = 4
"""While others have the processor a pass takes longer than it computes; by more than this it waits for a device."""
T = TypeVar("T")
Piece: TypeAlias = tuple[Lane, int, HeldSequence, tuple[int, ...]]
"""What an item of a pass is about: a lane, its branch, the sequence that grows, and the tokens."""


class PassTimes(Protocol):
    """Gets the seconds of forward passes, while it wants them: to ask the clocks takes time too."""

    is_wanted: bool

    def passed(self, seconds: float) -> None: ...


class Passes:
    """Everything that happens on the model. steps: forward passes; prefilled, reused: prompt tokens that were computed,
    and that were not; all since the start. chunk: prefill tokens in one pass. kept_tokens, kept_sequences: the most
    that is kept of ended sequences. times: gets the seconds of each pass with what comes before it, without those in
    which others had the processor."""

    def __init__(
        self, model: StepModel, *, chunk: int, kept_tokens: int, kept_sequences: int, times: PassTimes | None = None
    ) -> None:
        self._model, self._chunk, self._times = model, chunk, times
        self._width = model.width
        self._sequences = SequencePool(model)
        self._kept = PrefixCache(self._sequences, max_tokens=kept_tokens, max_sequences=kept_sequences)
        self.steps = self.reused = self.prefilled = 0

    @property
    def sequences(self) -> int:
        """Sequences of the model that are open, kept ones included."""
        return self._sequences.count

    @property
    def tokens(self) -> int:
        """Tokens that all sequences hold, kept ones included."""
        return self._sequences.tokens

    def make_room(self, size: int, slots: int, lane: Lane | None = None) -> None:
        """Drop kept sequences until there is room for that many tokens in that many sequences. The one that a new lane
        can reuse is dropped last, by giving it to the lane."""
        can_use = lane is not None and len(lane.ids) and lane.ticket.watch is None
        best = None if lane is None or not can_use else self._kept.find(lane.ids, owner=lane.ticket.owner)
        useful = None if best is None else best[0]
        while self._kept.count and (
            size + self._kept.tokens > self._model.capacity or slots + self._kept.count > self._model.max_sequences
        ):
            if not self._kept.drop(but=useful) and lane is not None and best is not None:
                lane.head = self._kept.take(*best)

    def free(self, lane: Lane, *, keep: bool = False) -> None:
        """A lane has ended. keep: its prompt's sequence may serve a later prompt."""
        cached = lane.branches.pop(0, None) if keep and self._kept.is_on else None
        for held in (*lane.branches.values(), *([lane.head] if lane.head is not None else [])):
            self._sequences.free(held)
        lane.branches.clear()
        lane.head = None
        if cached is not None:
            self._kept.keep(cached, owner=lane.ticket.owner)

    def clear(self) -> None:
        """Free all kept sequences."""
        self._kept.clear()

    def run(self, lanes: Sequence[Lane]) -> dict[Lane, Exception]:
        """One forward pass, or none if nothing is to be appended. Lanes whose need is done get their answer. Returns
        the lanes that failed."""
        times = self._times
        is_timed = times is not None and times.is_wanted
        began, used = (time.perf_counter(), time.thread_time()) if is_timed else (0.0, 0.0)
        failed: dict[Lane, Exception] = {}
        work: list[Extend] = []
        pieces: list[Piece] = []
        long: list[PendingAppend] = []
        for lane in lanes:
            need, branches = lane.need, lane.branches
            if need is not None:
                if not branches and self._has_to_wait(lane, need, lanes):
                    continue
                appends, forks, truncations, frees = need
                size, todo = len(work), lane.todo
                try:
                    if forks or truncations or frees:
                        self._rearrange(branches, need)
                    for append in appends:
                        branch, tokens, logits, optional = append
                        held = branches.get(branch)
                        if held is not None and len(tokens) == 1 and not optional:
                            work.append(new_tuple(Extend, (held.sequence, tokens, logits)))
                            pieces.append((lane, branch, held, tokens))
                        elif held is not None:
                            todo.append(PendingAppend(lane, append, held))
                        else:
                            todo.append(self._open(lane, append, lanes))
                            branches[branch] = todo[-1].held
                except Exception as error:  # noqa: BLE001  # goes to the plan's reader
                    failed[lane] = error
                    del work[size:], pieces[size:]
                    continue
                lane.need, lane.rows = None, {}
                if not todo:
                    lane.answer = lane.rows  # complete after this pass
            if lane.todo:
                long += lane.todo
        appended = self._cut(long, work, pieces) if long else long
        if work:
            rows: Sequence[Rows | None]
            try:
                rows = self._model.extend(work)
                self.steps += 1
            except Exception as error:  # noqa: BLE001  # running its items one by one shows which one it is about
                rows = self._run_again(work, pieces, failed, error)
            count = 0
            for (lane, branch, held, tokens), part in zip(pieces, rows, strict=True):
                if part is not None:
                    held.tokens += tokens
                    count += len(tokens)
                    lane.rows[branch] = part
            self._sequences.tokens += count
        if long:
            self._settle(long, appended)
        if is_timed and times is not None:
            took, used = time.perf_counter() - began, time.thread_time() - used
            times.passed(min(took, max(used, took / WAITS)))
        return failed

    def _rearrange(self, branches: dict[int, HeldSequence], need: Need) -> None:
        """Free, fork and truncate a lane's sequences."""
        early, late = need.frees(branches) if need.free else ((), ())
        for branch in early:
            self._sequences.free(branches.pop(branch))
        for source, target in need.fork:
            if target in branches:
                raise ValueError(f"a strategy forks to branch {target}, which it has already")
            branches[target] = self._with_room(partial(self._sequences.fork, branches[source]))
        for branch, length in need.truncate:
            self._sequences.truncate(branches[branch], length)
        for branch in late:
            self._sequences.free(branches.pop(branch))

    def _with_room(self, make: Callable[[], T]) -> T:
        while True:
            try:
                return make()
            except LimitExceeded:
                if not self._kept.drop():
                    raise

    def _open(self, lane: Lane, append: Append, lanes: Iterable[Lane]) -> PendingAppend:
        """The first append of a branch, in a sequence that starts with the part of it that is kept."""
        head, watch = lane.head, lane.ticket.watch
        can_reuse = append.logits != "all" and append.tokens == lane.ticket.prompt and watch is None
        lane.head = None
        if head is not None:
            if can_reuse:
                return self._reuse(lane, head, append)
            self._sequences.free(head)
        donor = self._donor(lane, lanes) if can_reuse and self._kept.is_on else None
        if donor is not None:
            try:
                return self._reuse(lane, self._kept.fork(*donor), append)
            except (CapabilityError, LimitExceeded):
                pass  # no slot, or a cache that cannot be cut there: compute it instead
        return PendingAppend(lane, append, self._with_room(partial(self._sequences.new, watch)), is_prompt=True)

    def _reuse(self, lane: Lane, held: HeldSequence, append: Append) -> PendingAppend:
        reused = len(held.tokens)
        lane.ticket.reused += reused
        self.reused += reused
        return PendingAppend(lane, append, held, is_prompt=True, place=reused)

    def _donor(self, lane: Lane, lanes: Iterable[Lane]) -> tuple[HeldSequence, int] | None:
        """The sequence that shares the longest prefix with a lane's prompt: a kept one, or another lane's, of the same
        owner."""
        owner = lane.ticket.owner
        best = self._kept.find(lane.ids, owner=owner)
        if self._model.can_truncate:
            for other in lanes:
                held = other.branches.get(0)
                if other is lane or held is None or other.ticket.owner != owner:
                    continue
                shared = min(common(other.ids, lane.ids), len(lane.ids) - 1, len(held.tokens))
                if shared > (0 if best is None else best[1]) and other.begins_with(lane.ids[:shared]):
                    best = held, shared
        return best

    def _has_to_wait(self, lane: Lane, need: Need, lanes: Iterable[Lane]) -> bool:
        """Whether another lane of the same owner is computing the start of this lane's prompt. Only lanes that have
        begun are waited for, so that no two wait for each other."""
        if lane.branches or lane.head is not None or not self._kept.is_on or not self._model.can_truncate:
            return False
        if lane.ticket.watch is not None:
            return False
        if len(need.append) != 1 or need.append[0].logits == "all" or need.append[0].tokens != lane.ticket.prompt:
            return False
        coming = 0
        for other in lanes:
            if other.ticket.owner != lane.ticket.owner:
                continue
            if other.todo and other.todo[0].is_prompt and other.todo[0].append.tokens == other.ticket.prompt:
                shared = min(common(other.ids, lane.ids), len(lane.ids) - 1)
                if shared > other.todo[0].place:
                    coming = max(coming, shared)
        if coming < WORTH_WAITING:
            return False
        donor = self._donor(lane, lanes)
        return donor is None or coming > donor[1]

    def _cut(self, long: list[PendingAppend], work: list[Extend], pieces: list[Piece]) -> list[PendingAppend]:
        """Add to the work a fair share of the long appends, up to the chunk size. Returns those that get any."""
        if any(todo.append.optional and not todo.place for todo in long):
            self._fit_drafts(long, len(work))
        for todo in long:
            todo.size = todo.left
        if sum(todo.size for todo in long) > self._chunk:
            self._share_out([todo for todo in long if todo.size > 1])
        for todo in long:
            if todo.size:
                item = todo.extension()
                work.append(item)
                pieces.append((todo.lane, todo.append.branch, todo.held, item.tokens))
        return [todo for todo in long if todo.size]

    def _share_out(self, long: Sequence[PendingAppend]) -> None:
        """Cut appends so that they fit into the chunk size together, and owners get equal shares of it."""
        wants: Counter[str] = Counter()
        for todo in long:
            wants[todo.lane.ticket.owner] += todo.size
        portions = shares(self._chunk, wants)
        for todo in long:
            owner = todo.lane.ticket.owner
            todo.size = min(todo.size, portions[owner])
            portions[owner] -= todo.size

    def _fit_drafts(self, long: Sequence[PendingAppend], singles: int) -> None:
        """Give optional tokens the room that long appends leave, and leave out the rest. singles: single tokens of the
        same pass."""
        needed = singles + sum(todo.left - todo.append.optional for todo in long)
        free = max(0, self._chunk - needed)
        for todo in long:
            append = todo.append
            if append.optional and not todo.place:
                count = min(append.optional, free)
                free -= count
                tokens = append.tokens[: len(append.tokens) - append.optional + count]
                todo.append = append._replace(tokens=tokens, optional=0)

    def _settle(self, long: Sequence[PendingAppend], appended: Sequence[PendingAppend]) -> None:
        """After the pass: what it has added to long appends, and the answers of lanes that wait for no more."""
        for todo in appended:
            part = todo.lane.rows.pop(todo.append.branch, None)
            if part is not None:
                todo.grow(part)
                self.prefilled += todo.size if todo.is_prompt else 0
        for lane in {todo.lane: None for todo in long}:
            lane.settle(self._width)

    def _run_again(
        self, work: list[Extend], pieces: list[Piece], failed: dict[Lane, Exception], error: Exception
    ) -> Sequence[Rows | None]:
        """The pass failed and changed nothing: run it again without everything kept, where that took its room, or else
        its items one by one."""
        if isinstance(error, LimitExceeded) and self._kept.count:
            with suppress(Exception):
                return self._run_pass(work)
        return self._one_by_one(work, pieces, failed)

    def _one_by_one(self, work: list[Extend], pieces: list[Piece], failed: dict[Lane, Exception]) -> list[Rows | None]:
        """The pass failed and changed nothing: run its items one by one. None for an item that fails."""
        done: list[Rows | None] = []
        for (lane, _, held, _), item in zip(pieces, work, strict=True):
            rows = None
            if lane not in failed:
                try:
                    if self._model.length(item.sequence) != len(held.tokens):
                        raise GenerationError("the model's sequence has another length than its tokens after an error")
                    rows = self._run_pass([item])[0].copy()  # (n, V); the next call may overwrite it
                except Exception as error:  # noqa: BLE001  # goes to the one request that it belongs to
                    failed[lane] = error
            done.append(rows)
        return done

    def _run_pass(self, work: list[Extend]) -> list[Rows]:
        """One forward pass after one that failed; without room for it, everything kept is dropped."""
        try:
            rows = self._model.extend(work)
        except LimitExceeded:
            if not self._kept.count:
                raise
            self._kept.clear()
            rows = self._model.extend(work)
        self.steps += 1
        return rows
