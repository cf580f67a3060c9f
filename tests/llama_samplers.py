"""llama.cpp's own samplers, as an oracle: the C library inside the `xllamacpp` wheel, by ctypes (see llama_grammar.py).

Only public functions of llama.h are called. Signatures are those of the pinned wheel, which differ from older ones:
`llama_sampler_init_penalties` takes the number of tokens first, and `llama_sampler_init_dry` no context size, so that a
window of -1 is the caller's to resolve.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_char_p, c_float, c_int32, c_size_t, c_uint32, c_void_p
from functools import cache

import numpy as np

from espalier import SamplingConfig
from tests.llama_grammar import TOKEN_DATA, LlamaVocab, _TokenArray, library

FOREVER = 1 << 16  # a window that no test outgrows


@cache
def samplers() -> ctypes.CDLL:
    """The library with the samplers' signatures."""
    lib = library()
    signatures: dict[str, list[object]] = {
        "llama_sampler_init_penalties": [c_int32, c_int32, c_float, c_float, c_float],
        "llama_sampler_init_dry": [c_void_p, c_float, c_float, c_int32, c_int32, POINTER(c_char_p), c_size_t],
        "llama_sampler_init_top_n_sigma": [c_float],
        "llama_sampler_init_top_k": [c_int32],
        "llama_sampler_init_typical": [c_float, c_size_t],
        "llama_sampler_init_top_p": [c_float, c_size_t],
        "llama_sampler_init_min_p": [c_float, c_size_t],
        "llama_sampler_init_xtc": [c_float, c_float, c_size_t, c_uint32],
        "llama_sampler_init_temp": [c_float],
        "llama_sampler_init_temp_ext": [c_float, c_float, c_float],
        "llama_sampler_init_mirostat": [c_int32, c_uint32, c_float, c_float, c_int32],
        "llama_sampler_init_mirostat_v2": [c_uint32, c_float, c_float],
    }
    for name, arguments in signatures.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = c_void_p, arguments
    return lib


def make(name: str, config: SamplingConfig, width: int, *, vocab: LlamaVocab | None = None, seed: int = 1) -> int:
    """A sampler of our name with the config's values, as llama.cpp's common/sampling.cpp makes it."""
    lib = samplers()
    made = {
        "penalties": lambda: lib.llama_sampler_init_penalties(
            width,
            config.repetition_window if config.repetition_window >= 0 else FOREVER,
            config.repetition_penalty,
            config.frequency_penalty,
            config.presence_penalty,
        ),
        "dry": lambda: _dry(config, vocab),
        "top_n_sigma": lambda: lib.llama_sampler_init_top_n_sigma(config.top_n_sigma),
        "top_k": lambda: lib.llama_sampler_init_top_k(config.top_k),
        "typical_p": lambda: lib.llama_sampler_init_typical(config.typical_p or 1.0, config.min_keep),
        "top_p": lambda: lib.llama_sampler_init_top_p(config.top_p, config.min_keep),
        "min_p": lambda: lib.llama_sampler_init_min_p(config.min_p, config.min_keep),
        "xtc": lambda: lib.llama_sampler_init_xtc(config.xtc_probability, config.xtc_threshold, config.min_keep, seed),
        "temperature": lambda: lib.llama_sampler_init_temp_ext(
            config.temperature, config.dynatemp_range, config.dynatemp_exponent
        ),
    }
    return int(made[name]())


def _dry(config: SamplingConfig, vocab: LlamaVocab | None) -> int:
    assert vocab is not None, "DRY needs a vocabulary"
    texts = (c_char_p * len(config.dry_breakers))(*[text.encode() for text in config.dry_breakers])
    return int(
        samplers().llama_sampler_init_dry(
            vocab.handle,
            config.dry_multiplier,
            config.dry_base,
            config.dry_allowed_length,
            config.dry_window if config.dry_window >= 0 else FOREVER,
            texts,
            len(config.dry_breakers),
        )
    )


class LlamaChain:
    """Samplers one after the other, as llama.cpp's chain runs them."""

    def __init__(self, handles: Sequence[int]) -> None:
        self.lib, self.handles = samplers(), list(handles)

    @staticmethod
    def of(config: SamplingConfig, width: int, *, vocab: LlamaVocab | None = None, seed: int = 1) -> LlamaChain:
        """What the config's order names and is on."""
        return LlamaChain([make(name, config, width, vocab=vocab, seed=seed) for name in config.active])

    def accept(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            for handle in self.handles:
                self.lib.llama_sampler_accept(handle, token)

    def apply(self, logits: np.ndarray) -> np.ndarray:
        """`(V,) float32`, what is not a candidate any more at -inf."""
        return self.run(logits)[0]

    def run(self, logits: np.ndarray) -> tuple[np.ndarray, int | None, float]:
        """The same, and what a sampler selected: its id, and its probability. None, 0.0 where none did."""
        rows = np.zeros(logits.shape[0], dtype=TOKEN_DATA)  # (V,)
        rows["id"], rows["logit"] = np.arange(logits.shape[0]), logits
        array = _TokenArray(rows.ctypes.data, logits.shape[0], -1, False)
        for handle in self.handles:
            self.lib.llama_sampler_apply(handle, ctypes.byref(array))
        start = (array.data - rows.ctypes.data) // TOKEN_DATA.itemsize  # xtc moves the beginning
        kept = rows[start : start + array.size]
        out = np.full_like(logits, -np.inf)
        out[kept["id"]] = kept["logit"]
        if array.selected < 0:
            return out, None, 0.0
        chosen = kept[array.selected]
        return out, int(chosen["id"]), float(chosen["p"])

    def close(self) -> None:
        for handle in self.handles:
            self.lib.llama_sampler_free(handle)
        self.handles = []
