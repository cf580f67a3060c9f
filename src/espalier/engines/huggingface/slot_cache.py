"""KV cache of many sequences that grow, are truncated and are forked independently.

transformers' `DynamicCache` cannot do this: it holds one tensor per layer whose rows all have the same length, so a row
can neither join late nor be truncated or copied alone, and every token copies the whole cache (`torch.cat`). Here a
layer is one buffer of slots with spare room: a token is written in place, and attention reads a view.

Buffers are (S, H, C, D): slots, key-value heads, capacity, head size. S and C double when needed. The token at position
p of a row lies at `[slot, :, p]`. Everything beyond what a row has written is zero: attention gives it weight 0, and 0
x NaN of old values would not be 0.

In a pass over rows with different numbers of new tokens, the tokens are right-aligned in the (B, T) block. So the last
column is the last token of every row, and one position of the output head serves all rows. Padding is never written to
the cache.

This module knows no logits, nor which models it fits: `model.py` decides that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import Cache, DynamicCache, PreTrainedConfig
from transformers.cache_utils import CacheLayerMixin

from espalier.engines.huggingface.zeros import Zeros
from espalier.errors import CapabilityError, LimitExceeded

FIRST_CAPACITY = 128  # positions; costs little, and short answers never outgrow it


@dataclass(frozen=True, slots=True)
class PassLayout:
    """What the model's forward needs for one pass. Line b of the batch is `rows[order[b]]` of `begin`."""

    cache: Cache
    order: tuple[int, ...]
    position_ids: torch.Tensor  # (B, T) int64
    attention_mask: torch.Tensor | None  # (B, 1, T, total) additive in the model's dtype; None: plain causal


class RowCaches(Protocol):
    """Caches of many rows behind one protocol. Order of calls: `begin`, the forward pass, `commit`."""

    can_truncate: bool

    def add(self) -> int:
        """A new empty row. Raises LimitExceeded."""
        ...

    def fork(self, row: int) -> int:
        """An independent copy. Raises LimitExceeded."""
        ...

    def truncate(self, row: int, length: int) -> None:
        """Forget positions from `length` on. Raises CapabilityError."""
        ...

    def remove(self, row: int) -> None:
        """Forget the row."""
        ...

    def length(self, row: int) -> int:
        """Committed positions. Raises KeyError for an unknown row."""
        ...

    def begin(self, rows: Sequence[int], counts: Sequence[int]) -> PassLayout:
        """Prepare a pass that appends `counts[i]` tokens to `rows[i]`; no length changes before `commit`."""
        ...

    def commit(self) -> None:
        """The pass has run: its tokens count from now on."""
        ...


@dataclass(frozen=True, slots=True)
class _Scatter:
    """Where the N tokens of an uneven pass go: buffer[slots, :, places] = new[lines, :, columns]."""

    slots: torch.Tensor  # (N,) int64
    places: torch.Tensor  # (N,) int64
    lines: torch.Tensor  # (N,) int64
    columns: torch.Tensor  # (N,) int64


@dataclass(frozen=True, slots=True)
class _Pass:
    """The current pass, in batch order. total: positions that attention reads, new ones included."""

    slots: tuple[int, ...]
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    total: int
    scatter: _Scatter | None  # None: all rows start at the same position and get the same number of tokens
    gather: torch.Tensor | None  # (B,) int64: the slots, if they are not adjacent


NO_BLOCK = (0, 0)
NO_PASS = _Pass((), (), (), 0, None, None)


class SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """One layer for all slots. Sizes come from the first states; K and V may differ in size."""

    is_croppable = True
    is_sliding = False

    def __init__(self, owner: SlotCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.owner = owner
        self._block = NO_BLOCK  # first slot and number of slots of `_lines`
        self._lines: list[torch.Tensor] = []
        self._held: list[Zeros] = []  # whose tensors are the keys and the values

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        self._take([self._zeros(key_states), self._zeros(value_states)])  # (S, H, C, D), (S, H, C, D')
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store (B, H, T, D) new states; return (B, H, total, D) keys and values, views wherever possible."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        now = self.owner.now
        if now.scatter is None and now.gather is None:
            # The common pass. The views are kept for the next one: a step is two copies and four narrows.
            block = (now.slots[0], len(now.slots))
            if block != self._block:
                self._block = block
                self._lines = [buffer.narrow(0, *block) for buffer in self._buffers()]  # (B, H, C, D) each
            keys, values = self._lines
            keys.narrow(2, now.starts[0], now.counts[0]).copy_(key_states)
            values.narrow(2, now.starts[0], now.counts[0]).copy_(value_states)
            return keys.narrow(2, 0, now.total), values.narrow(2, 0, now.total)
        keys, values = self._buffers()
        return _put(keys, key_states, now), _put(values, value_states, now)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.get_seq_length() + query_length, 0

    def get_seq_length(self) -> int:
        # Only called in even passes; an uneven pass has its own mask and positions.
        return max(self.owner.now.starts, default=0)

    def get_max_length(self) -> int:
        return self.owner.max_positions

    def grow(self, written: Sequence[int]) -> None:
        """Move to buffers of the owner's current size. written: by slot, the positions that may be non-zero."""
        self._block = NO_BLOCK
        if self._held:
            self._take([_copy_written(buffer.tensor, self._zeros(buffer.tensor), written) for buffer in self._held])

    def copy_row(self, source: int, target: int, length: int) -> None:
        for buffer in self._buffers():
            buffer[target, :, :length].copy_(buffer[source, :, :length])  # (H, length, D)

    def clear(self, slot: int, start: int, end: int) -> None:
        for buffer in self._held:
            if start:
                buffer.tensor[slot, :, start:end].zero_()  # (H, end - start, D)
            else:
                buffer.clear(slot)

    def _buffers(self) -> tuple[torch.Tensor, ...]:
        return () if self.keys is None or self.values is None else (self.keys, self.values)

    def _take(self, held: list[Zeros]) -> None:
        self._held = held
        self.keys, self.values = (buffer.tensor for buffer in held)

    def _zeros(self, like: torch.Tensor) -> Zeros:
        shape = (self.owner.slots, like.shape[1], self.owner.capacity, like.shape[3])  # (S, H, C, D)
        return Zeros(shape, like.dtype, like.device)


class SlotCache(Cache):
    """Rows of different lengths in one preallocated cache. A `RowCaches`.

    layers: number of attention layers. max_rows: the most slots. device, dtype: those of positions and masks.
    """

    can_truncate = True

    def __init__(
        self, *, layers: int, max_rows: int, max_positions: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.max_rows = max_rows
        self.max_positions = max_positions
        self.slots = 1  # S
        self.capacity = min(FIRST_CAPACITY, max_positions)  # C
        self.now = NO_PASS
        self._device = device
        self._dtype = dtype
        self._slot_of: dict[int, int] = {}
        self._next_row = 0
        self._lengths: list[int] = [0]  # by slot: committed positions
        self._written: list[int] = [0]  # by slot: positions that may be non-zero
        self._positions = torch.arange(self.capacity, device=device)[None]  # (1, C) int64
        self._layers = [SlotLayer(self) for _ in range(layers)]
        super().__init__(layers=list(self._layers))
        # These properties walk over the layers upstream, in every pass; here they never change.
        self._all_false = [False] * layers

    @property
    def is_sliding(self) -> list[bool]:
        return self._all_false

    @property
    def is_linear(self) -> list[bool]:
        return self._all_false

    @property
    def is_dummy(self) -> list[bool]:
        return self._all_false

    @property
    def is_compileable(self) -> bool:
        return False

    def add(self) -> int:
        used = set(self._slot_of.values())
        slot = next((s for s in range(self.slots) if s not in used), self.slots)
        if slot == self.slots:
            if self.slots >= self.max_rows:
                raise LimitExceeded(f"all {self.max_rows} slots are in use", hint="free a sequence first")
            self._resize(min(self.slots * 2, self.max_rows), self.capacity)
        row = self._next_row
        self._next_row += 1
        self._slot_of[row] = slot
        return row

    def fork(self, row: int) -> int:
        length = self.length(row)
        new = self.add()
        self._copy(self._slot_of[row], self._slot_of[new], length)
        return new

    def truncate(self, row: int, length: int) -> None:
        slot = self._slot_of[row]
        self._lengths[slot] = length
        self._forget(slot, length)

    def remove(self, row: int) -> None:
        slot = self._slot_of.pop(row)
        self._lengths[slot] = 0
        self._forget(slot, 0)

    def length(self, row: int) -> int:
        return self._lengths[self._slot_of[row]]

    def begin(self, rows: Sequence[int], counts: Sequence[int]) -> PassLayout:
        order = (0,) if len(rows) == 1 else self._order(rows)
        slots = tuple(self._slot_of[rows[i]] for i in order)
        counts = tuple(counts[i] for i in order)
        starts = tuple(self._lengths[slot] for slot in slots)
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        total = max(ends)
        if total > self.capacity:
            self._resize(self.slots, self._room_for(total))
        for slot, end in zip(slots, ends, strict=True):
            self._written[slot] = max(self._written[slot], end)
        adjacent = slots[-1] - slots[0] == len(slots) - 1
        gather = None if adjacent else torch.tensor(slots, device=self._device)  # (B,) int64
        if len(set(starts)) == 1 and len(set(counts)) == 1:
            # Equal rows: transformers makes its own masks, and none at all for single tokens.
            self.now = _Pass(slots, starts, counts, total, None, gather)
            positions = self._positions[:, starts[0] : total]  # (1, T)
            return PassLayout(self, order, positions.expand(len(slots), -1), None)
        lengths = torch.tensor(starts)[:, None]  # (B, 1) int64
        width = max(counts)  # T
        padding = width - torch.tensor(counts)[:, None]  # (B, 1) int64
        offsets = torch.arange(width)[None] - padding  # (B, T) int64, negative in padding
        # Padding gets the position of the row's first new token, which is valid for every position table.
        places = lengths + offsets.clamp(min=0)  # (B, T)
        lines, columns = (offsets >= 0).nonzero(as_tuple=True)  # (N,), (N,)
        # Padding sees what its position sees, so no line of the mask is empty (softmax would give NaN). Like
        # transformers, it uses the smallest finite number instead of -inf.
        hidden = (torch.arange(total)[None, None] > places[:, :, None])[:, None]  # (B, 1, T, total) bool
        mask = torch.zeros(hidden.shape, dtype=self._dtype).masked_fill_(hidden, torch.finfo(self._dtype).min)
        self.now = _Pass(
            slots,
            starts,
            counts,
            total,
            _Scatter(
                slots=torch.tensor(slots)[lines].to(self._device),
                places=places[lines, columns].to(self._device),
                lines=lines.to(self._device),
                columns=columns.to(self._device),
            ),
            gather,
        )
        return PassLayout(self, order, places.to(self._device), mask.to(self._device))

    def commit(self) -> None:
        for slot, start, count in zip(self.now.slots, self.now.starts, self.now.counts, strict=True):
            self._lengths[slot] = start + count
        self.now = NO_PASS

    def _order(self, rows: Sequence[int]) -> tuple[int, ...]:
        """Rows by slot, so that adjacent slots can be read as one view."""
        slots = sorted(self._slot_of[row] for row in rows)
        if len(rows) == len(self._slot_of) and slots[-1] - slots[0] != len(slots) - 1:
            # All rows are in this batch, with free slots between them: compacting costs no more than gathering the
            # rows for this one pass.
            self._compact()
        return tuple(sorted(range(len(rows)), key=lambda i: self._slot_of[rows[i]]))

    def _compact(self) -> None:
        live = len(self._slot_of)
        used = set(self._slot_of.values())
        holes = iter(slot for slot in range(live) if slot not in used)
        for row, slot in self._slot_of.items():
            if slot >= live:
                hole = next(holes)
                self._copy(slot, hole, self._lengths[slot])
                self._lengths[slot] = 0
                self._forget(slot, 0)
                self._slot_of[row] = hole

    def _copy(self, source: int, target: int, length: int) -> None:
        with torch.inference_mode():
            for layer in self._layers:
                layer.copy_row(source, target, length)
        self._lengths[target] = length
        self._written[target] = max(self._written[target], length)

    def _forget(self, slot: int, length: int) -> None:
        if self._written[slot] > length:
            with torch.inference_mode():
                for layer in self._layers:
                    layer.clear(slot, length, self._written[slot])
            self._written[slot] = length

    def _room_for(self, total: int) -> int:
        room = self.capacity
        while room < total:
            room *= 2
        return min(room, self.max_positions)

    def _resize(self, slots: int, capacity: int) -> None:
        before = (self.slots, self.capacity)
        self.slots, self.capacity = slots, capacity
        try:
            with torch.inference_mode():
                for layer in self._layers:
                    layer.grow(self._written)
        except (RuntimeError, MemoryError):
            # Layers that have grown keep their larger buffers, which is harmless.
            self.slots, self.capacity = before
            raise
        self._lengths += [0] * (slots - len(self._lengths))
        self._written += [0] * (slots - len(self._written))
        self._positions = torch.arange(capacity, device=self._device)[None]  # (1, C) int64


class NativeCaches:
    """One of transformers' own caches per row, for models whose state is not keys and values of every position: sliding
    windows, recurrent layers. Nothing can be truncated, and rows run one at a time. A `RowCaches`."""

    can_truncate = False

    def __init__(self, *, config: PreTrainedConfig, max_rows: int, device: torch.device) -> None:
        self._config = config
        self._max_rows = max_rows
        self._device = device
        self._caches: dict[int, Cache] = {}
        self._lengths: dict[int, int] = {}
        self._next_row = 0
        self._now = (0, 0)  # row, count

    def add(self) -> int:
        self._check_room()
        return self._store(DynamicCache(config=self._config), 0)

    def fork(self, row: int) -> int:
        self._check_room()
        with torch.inference_mode():
            return self._store(copy.deepcopy(self._caches[row]), self._lengths[row])

    def truncate(self, row: int, length: int) -> None:
        if length == self._lengths[row]:
            return
        raise CapabilityError(
            "this model's cache cannot be truncated", hint="it has a sliding window or recurrent layers"
        )

    def remove(self, row: int) -> None:
        del self._caches[row], self._lengths[row]

    def length(self, row: int) -> int:
        return self._lengths[row]

    def begin(self, rows: Sequence[int], counts: Sequence[int]) -> PassLayout:
        if len(rows) != 1:
            raise ValueError("rows with their own caches run one at a time")
        start = self._lengths[rows[0]]
        self._now = (rows[0], counts[0])
        positions = torch.arange(start, start + counts[0], device=self._device)[None]  # (1, T) int64
        return PassLayout(self._caches[rows[0]], (0,), positions, None)

    def commit(self) -> None:
        row, count = self._now
        self._lengths[row] += count

    def _check_room(self) -> None:
        if len(self._caches) >= self._max_rows:
            raise LimitExceeded(f"all {self._max_rows} slots are in use", hint="free a sequence first")

    def _store(self, cache: Cache, length: int) -> int:
        row = self._next_row
        self._next_row += 1
        self._caches[row], self._lengths[row] = cache, length
        return row


def _put(buffer: torch.Tensor, new: torch.Tensor, now: _Pass) -> torch.Tensor:
    """For uneven passes and slots that are not adjacent: write (B, H, T, D) into (S, H, C, D); return (B, H, total, D)
    of the same rows."""
    if now.scatter is not None:
        at = now.scatter
        # Two index tensors with a slice between them: both sides are (N, H, D).
        buffer[at.slots, :, at.places] = new[at.lines, :, at.columns]
    else:
        buffer[now.gather, :, now.starts[0] : now.total] = new
    if now.gather is not None:
        return buffer.narrow(2, 0, now.total).index_select(0, now.gather)
    return buffer.narrow(0, now.slots[0], len(now.slots)).narrow(2, 0, now.total)


def _copy_written(old: torch.Tensor, new: Zeros, written: Sequence[int]) -> Zeros:
    """Copy what is written of one buffer into another that is at least as large."""
    for slot, length in enumerate(written):
        if length:
            new.tensor[slot, :, :length].copy_(old[slot, :, :length])
    return new
