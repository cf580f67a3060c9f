"""A GGUF model as a StepModel over `llama_decode`: many sequences in one unified KV cache.

It turns token ids into logits. It knows no vocabulary, no constraints and no sampling.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from espalier.decoding.ports import Extend, Rows, SequenceId
from espalier.engines.llamacpp.library import address_of, library, misfit, reasons
from espalier.engines.llamacpp.weights import LlamaFile, is_out_of_memory, load_lora
from espalier.engines.options import KV_TYPES, EngineOptions
from espalier.errors import CapabilityError, GenerationError, InputError, LimitExceeded

__all__ = ["LlamaFile", "LlamaStepModel"]

CONTEXT = 4096  # positions of one sequence, where nothing is said: a trained context of 128 Ki would fill the memory
SEQUENCES = 64
STATES = 8  # sequences of a recurrent model: each has its whole state, used or not
SMALL = 20_000_000  # parameters below which one thread is fastest
SHARES = 4  # full sequences that the KV cache holds by default
BATCH = 2048
CELL = 48  # bytes that llama.cpp keeps about each place in the cache, on the CPU
PADDING = 256  # llama.cpp makes a KV cache of a multiple of this
MOST = 2**31 - PADDING  # positions are int32
# enum ggml_type, and bytes per value: a block of 32 has its scale (and minimum) as float16 beside it.
_TYPES = (
    (0, 4.0), (1, 2.0), (30, 2.0), (8, 34 / 32), (7, 24 / 32), (6, 22 / 32), (3, 20 / 32), (2, 18 / 32),
)  # fmt: skip
KV = dict(zip(KV_TYPES, _TYPES, strict=True))
QUANTISED = tuple(name for name in KV if name.startswith("q"))
THREADS_EACH = 4  # threads that one CPU can be asked for: they wait for one another by spinning
FEW = 16  # threads that any machine can be asked for
FLASH = {"auto": -1, "off": 0, "on": 1}  # enum llama_flash_attn_type
NO_SLOT, ABORTED, INVALID = 1, 2, -1  # what llama_decode returns; below -1 is fatal
SMALLER = "a smaller context or kv_size, or kv_type q8_0"


class LlamaStepModel:
    """A StepModel over one context. Raises InputError, LimitExceeded (out of memory), CapabilityError."""

    def __init__(self, file: LlamaFile, options: EngineOptions) -> None:
        lib = library()
        self._lib, self._file = lib, file
        context, params = _context_params(lib, file, options)
        self._context = held = _Context(lib, file, params, options)
        self._ctx: Any = held.ctx
        _check_made(lib, self._ctx, params)
        self._memory: Any = lib.llama_get_memory(self._ctx)
        self._sequences: int = params.n_seq_max
        self._capacity = int(lib.llama_n_ctx(self._ctx))
        self._max_positions = min(context, self._capacity)
        self._width = int(lib.llama_vocab_n_tokens(file.vocab))
        self._free_slots = list(range(self._sequences))[::-1]
        self._slots: dict[SequenceId, int] = {}
        self._lengths: dict[SequenceId, int] = {}
        self._broken: set[SequenceId] = set()  # could not be brought back after a failure
        self._next = 0
        self._nothing = np.empty((0, self._width), dtype=np.float32)  # (0, V)
        self._last: tuple[int, int, Rows] = (0, 0, self._nothing)  # address, rows and view of the last logits
        self._logits_address = address_of("llama_get_logits", of=lib.llama_context_p_ctypes)
        self._make_batch(lib, min(options.batch_size or BATCH, params.n_batch))
        self._can_truncate = not file.is_recurrent and self._cuts()

    def _make_batch(self, lib: Any, size: int) -> None:
        """llama_batch over arrays of our own, all (size,): filled without a loop."""
        self._batch_size = size
        self._tokens = np.zeros(size, dtype=np.int32)
        self._positions = np.zeros(size, dtype=np.int32)
        self._slot_of = np.zeros(size, dtype=np.int32)
        self._wanted = np.zeros(size, dtype=np.int8)
        self._ones = np.ones(size, dtype=np.int32)
        # seq_id is an array of pointers, one to each entry of _slot_of, and a null at the end.
        self._pointers = np.zeros(size + 1, dtype=np.uintp)
        self._pointers[:size] = self._slot_of.ctypes.data + 4 * np.arange(size, dtype=np.uintp)
        batch = lib.llama_batch()
        for name, array in (
            ("token", self._tokens), ("pos", self._positions), ("n_seq_id", self._ones), ("seq_id", self._pointers),
            ("logits", self._wanted),
        ):  # fmt: skip
            pointer = type(getattr(batch, name))
            setattr(batch, name, ctypes.cast(array.ctypes.data, pointer))
        self._batch = batch

    def _cuts(self) -> bool:
        """Whether the memory of this model can forget the end of a sequence: tried on two tokens, which also is the
        first pass, so that what fails in every pass fails here."""
        sequence = self.new()
        try:
            self.extend([Extend(sequence=sequence, tokens=(0, 0), logits="none")])
            return bool(self._lib.llama_memory_seq_rm(self._memory, self._slots[sequence], 1, -1))
        finally:
            self.free(sequence)

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
        # A recurrent state is as long as it is, whatever it has read.
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
        self._slots[sequence] = self._free_slots.pop()
        self._lengths[sequence] = 0
        return sequence

    def length(self, sequence: SequenceId) -> int:
        return self._lengths[sequence]

    def fork(self, sequence: SequenceId) -> SequenceId:
        self._check_whole(sequence)
        length, source = self._lengths[sequence], self._slots[sequence]
        made = self.new()
        if length:
            self._lib.llama_memory_seq_cp(self._memory, source, self._slots[made], -1, -1)
        self._lengths[made] = length
        return made

    def truncate(self, sequence: SequenceId, length: int) -> None:
        held = self._lengths[sequence]
        if not 0 <= length <= held:
            raise ValueError(f"cannot truncate {held} tokens to {length}")
        self._check_whole(sequence)
        if not self._can_truncate:
            raise CapabilityError(f"{self._file.path.name}: the memory of this model cannot be cut")
        if length == held:
            return
        if not self._lib.llama_memory_seq_rm(self._memory, self._slots[sequence], length, -1):
            raise CapabilityError(f"{self._file.path.name}: the memory of this model cannot be cut to {length}")
        self._lengths[sequence] = length

    def free(self, sequence: SequenceId) -> None:
        slot = self._slots.pop(sequence)
        del self._lengths[sequence]
        self._broken.discard(sequence)
        # A whole sequence can always be removed; were it not, its slot must not be used again.
        if self._lib.llama_memory_seq_rm(self._memory, slot, -1, -1):
            self._free_slots.append(slot)

    def extend(self, work: Sequence[Extend]) -> list[Rows]:
        total, most_rows = self._check(work)
        if not total:
            return []
        # More rows than sequences would make llama.cpp move its buffer, under the views that were given out before.
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

    def _check(self, work: Sequence[Extend]) -> tuple[int, int]:
        """How many tokens there are, and how many rows at most are wanted. Raises for what llama.cpp must not see,
        before anything has changed."""
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
        """Put tokens start..stop of an item at place `at` of the batch. Returns how many rows they will give."""
        tokens, n = item.tokens, stop - start
        position = self._lengths[item.sequence] + start
        ends = stop == len(tokens)
        if n == 1:  # the common case, four times as fast
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
        """More than one batch, of tokens or of rows: several passes, the rows of each copied. Returns all rows (n, V),
        and each item's."""
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
        """One pass over the first `count` places. If it fails, all of `work` is as it was before."""
        self._batch.n_tokens = count
        code = self._lib.llama_decode(self._ctx, self._batch)
        if code:
            self._undo(work)
            raise _decode_error(code, self._capacity)

    def _undo(self, work: Sequence[Extend]) -> None:
        """Cut what passes before the failed one, and parts of it, have added."""
        lib = self._lib
        for item in work:
            slot, length = self._slots[item.sequence], self._lengths[item.sequence]
            if lib.llama_memory_seq_pos_max(self._memory, slot) < length:
                continue
            if not lib.llama_memory_seq_rm(self._memory, slot, length or -1, -1):
                self._broken.add(item.sequence)

    def _view(self, count: int) -> Rows:
        """The logits of the last pass where llama.cpp has them, (count, V), not copied: valid until the next pass. The
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


class _Context:
    """A llama_context and the adapters on it, freed with its last user: the model that steps, or logits that are kept.

    It refers to nothing that refers to it, so that it is freed as soon as nobody has it, and before its file.
    """

    def __init__(self, lib: Any, file: LlamaFile, params: Any, options: EngineOptions) -> None:
        made: list[tuple[Any, Any]] = []  # (how to free, what), in the order made
        weakref.finalize(self, _free_all, made, file)
        adapters = []
        for lora in options.lora:
            adapters.append(load_lora(file, lora))
            made.append((lib.llama_adapter_lora_free, adapters[-1]))
        with reasons() as said:
            self.ctx: Any = lib.llama_init_from_model(file.handle, params)
        if not self.ctx:
            raise _context_error(said.first())
        made.append((lib.llama_free, self.ctx))
        if adapters:
            handles = (lib.llama_adapter_lora_p_ctypes * len(adapters))(*adapters)
            scales = (ctypes.c_float * len(adapters))(*(lora.scale for lora in options.lora))
            if lib.llama_set_adapters_lora(self.ctx, handles, len(adapters), scales):
                raise InputError("the LoRA adapters cannot be applied together", field="lora")


def _free_all(made: list[tuple[Any, Any]], _file: LlamaFile) -> None:
    """The last made first; the file is given so that it outlives them."""
    while made:
        free, what = made.pop()
        free(what)


def _context_params(lib: Any, file: LlamaFile, options: EngineOptions) -> tuple[int, Any]:
    """Positions of one sequence, and llama_context_params. Raises InputError for what cannot be had together."""
    context = options.context or min(CONTEXT, file.trained_context)
    if context > file.trained_context:
        raise InputError(
            f"a context of {context} is longer than the {file.trained_context} tokens this model was trained for",
            hint=f"at most {file.trained_context}",
            field="context",
        )
    most = int(lib.llama_max_parallel_sequences())
    sequences = options.sequences or min(most, STATES if file.is_recurrent else SEQUENCES)
    if sequences > most:
        raise InputError(f"llama.cpp runs at most {most} sequences at once, not {sequences}", field="sequences")
    size = options.kv_size or min(context * min(SHARES, sequences), MOST)
    if size > MOST:
        raise InputError(f"kv_size is at most {MOST}, not {size}", hint="leave it out for the default", field="kv_size")
    if options.context and size < context:
        raise InputError(f"a kv_size of {size} cannot hold one sequence of {context}", field="kv_size")
    threads = options.threads or default_threads(int(lib.llama_model_n_params(file.handle)))
    _check_threads(threads)
    kv, flash = options.kv_type or "f16", options.flash_attention or "auto"
    if kv in QUANTISED and flash == "off":
        raise InputError(
            f"a KV cache of {kv} needs flash attention",
            hint="flash_attention auto or on, or kv_type f16",
            field="kv_type",
        )
    number, width = KV[kv]
    _check_memory(file.cache_bytes(size, width) + size * CELL, size, lib)
    params = lib.llama_context_default_params()
    params.n_ctx = -(-size // PADDING) * PADDING
    params.n_seq_max, params.kv_unified = sequences, True
    # Fewer than sequences end the process (GGML_ASSERT on n_outputs_max): what is sent at once may still be less.
    params.n_batch = min(max(options.batch_size or BATCH, sequences), params.n_ctx)
    params.type_k = params.type_v = number
    params.flash_attn_type = FLASH[flash]
    params.n_threads = params.n_threads_batch = threads
    params.no_perf = True
    return context, params


def _check_threads(threads: int) -> None:
    """Raises InputError for so many that the machine would do little else than switch between them."""
    cpus = os.cpu_count() or 1
    most = max(FEW, THREADS_EACH * cpus)
    if threads > most:
        raise InputError(
            f"{threads} threads are too many for {cpus} CPUs",
            hint=f"at most {most}; leave it out for one each core",
            field="threads",
        )


def default_threads(parameters: int) -> int:
    """For a model of that size: one for each core that this process may use. A small one is fastest on one thread, as
    its threads would wait for one another longer than they work."""
    if parameters < SMALL or not hasattr(os, "sched_getaffinity"):
        return 1 if parameters < SMALL else max(1, (os.cpu_count() or 2) // 2)
    places = os.sched_getaffinity(0)
    # Two hardware threads of a core share what the forward pass needs most: they count once.
    siblings = {_read(f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list") or str(n) for n in places}
    return len(siblings)


def _read(path: str) -> str:
    """A small file of the system, empty where it is not there."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""


def _check_memory(needed: int, tokens: int, lib: Any) -> None:
    """Linux grants more memory than there is and kills who uses it: what cannot be had is refused before."""
    if lib.llama_supports_gpu_offload():  # then it may lie there, where asking for too much fails by itself
        return
    free = _free_memory()
    if free is not None and needed > free:
        raise LimitExceeded(
            f"a KV cache of {tokens} tokens takes {needed / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free",
            hint=SMALLER,
            field="kv_size",
        )


def _free_memory() -> int | None:
    """Bytes that can be had without swapping, None where the system does not tell."""
    found = next((s for s in _read("/proc/meminfo").splitlines() if s.startswith("MemAvailable:")), None)
    return int(found.split()[1]) * 1024 if found else None


def _check_made(lib: Any, ctx: Any, params: Any) -> None:
    """Whether the context is what was asked for: if a field of the struct has moved, it is not."""
    made = {
        "n_ctx": (lib.llama_n_ctx(ctx), params.n_ctx),
        "n_ctx_seq": (lib.llama_n_ctx_seq(ctx), params.n_ctx),
        "n_seq_max": (lib.llama_n_seq_max(ctx), params.n_seq_max),
        "n_batch": (lib.llama_n_batch(ctx), params.n_batch),
    }
    wrong = [f"{name} is {got} where {asked} was asked for" for name, (got, asked) in made.items() if got != asked]
    if wrong:
        raise misfit(", ".join(wrong))


def _context_error(reason: str) -> GenerationError | InputError:
    message = f"llama.cpp cannot set up this model: {reason}"
    if is_out_of_memory(reason):
        return LimitExceeded(message, hint=SMALLER, field="kv_size")
    return InputError(message, field="kv_type" if "cache type" in reason else "model")


def _decode_error(code: int, capacity: int) -> GenerationError:
    if code == NO_SLOT:
        return LimitExceeded(
            f"all sequences together would outgrow the {capacity} tokens of the KV cache",
            hint="fewer at once, or a larger kv_size",
        )
    said = {ABORTED: "the pass was aborted", INVALID: "llama.cpp refused the batch"}
    return GenerationError(f"{said.get(code, 'the pass failed')} (llama_decode returned {code})")
