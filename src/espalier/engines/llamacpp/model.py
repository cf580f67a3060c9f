"""A GGUF model as a StepModel over `llama_decode`: many sequences, in one unified KV cache or in one each.

It turns token ids into logits. It knows no vocabulary, no constraints and no sampling.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import Any

import numpy as np

from espalier.decoding.ports import Extend, Rows, SequenceId
from espalier.engines.llamacpp.context import BATCH, LlamaContext, check_made, context_params
from espalier.engines.llamacpp.library import address_of, library
from espalier.engines.llamacpp.slots import are_neighbours, neighbour_moves
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions
from espalier.errors import CapabilityError, GenerationError, LimitExceeded

NO_SLOT, ABORTED, INVALID = 1, 2, -1  # what llama_decode returns; below -1 is fatal


class LlamaStepModel:
    """A StepModel over one llama_context. Raises InputError, LimitExceeded (out of memory), CapabilityError."""

    def __init__(self, file: LlamaFile, options: EngineOptions) -> None:
        lib = library()
        self._lib, self._file = lib, file
        context, params = context_params(lib, file, options)
        self._context = held = LlamaContext(lib, file, params, options)
        self._ctx: Any = held.ctx
        check_made(lib, self._ctx, params)
        self._memory: Any = lib.llama_get_memory(self._ctx)
        self._sequences: int = params.n_seq_max
        self._capacity = int(lib.llama_n_ctx(self._ctx))
        self._max_positions = min(context, int(lib.llama_n_ctx_seq(self._ctx)))
        self._width = int(lib.llama_vocab_n_tokens(file.vocab))
        self._is_unified = bool(params.kv_unified)
        self._free_slots = list(range(self._sequences))  # a heap: the least is taken first
        self._slots: dict[SequenceId, int] = {}
        self._active: list[int] = []  # the slots of the last pass over many caches, sorted
        self._lengths: dict[SequenceId, int] = {}
        self._broken: set[SequenceId] = set()  # could not be restored after a failed pass
        self._next = 0
        self._nothing = np.empty((0, self._width), dtype=np.float32)  # (0, V)
        self._last: tuple[int, int, Rows] = (0, 0, self._nothing)  # of the last logits: address, number of rows, view
        self._logits_address = address_of("llama_get_logits", of=lib.llama_context_p_ctypes)
        self._make_batch(lib, min(options.batch_size or BATCH, params.n_batch))
        self._can_truncate = not file.is_recurrent and self._cuts()

    def _make_batch(self, lib: Any, size: int) -> None:
        """A llama_batch over our own arrays, each (size,), so that it can be filled without a loop."""
        self._batch_size = size
        self._tokens = np.zeros(size, dtype=np.int32)
        self._positions = np.zeros(size, dtype=np.int32)
        self._slot_of = np.zeros(size, dtype=np.int32)
        self._wanted = np.zeros(size, dtype=np.int8)
        self._ones = np.ones(size, dtype=np.int32)
        # seq_id is an array of pointers to the entries of _slot_of, ended by a null.
        self._pointers = np.zeros(size + 1, dtype=np.uintp)
        self._pointers[:size] = self._slot_of.ctypes.data + 4 * np.arange(size, dtype=np.uintp)
        batch = lib.llama_batch()
        for name, array in (
            ("token", self._tokens),
            ("pos", self._positions),
            ("n_seq_id", self._ones),
            ("seq_id", self._pointers),
            ("logits", self._wanted),
        ):
            pointer = type(getattr(batch, name))
            setattr(batch, name, ctypes.cast(array.ctypes.data, pointer))
        self._batch = batch

    def _cuts(self) -> bool:
        """Whether this model's memory can drop the end of a sequence: tried on two tokens. This is also the first pass,
        so an error that every pass would raise is raised here."""
        sequence = self.new()
        try:
            self.extend([Extend(sequence=sequence, tokens=(0, 0), logits="none")])
            return bool(self._lib.llama_memory_seq_rm(self._memory, self._slots[sequence], 1, -1))
        finally:
            self.free(sequence)

    @property
    def is_unified(self) -> bool:
        """Whether all sequences share one KV cache."""
        return self._is_unified

    @property
    def width(self) -> int:
        return self._width

    @property
    def max_positions(self) -> int:
        return self._max_positions

    @property
    def max_sequences(self) -> int:
        return self._sequences

    @property
    def capacity(self) -> int:
        # A recurrent state has a fixed size, however many tokens it has read.
        if self._lib.llama_model_is_recurrent(self._file.handle):
            return self._sequences * self._max_positions
        return self._capacity

    @property
    def can_truncate(self) -> bool:
        return self._can_truncate

    def new(self) -> SequenceId:
        if not self._free_slots:
            raise LimitExceeded(
                f"all {self._sequences} sequences are in use", hint="open the model with more sequences"
            )
        sequence = SequenceId(self._next)
        self._next += 1
        self._slots[sequence] = heappop(self._free_slots)
        self._lengths[sequence] = 0
        return sequence

    def length(self, sequence: SequenceId) -> int:
        return self._lengths[sequence]

    def fork(self, sequence: SequenceId) -> SequenceId:
        self._check_whole(sequence)
        length, source = self._lengths[sequence], self._slots[sequence]
        fork = self.new()
        if length:
            self._lib.llama_memory_seq_cp(self._memory, source, self._slots[fork], -1, -1)
        self._lengths[fork] = length
        return fork

    def truncate(self, sequence: SequenceId, length: int) -> None:
        held = self._lengths[sequence]
        if not 0 <= length <= held:
            raise ValueError(f"cannot truncate {held} tokens to {length}")
        self._check_whole(sequence)
        if not self._can_truncate:
            raise CapabilityError(f"{self._file.path.name}: the KV cache of this model cannot be truncated")
        if length == held:
            return
        if not self._lib.llama_memory_seq_rm(self._memory, self._slots[sequence], length, -1):
            raise CapabilityError(f"{self._file.path.name}: the KV cache of this model cannot be truncated to {length}")
        self._lengths[sequence] = length

    def free(self, sequence: SequenceId) -> None:
        slot = self._slots.pop(sequence)
        del self._lengths[sequence]
        self._broken.discard(sequence)
        if self._context.is_freed:
            return
        # Removing a whole sequence always works; if it did not, its slot must not be used again.
        if self._lib.llama_memory_seq_rm(self._memory, slot, -1, -1):
            heappush(self._free_slots, slot)

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        if len(work) == 1 and len(work[0].tokens) == 1:
            return [self._extend_by_one(work)]
        if not self._is_unified and len(work) > 1:
            return self._in_order_of_slots(work)
        return self._extend(work)

    def _in_order_of_slots(self, work: Sequence[Extend]) -> list[Rows]:
        """As `extend`. llama.cpp computes sequences with caches of their own together only where each takes the slot
        after that of the one before. So the sequences of two passes in turn become neighbours: of one alone, the next
        may be about others."""
        slots = self._slots
        active = sorted(slots[item.sequence] for item in work)
        if active == self._active and not are_neighbours(active):
            self._bring_together(active)
        self._active = active
        order = sorted(range(len(work)), key=lambda at: slots[work[at].sequence])
        answers = self._extend([work[at] for at in order])
        return [answers[at] for at in np.argsort(order)]

    def _bring_together(self, active: Sequence[int]) -> None:
        """Move sequences, with their caches, until those of `active` are neighbours. llama.cpp copies the caches in the
        next pass, in this order."""
        holders = {slot: sequence for sequence, slot in self._slots.items()}
        if len(holders) + len(self._free_slots) < self._sequences:
            return  # a slot could not be emptied: nothing moves into it or past it
        for source, target in neighbour_moves(active, holders, self._sequences):
            if self._lengths[holders[source]]:
                self._lib.llama_memory_seq_cp(self._memory, source, target, -1, -1)
            self._lib.llama_memory_seq_rm(self._memory, source, -1, -1)
            self._free_slots.remove(target)
            self._free_slots.append(source)
            holders[target] = holders.pop(source)
            self._slots[holders[target]] = target
        heapify(self._free_slots)

    def _extend(self, work: Sequence[Extend]) -> list[Rows]:
        total, most_rows = self._check(work)
        if not total:
            return []
        # With more rows than sequences llama.cpp would move its buffer, and earlier views would be invalid.
        if total <= self._batch_size and most_rows <= self._sequences:
            at, counts = 0, []
            for item in work:
                counts.append(self._fill(at, item, 0, len(item.tokens)))
                at += len(item.tokens)
            self._decode(at, work)
            rows = self._view(sum(counts))
        else:
            rows, counts = self._several(work)
        lengths, answers, end = self._lengths, [], 0
        for item, count in zip(work, counts, strict=True):
            lengths[item.sequence] += len(item.tokens)
            answers.append(rows[end : end + count])
            end += count
        return answers

    def _extend_by_one(self, work: Sequence[Extend]) -> Rows:
        """As `extend`, for one token of one sequence: what one text asks for at every step."""
        item = work[0]
        (token,), sequence = item.tokens, item.sequence
        length = self._lengths[sequence]
        if not 0 <= token < self._width or sequence in self._broken or length >= self._max_positions:
            self._check(work)  # raises
        self._tokens[0] = token
        self._positions[0] = length
        self._slot_of[0] = self._slots[sequence]
        self._wanted[0] = wanted = item.logits != "none"
        self._decode(1, work)
        self._lengths[sequence] = length + 1
        return self._view(int(wanted))

    def _check(self, work: Sequence[Extend]) -> tuple[int, int]:
        """The number of tokens, and the most rows of logits wanted. Raises, before anything has changed, for arguments
        on which llama.cpp would end the process."""
        total, rows, seen = 0, len(work), set()
        for item in work:
            tokens, sequence = item.tokens, item.sequence
            if not tokens:
                raise ValueError(f"nothing to append to sequence {sequence}")
            if min(tokens) < 0 or max(tokens) >= self._width:
                wrong = next(t for t in tokens if not 0 <= t < self._width)
                raise ValueError(f"token {wrong} is outside 0..{self._width - 1}")
            if sequence in self._broken:
                self._check_whole(sequence)
            if self._lengths[sequence] + len(tokens) > self._max_positions:
                raise LimitExceeded(
                    f"a sequence would outgrow {self._max_positions} positions", hint="open the model with more context"
                )
            seen.add(sequence)
            total += len(tokens)
            if item.logits == "all":
                rows += len(tokens) - 1
        if len(seen) < len(work):
            raise ValueError("a sequence occurs twice in one call")
        return total, rows

    def _check_whole(self, sequence: SequenceId) -> None:
        if sequence in self._broken:
            raise GenerationError(
                f"sequence {sequence} was lost when a pass failed", hint="begin it again from its first token"
            )

    def _fill(self, at: int, item: Extend, start: int, stop: int) -> int:
        """Put tokens start..stop of an item at index `at` of the batch. Returns how many rows of logits they give."""
        tokens, n = item.tokens, stop - start
        position = self._lengths[item.sequence] + start
        ends = stop == len(tokens)
        if n == 1:  # the common case: four times faster this way
            self._tokens[at] = tokens[start]
            self._positions[at] = position
            self._slot_of[at] = self._slots[item.sequence]
            wanted = item.logits == "all" or (ends and item.logits == "last")
            self._wanted[at] = wanted
            return int(wanted)
        end = at + n
        self._tokens[at:end] = tokens[start:stop]
        self._positions[at:end] = np.arange(position, position + n, dtype=np.int32)
        self._slot_of[at:end] = self._slots[item.sequence]
        self._wanted[at:end] = item.logits == "all"
        if item.logits == "all":
            return n
        if item.logits == "last" and ends:
            self._wanted[end - 1] = 1
            return 1
        return 0

    def _several(self, work: Sequence[Extend]) -> tuple[Rows, list[int]]:
        """For more tokens or rows than fit in one batch: several passes, copying the rows of each. Returns all rows (n,
        V) and the number of rows of each item."""
        counts = [{"last": 1, "all": len(item.tokens), "none": 0}[item.logits] for item in work]
        rows = np.empty((sum(counts), self._width), dtype=np.float32)  # (n, V)
        done = at = pending = 0
        for item in work:
            start, length = 0, len(item.tokens)
            while start < length:
                room = self._batch_size - at
                if item.logits == "all":
                    room = min(room, self._sequences - pending)
                stop = min(length, start + room)
                pending += self._fill(at, item, start, stop)
                at, start = at + stop - start, stop
                full = at == self._batch_size or pending == self._sequences
                if full or (item is work[-1] and stop == length):
                    self._decode(at, work)
                    rows[done : done + pending] = self._view(pending)
                    done, at, pending = done + pending, 0, 0
        return rows, counts

    def _decode(self, count: int, work: Sequence[Extend]) -> None:
        """One pass over the first `count` tokens of the batch. If it fails, all sequences of `work` are restored."""
        self._batch.n_tokens = count
        code = self._lib.llama_decode(self._ctx, self._batch)
        if code:
            self._undo(work)
            raise _decode_error(code, self._capacity)

    def _undo(self, work: Sequence[Extend]) -> None:
        """Remove what earlier passes, or parts of the failed one, have added."""
        lib = self._lib
        for item in work:
            slot, length = self._slots[item.sequence], self._lengths[item.sequence]
            if lib.llama_memory_seq_pos_max(self._memory, slot) < length:
                continue
            if not lib.llama_memory_seq_rm(self._memory, slot, length or -1, -1):
                self._broken.add(item.sequence)

    def _view(self, count: int) -> Rows:
        """The logits of the last pass in llama.cpp's buffer, (count, V), not copied: valid until the next pass. The
        view keeps the context alive."""
        if not count:
            return self._nothing
        address: int = self._logits_address(self._ctx)
        if (address, count) == self._last[:2]:
            return self._last[2]
        memory: Any = (ctypes.c_float * (count * self._width)).from_address(address)
        memory.owner = self._context
        view: Rows = np.frombuffer(memory, dtype=np.float32).reshape(count, self._width)
        self._last = address, count, view
        return view


def _decode_error(code: int, capacity: int) -> GenerationError:
    if code == NO_SLOT:
        return LimitExceeded(
            f"all sequences together would outgrow the {capacity} tokens of the KV cache",
            hint="fewer at once, or a larger kv_size",
        )
    meanings = {ABORTED: "the pass was aborted", INVALID: "llama.cpp refused the batch"}
    return GenerationError(f"{meanings.get(code, 'the pass failed')} (llama_decode returned {code})")
