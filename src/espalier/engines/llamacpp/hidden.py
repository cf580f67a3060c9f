"""Reads the hidden states of a text with a GGUF model: a context of its own over the same weights, made at first use.

The states come unpooled, a row a token, so that both engines pool alike. What the file says of pooling is in its
metadata.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from espalier.engines.embedding import Pooling, Vectors
from espalier.engines.llamacpp.context import LlamaContext, context_params
from espalier.engines.llamacpp.library import address_of, library
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions
from espalier.errors import GenerationError, InputError, PromptTooLong

NONE = 0  # enum llama_pooling_type
SAID: Mapping[str, Pooling] = {"1": "mean", "2": "cls", "3": "last"}
CHUNK = 512  # tokens of one pass


class LlamaHidden:
    """A HiddenReader over one llama_context. positions: of the engine's context."""

    def __init__(self, file: LlamaFile, options: EngineOptions, positions: int) -> None:
        self._file, self._positions = file, positions
        self._options = replace(options, sequences=1, kv_size=None, context=positions)
        self._lib = library()
        self._size = int(self._lib.llama_model_n_embd(file.handle))
        self._lock = threading.Lock()
        self._context: LlamaContext | None = None
        self._address = address_of("llama_get_embeddings", of=self._lib.llama_context_p_ctypes)

    @property
    def size(self) -> int:
        return self._size

    @property
    def pooling(self) -> Pooling | None:
        """Raises InputError for a kind that is not supported, such as that of a reranker."""
        said = self._file.meta(f"{self._file.header.architecture}.pooling_type")
        if said in (None, str(NONE)):
            return None
        if said not in SAID:
            raise InputError(f"{self._file.path.name} has the pooling type {said}", hint="1, 2 or 3", field="model")
        return SAID[said]

    @property
    def prefixes(self) -> Sequence[int]:
        return ()

    def read(self, tokens: Sequence[int]) -> Vectors:
        if len(tokens) > self._positions:
            raise PromptTooLong.over(self._positions, tokens=len(tokens))
        ids = np.array(tokens, dtype=np.int32)
        with self._lock:
            ctx = self._open_context().ctx
            self._lib.llama_memory_clear(self._lib.llama_get_memory(ctx), True)
            parts = [self._pass(ctx, ids[at : at + CHUNK], at) for at in range(0, ids.size, CHUNK)]
        return np.concatenate(parts)

    def _open_context(self) -> LlamaContext:
        if self._context is None:
            _, params = context_params(self._lib, self._file, self._options)
            params.embeddings, params.pooling_type = True, NONE
            params.n_batch = params.n_ubatch = min(CHUNK, params.n_ctx)
            self._context = LlamaContext(self._lib, self._file, params, self._options)
        return self._context

    def _pass(self, ctx: Any, ids: Any, start: int) -> Vectors:
        """The states of one chunk, `(n, size) float32`, copied out of llama.cpp's buffer."""
        count = len(ids)
        batch = self._lib.llama_batch_init(count, 0, 1)
        try:
            for index, token in enumerate(ids.tolist()):
                batch.token[index], batch.pos[index] = token, start + index
                batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, 1
            batch.n_tokens = count
            code = self._lib.llama_decode(ctx, batch)
        finally:
            self._lib.llama_batch_free(batch)
        address = None if code else self._address(ctx)
        if not address:
            raise GenerationError(f"llama.cpp gave no hidden states (llama_decode returned {code})")
        memory: Any = (ctypes.c_float * (count * self._size)).from_address(address)
        return np.array(np.frombuffer(memory, dtype=np.float32).reshape(count, self._size))
