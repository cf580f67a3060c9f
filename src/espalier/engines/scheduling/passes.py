"""Runs the forward passes of all lanes: opens sequences, cuts long prefills into chunks, finds which lane an error is
about.

It knows no queue and no readers; it reports the lanes that failed, and the scheduler ends them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
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
Piece: TypeAlias = tuple[Lane, int, HeldSequence]
"""Whose an item of a pass is: the lane, its branch, and the sequence that grows."""


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
        pieces: list[Piece] = []  # whose each item of the work is
        long: list[PendingAppend] = []
        for lane in lanes:
            need = lane.need
            if need is not None:
                if not lane.branches and self._has_to_wait(lane, need, lanes):
                    continue
                size = len(work)
                try:
                    self._prepare(lane, need, lanes, work, pieces)
                except Exception as error:  # noqa: BLE001  # goes to the plan's reader
                    failed[lane] = error
                    del work[size:], pieces[size:]
                    continue
            if lane.todo:
                long += lane.todo
        appended = self._cut(long, work, pieces) if long else long
        if work:
            self._extend(work, pieces, appended, failed)
        for lane in {todo.lane: None for todo in long}:
            lane.settle(self._width)
        if is_timed and times is not None:
            took, used = time.perf_counter() - began, time.thread_time() - used
            times.passed(min(took, max(used, took / WAITS)))
        return failed

    def _prepare(
        self, lane: Lane, need: Need, lanes: Iterable[Lane], work: list[Extend], pieces: list[Piece]
    ) -> None:
        """Do what comes before the appends: frees, forks, truncations. Single tokens are added to the next pass, longer
        appends to the lane. Raises the plan's or the model's error."""
        branches, rows = lane.branches, {}
        appends, forks, truncations, frees = need
        if forks or truncations or frees:
            self._rearrange(branches, need)
        for append in appends:
            branch, tokens, logits, optional = append
            held = branches.get(branch)
            if held is None:
                todo = self._open(lane, append, lanes)
                branches[branch] = todo.held
                lane.todo.append(todo)
            elif len(tokens) == 1 and not optional:
                work.append(new_tuple(Extend, (held.sequence, tokens, logits)))
                pieces.append((lane, branch, held))
            else:
                lane.todo.append(PendingAppend(lane, append, held))
        lane.need, lane.rows = None, rows
        if not lane.todo:
            lane.answer = rows  # complete after this pass

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
        wants: Counter[str] = Counter()
        for todo in long:
            wants[todo.lane.ticket.owner] += todo.left if todo.left > 1 else 0
        portions = shares(self._chunk, wants)
        for todo in long:
            todo.size = left = todo.left
            if left > 1:
                todo.size = min(left, portions[todo.lane.ticket.owner])
                portions[todo.lane.ticket.owner] -= todo.size
            if todo.size:
                work.append(todo.extension())
                pieces.append((todo.lane, todo.append.branch, todo.held))
        return [todo for todo in long if todo.size]

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

    def _extend(
        self, work: list[Extend], pieces: list[Piece], long: Sequence[PendingAppend], failed: dict[Lane, Exception]
    ) -> None:
        """Run one forward pass. Adds the lanes that fail to `failed`."""
        try:
            rows: Sequence[Rows | None] = self._run_pass(work)
        except Exception:  # noqa: BLE001  # running them one by one shows which item it is about
            rows = self._one_by_one(work, pieces, failed)
        for (lane, branch, held), item, part in zip(pieces, work, rows, strict=True):
            if part is not None:
                held.tokens += item.tokens
                self._sequences.tokens += len(item.tokens)
                lane.rows[branch] = part
        for todo in long:
            part = todo.lane.rows.pop(todo.append.branch, None)
            if part is not None:
                todo.grow(part)
                self.prefilled += todo.size if todo.is_prompt else 0

    def _one_by_one(
        self, work: list[Extend], pieces: list[Piece], failed: dict[Lane, Exception]
    ) -> list[Rows | None]:
        """The pass failed and changed nothing: run its items one by one. None for an item that fails."""
        done: list[Rows | None] = []
        for (lane, _, held), item in zip(pieces, work, strict=True):
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
        """One forward pass; without room for it, one more after dropping everything kept."""
        try:
            rows = self._model.extend(work)
        except LimitExceeded:
            if not self._kept.count:
                raise
            self._kept.clear()
            rows = self._model.extend(work)
        self.steps += 1
        return rows
