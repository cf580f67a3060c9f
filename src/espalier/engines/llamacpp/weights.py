"""Loads a GGUF model and its LoRA adapters through llama.cpp: device placement, and why a file cannot be loaded.

It knows files and devices; it knows no context, no sequences and no text.
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import weakref
from pathlib import Path
from typing import Any

from espalier.distribution import rebuild_line
from espalier.engines.gguf.checks import check_generates, check_tensors, check_vocabulary
from espalier.engines.gguf.header import DAMAGED, Header, read_header
from espalier.engines.llamacpp.library import library, reasons, version
from espalier.engines.llamacpp.trial import try_header
from espalier.engines.options import INT32, EngineOptions, Lora
from espalier.errors import CapabilityError, InputError, LimitExceeded

_SPLIT = re.compile(r"^(.*)-(\d{5})-of-(\d{5})\.gguf$")
_DEVICE = re.compile(r"^(cuda|gpu)(?::([0-9]+))?$|^(mps|metal|vulkan)$")
OF_WEIGHTS = ("device", "gpu_layers")  # options that say where the weights are
SPLIT_MODE_NONE = 0  # of enum llama_split_mode: all on one device
OUT_OF_MEMORY = (
    "failed to allocate",
    "unable to allocate",
    "failed to reserve",
    "insufficient memory",
    "out of memory",
    "bad_alloc",
)
DAMAGE = ("not within the file bounds", "corrupted", "is duplicated", "has offset", "failed to read")


class LlamaFile:
    """A GGUF file in memory: weights and vocabulary, or the vocabulary alone. Freed with its last user.

    loaded: the `llama_cpp.Llama` that has the file in memory already. It stays the owner, and is kept alive.
    cache: the folder that remembers which headers llama.cpp has read in a worker process before.

    Raises UnknownModel (no such file), InputError (no usable model), CapabilityError (not a text model, or an
    architecture that this llama.cpp does not know), LimitExceeded (memory).
    """

    def __init__(
        self,
        path: Path,
        options: EngineOptions,
        *,
        vocab_only: bool = False,
        loaded: Any | None = None,
        cache: Path | None = None,
    ) -> None:
        lib = library()
        self.path = path
        self.header: Header = read_header(path)
        _check_parts(path, self.header)
        check_vocabulary(self.header, path.name)
        if not vocab_only:
            check_generates(self.header, path.name)
        self.header.forget_lists()
        if loaded is None:
            try_header(path, self.header, cache=cache)
        self._loaded, self.cache = loaded, cache
        self.handle: Any = self._read(lib, options, vocab_only) if loaded is None else loaded.model
        handle = self.handle
        self.vocab: Any = lib.llama_model_get_vocab(handle)
        self.trained_context = int(lib.llama_model_n_ctx_train(handle))
        if not vocab_only:
            self._check_loaded(lib)

    def _read(self, lib: Any, options: EngineOptions, vocab_only: bool) -> Any:
        """The handle of the file's model, which is freed with this object."""
        params = lib.llama_model_default_params()
        params.vocab_only = vocab_only
        _assign_layers(lib, params, options)
        with reasons() as logged:
            handle = lib.llama_model_load_from_file(os.fsencode(self.path), params)
        if not handle:
            raise _load_error(self.path.name, logged.first())
        self._freed = weakref.finalize(self, lib.llama_model_free, handle)
        return handle

    def _check_loaded(self, lib: Any) -> None:
        path, handle = self.path, self.handle
        # Encoders and encoder-decoders need llama_encode first; diffusion models need many passes.
        if lib.llama_model_has_encoder(handle) or not lib.llama_model_has_decoder(handle):
            raise CapabilityError(f"{path.name} ({self.header.architecture}) has an encoder", field="model")
        if lib.llama_model_is_diffusion(handle):
            raise CapabilityError(f"{path.name} is a diffusion model: it has no next token", field="model")
        if self.trained_context < 1:
            raise InputError(f"{path.name} is damaged: it has no context length", field="model")

    @property
    def is_recurrent(self) -> bool:
        """Whether some layers keep a state instead of every position: such a memory cannot be truncated."""
        lib = library()
        return bool(lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle))

    def meta(self, key: str) -> str | None:
        """One value of the file's metadata as text, None if it is missing."""
        lib = library()
        count = lib.llama_model_meta_val_str(self.handle, key.encode(), None, 0)
        if count < 0:
            return None
        buffer = ctypes.create_string_buffer(count + 1)
        lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, count + 1)
        return buffer.value.decode("utf-8", "replace")

    def cache_bytes(self, tokens: int, bytes_per_value: float) -> int:
        """Bytes of a KV cache for that many tokens; 0 if the file does not give the sizes as single numbers."""
        own = self.header.own
        layers, heads, kv_heads = own("block_count"), own("attention.head_count"), own("attention.head_count_kv")
        hidden = own("embedding_length")
        if self.is_recurrent or not all(isinstance(n, int) and n > 0 for n in (layers, heads, hidden)):
            return 0
        # Without head_count_kv there are as many KV heads as heads; a list has a number for each layer.
        kv_heads = heads if kv_heads is None else kv_heads
        if f"{self.header.architecture}.attention.head_count_kv" in self.header.arrays or not isinstance(kv_heads, int):
            return 0
        head = int(hidden or 0) // int(heads or 1)
        wide = sum(int(own(key) or head) for key in ("attention.key_length", "attention.value_length"))
        return int(tokens * int(layers or 0) * kv_heads * wide * bytes_per_value)


def load_lora(file: LlamaFile, lora: Lora) -> Any:
    """The adapter's handle, to be freed after every context that uses it and before the model. Raises UnknownModel,
    InputError (not an adapter, or one for another model), CapabilityError."""
    path = Path(lora.path).expanduser()
    if not math.isfinite(lora.scale):
        raise InputError(f"the scale of {path.name} is {lora.scale}", field="lora")
    header = read_header(path, what="lora")
    if header.values.get("general.type") == "model" or header.own("block_count") is not None:
        raise InputError(
            f"{path.name} is a model, not a LoRA adapter",
            hint="it is given as the model; an adapter is a file of its own, made for a model",
            field="lora",
        )
    # llama.cpp ends the process (GGML_ASSERT in gguf_get_val_str) if one of these is not text.
    for key in ("general.type", "general.architecture", "adapter.type"):
        if not isinstance(header.values.get(key), str):
            raise InputError(f"{path.name} is not a LoRA adapter: it has no {key}", field="lora")
    if not isinstance(header.values.get("adapter.lora.alpha", 0.0), float):
        raise InputError(f"{path.name} is damaged: adapter.lora.alpha is not a float", hint=DAMAGED, field="lora")
    check_tensors(header, path.name, what="lora")
    try_header(path, header, cache=file.cache, what="lora")
    lib = library()
    with reasons() as logged:
        handle = lib.llama_adapter_lora_init(file.handle, os.fsencode(path))
    if not handle:
        if any(sign in logged.first() for sign in DAMAGE):
            raise InputError(f"{path.name} cannot be loaded: {logged.first()}", hint=DAMAGED, field="lora")
        raise InputError(
            f"the adapter {path.name} does not fit {file.path.name}: {logged.first()}",
            hint="an adapter works with the model that it was trained on",
            field="lora",
        )
    if lib.llama_adapter_get_alora_n_invocation_tokens(handle):
        lib.llama_adapter_lora_free(handle)
        raise CapabilityError(f"{path.name} is an aLoRA, which would apply to a part of the text only", field="lora")
    return handle


def is_out_of_memory(reason: str) -> bool:
    """Whether a line of the log reports that memory ran out."""
    return any(sign in reason.lower() for sign in OUT_OF_MEMORY)


def _assign_layers(lib: Any, params: Any, options: EngineOptions) -> None:
    """Assign layers to devices. Raises InputError for a GPU that this build of llama.cpp cannot use."""
    device, layers = options.device, options.gpu_layers
    found = _DEVICE.match(device) if device else None
    if device not in (None, "cpu") and not found:
        raise InputError(f"unknown device {device!r}", hint="cpu, cuda, cuda:1, mps", field="device")
    if found and found[2] and int(found[2]) > INT32:
        raise InputError(f"the number of {device} is at most {INT32}", hint="cuda:0 is the first", field="device")
    if device == "cpu" and layers:
        raise InputError(f"gpu_layers is {layers}, and the device is the CPU", field="gpu_layers")
    if (found or layers) and not lib.llama_supports_gpu_offload():
        kind = InputError if found else CapabilityError
        raise kind(
            "this build of llama.cpp has no GPU",
            hint=rebuild_line("llama-cpp-python", version(), environ='CMAKE_ARGS="-DGGML_CUDA=on"'),
            field="device" if found else "gpu_layers",
        )
    params.n_gpu_layers = -1 if layers is None else layers
    if device == "cpu":
        # No device at all: even with no layers on it, a GPU would still get large batches and the cache.
        params.n_gpu_layers, params.split_mode, params.main_gpu = 0, SPLIT_MODE_NONE, -1
    elif found and found[2] is not None:
        params.split_mode, params.main_gpu = SPLIT_MODE_NONE, int(found[2])


def _check_parts(path: Path, header: Header) -> None:
    """A model in several files is opened by the first, and llama.cpp finds the others by name. Raises InputError,
    UnknownModel."""
    count, number = header.values.get("split.count", 0), header.values.get("split.no", 0)
    if not isinstance(count, int) or count < 2:
        return
    header.tensors = max(1, header.tensors)  # the first part may hold only keys
    named = _SPLIT.match(path.name)
    if not named or int(named[3]) != count:
        raise InputError(
            f"{path.name} is one of {count} parts, and its name does not say so",
            hint=f"name the parts NAME-00001-of-{count:05}.gguf and so on",
            field="model",
        )
    parts = [path.with_name(f"{named[1]}-{n:05}-of-{count:05}.gguf") for n in range(1, count + 1)]
    if number:
        raise InputError(f"{path.name} is not the first part", hint=f"open {parts[0].name}", field="model")
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise InputError(f"{path.name} needs {', '.join(missing)} beside it", field="model")
    for n, part in enumerate(parts[1:], 1):
        found = read_header(part)
        if found.values.get("split.no") != n:
            raise InputError(
                f"{part.name} is not part {n + 1} of {count}, as its name says",
                hint="fetch it again, or give each part its own name back",
                field="model",
            )
        check_tensors(found, part.name)


def _load_error(name: str, reason: str) -> Exception:
    message = f"{name} cannot be loaded: {reason}"
    if "unknown model architecture" in reason:
        return CapabilityError(message, hint="a newer llama-cpp-python may know it", field="model")
    if is_out_of_memory(reason):
        return LimitExceeded(message, hint="a smaller model, or one with fewer bits per weight", field="model")
    if any(sign in reason for sign in DAMAGE):
        return InputError(message, hint=DAMAGED, field="model")
    return InputError(message, field="model")
