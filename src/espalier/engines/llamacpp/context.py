"""Makes a llama_context from EngineOptions: context size, threads, KV cache type and LoRA adapters, checked beforehand.

It knows no sequences and no tokens.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from pathlib import Path
from typing import Any

from espalier.engines.llamacpp.library import misfit, reasons
from espalier.engines.llamacpp.weights import LlamaFile, is_out_of_memory, load_lora
from espalier.engines.options import KV_TYPES, EngineOptions
from espalier.engines.scheduling.room import with_spare
from espalier.errors import GenerationError, InputError, LimitExceeded

CONTEXT = 4096  # default positions of one sequence: a trained context of 128 Ki would fill the memory
SEQUENCES = 64  # default
STATES = 8  # default sequences of a recurrent model: each holds its whole state, used or not
SMALL = 20_000_000  # parameters below which one thread is fastest
SHARES = 4  # sequences of full length that a shared KV cache holds by default, and the fewest with one each
OWN_PART = 8  # caches of their own, unless asked for, take one part of so many of the free memory at most
OWN_BYTES = 2**26  # and so many bytes each: a fork copies the whole cache of its sequence, in some 10 ms
BATCH = 2048
CELL = 48  # bytes of bookkeeping for each cell of the KV cache, on the CPU
PADDING = 256  # llama.cpp rounds the size of a KV cache up to a multiple of this
MOST = 2**31 - PADDING  # positions are int32
# enum ggml_type, and bytes per value: a block of 32 values also has a float16 scale (and minimum).
_TYPES = ((0, 4.0), (1, 2.0), (30, 2.0), (8, 34 / 32), (7, 24 / 32), (6, 22 / 32), (3, 20 / 32), (2, 18 / 32))
KV = dict(zip(KV_TYPES, _TYPES, strict=True))
QUANTISED = tuple(name for name in KV if name.startswith("q"))
THREADS_EACH = 4  # the most threads per CPU: they spin while they wait for each other
FEW = 16  # threads that any machine may use
FLASH = {"auto": -1, "off": 0, "on": 1}  # enum llama_flash_attn_type
SMALLER = "a smaller context or kv_size, or kv_type q8_0"


class LlamaContext:
    """A llama_context and the adapters on it, freed with its last user: the model, or logits that somebody kept.

    It refers to nothing that refers to it, so it is freed as soon as nobody uses it, and before its file.
    """

    def __init__(self, lib: Any, file: LlamaFile, params: Any, options: EngineOptions) -> None:
        self._made = owned = list[tuple[Any, Any]]()  # (how to free, what), in the order made
        weakref.finalize(self, _free_all, owned, file)
        adapters = []
        for lora in options.lora:
            adapters.append(load_lora(file, lora))
            owned.append((lib.llama_adapter_lora_free, adapters[-1]))
        with reasons() as logged:
            self.ctx: Any = lib.llama_init_from_model(file.handle, params)
        if not self.ctx:
            raise _context_error(logged.first())
        owned.append((lib.llama_free, self.ctx))
        if adapters:
            handles = (lib.llama_adapter_lora_p_ctypes * len(adapters))(*adapters)
            scales = (ctypes.c_float * len(adapters))(*(lora.scale for lora in options.lora))
            if lib.llama_set_adapters_lora(self.ctx, handles, len(adapters), scales):
                raise InputError("the LoRA adapters cannot be applied together", field="lora")

    @property
    def is_freed(self) -> bool:
        """Whether the process ends, which frees it: a stream that nobody closed gives its sequences back after that."""
        return not self._made


def _free_all(owned: list[tuple[Any, Any]], _file: LlamaFile) -> None:
    """Free in reverse order; `_file` is an argument so that it outlives them."""
    while owned:
        free, what = owned.pop()
        free(what)


def context_params(lib: Any, file: LlamaFile, options: EngineOptions) -> tuple[int, Any]:
    """Positions of one sequence, and llama_context_params. Raises InputError for options that do not go together."""
    context = options.context or min(CONTEXT, file.trained_context)
    if context > file.trained_context:
        raise InputError(
            f"a context of {context} is longer than the {file.trained_context} tokens this model was trained for",
            hint=f"at most {file.trained_context}",
            field="context",
        )
    unified = is_unified(lib, file, options, context)
    sequences = _sequences(lib, file, options, context, unified=unified)
    size = _size(context, sequences, options, unified=unified)
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
    params.n_ctx = size
    params.n_seq_max, params.kv_unified = sequences, unified
    # Fewer than `sequences` would end the process (GGML_ASSERT on n_outputs_max); a batch may still be smaller.
    params.n_batch = min(max(options.batch_size or BATCH, sequences), params.n_ctx)
    params.type_k = params.type_v = number
    params.flash_attn_type = FLASH[flash]
    params.n_threads = params.n_threads_batch = threads
    params.no_perf = True
    return context, params


def is_unified(lib: Any, file: LlamaFile, options: EngineOptions, context: int) -> bool:
    """Whether all sequences share one KV cache. Unless the options say so, each has its own where a pass over many is
    faster for it, and where nothing is lost: in main memory, of which a small part is enough for a whole `context` of
    each sequence, and where forks copy little."""
    if options.kv_unified is not None:
        return options.kv_unified
    sequences = options.sequences or SEQUENCES
    if options.kv_size is not None and options.kv_size < sequences * context:
        return True
    return not _has_room_for_own(lib, file, options, context, sequences)


def _has_room_for_own(lib: Any, file: LlamaFile, options: EngineOptions, context: int, sequences: int) -> bool:
    """Whether so many caches of a whole context are a small part of the free memory."""
    cells = -(-context // PADDING) * PADDING
    each = file.cache_bytes(cells, KV[options.kv_type or "f16"][1])
    if not each or lib.llama_supports_gpu_offload():  # a size that is not known, or memory that is not known
        return False
    free = _free_memory()
    return free is not None and each <= OWN_BYTES and sequences * (each + cells * CELL) * OWN_PART <= free


def _sequences(lib: Any, file: LlamaFile, options: EngineOptions, context: int, *, unified: bool) -> int:
    """Sequences at once: an eighth more than a run may have, where they take nothing from the others."""
    most = int(lib.llama_max_parallel_sequences())
    default = STATES if file.is_recurrent else SEQUENCES
    if not unified and (options.kv_size or not _has_room_for_own(lib, file, options, context, SEQUENCES)):
        default = SHARES
    sequences = options.sequences or min(most, default)
    if sequences > most:
        raise InputError(f"llama.cpp runs at most {most} sequences at once, not {sequences}", field="sequences")
    is_ours = options.kv_unified is None and options.kv_size is None  # the choice of caches of their own
    return min(most, with_spare(sequences)) if (unified or is_ours) and not file.is_recurrent else sequences


def _size(context: int, sequences: int, options: EngineOptions, *, unified: bool) -> int:
    """Tokens of the KV cache. llama.cpp rounds them up: those of the whole cache, or of each sequence."""
    parts = 1 if unified else sequences
    size = options.kv_size or min(context * (min(SHARES, sequences) if parts == 1 else parts), MOST)
    if size > MOST:
        raise InputError(f"kv_size is at most {MOST}, not {size}", hint="leave it out for the default", field="kv_size")
    each = size // parts
    if options.context and each < context:
        whose = "one sequence" if parts == 1 else f"{parts} sequences"
        raise InputError(
            f"a kv_size of {size} cannot hold {whose} of {context}",
            hint=None if parts == 1 else f"kv_size {context * parts}, fewer sequences, or one cache for all of them",
            field="kv_size",
        )
    if not each:
        raise InputError(f"a kv_size of {size} has no token for each of {parts} sequences", field="kv_size")
    return -(-each // PADDING) * PADDING * parts


def _check_threads(threads: int) -> None:
    """Raises InputError for so many threads that the machine would mostly switch between them."""
    cpus = os.cpu_count() or 1
    most = max(FEW, THREADS_EACH * cpus)
    if threads > most:
        raise InputError(
            f"{threads} threads are too many for {cpus} CPUs",
            hint=f"at most {most}; leave it out for one each core",
            field="threads",
        )


def default_threads(parameters: int) -> int:
    """Threads for a model with that many parameters: one per core that this process may use. A small model is fastest
    on one thread, as several would wait for each other longer than they compute."""
    if parameters < SMALL or not hasattr(os, "sched_getaffinity"):
        return 1 if parameters < SMALL else max(1, (os.cpu_count() or 2) // 2)
    places = os.sched_getaffinity(0)
    # Two hardware threads of a core share its arithmetic units, so they count once.
    siblings = {_read(f"/sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list") or str(n) for n in places}
    return len(siblings)


def _read(path: str) -> str:
    """A small system file, empty if it does not exist."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""


def _check_memory(needed: int, tokens: int, lib: Any) -> None:
    """Raises LimitExceeded for more memory than is free: Linux would grant it, and kill the process on use."""
    if lib.llama_supports_gpu_offload():  # the cache may be on the GPU, where allocating too much fails by itself
        return
    free = _free_memory()
    if free is not None and needed > free:
        raise LimitExceeded(
            f"a KV cache of {tokens} tokens takes {needed / 2**30:.1f} GiB; {free / 2**30:.1f} GiB are free",
            hint=SMALLER,
            field="kv_size",
        )


def _free_memory() -> int | None:
    """Bytes available without swapping, None if the system does not tell."""
    line = next((s for s in _read("/proc/meminfo").splitlines() if s.startswith("MemAvailable:")), None)
    return int(line.split()[1]) * 1024 if line else None


def check_made(lib: Any, ctx: Any, params: Any) -> None:
    """Check that the context has the requested sizes: it has not if a field of the struct has moved."""
    sizes = {
        "n_ctx": (lib.llama_n_ctx(ctx), params.n_ctx),
        "n_ctx_seq": (lib.llama_n_ctx_seq(ctx), params.n_ctx // (1 if params.kv_unified else params.n_seq_max)),
        "n_seq_max": (lib.llama_n_seq_max(ctx), params.n_seq_max),
        "n_batch": (lib.llama_n_batch(ctx), params.n_batch),
    }
    wrong = [f"{name} is {got} where {wanted} was asked for" for name, (got, wanted) in sizes.items() if got != wanted]
    if wrong:
        raise misfit(", ".join(wrong))


def _context_error(reason: str) -> GenerationError | InputError:
    message = f"llama.cpp cannot set up this model: {reason}"
    if is_out_of_memory(reason):
        return LimitExceeded(message, hint=SMALLER, field="kv_size")
    return InputError(message, field="kv_type" if "cache type" in reason else "model")
