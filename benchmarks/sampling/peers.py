"""The same step by others: llama.cpp's own sampler chain through its C API, and transformers' processors on the CPU.

Their settings are read off our config. What they draw is not looked at: their random numbers are their own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_bool, c_int32, c_uint32, c_void_p

import numpy as np
import torch
import transformers
from numpy.typing import NDArray

from espalier import SamplingConfig
from tests.llama_grammar import TOKEN_DATA, _TokenArray
from tests.llama_samplers import make, samplers


class _ChainParams(ctypes.Structure):
    _fields_ = [("no_perf", c_bool)]


class LlamaCpp:
    """A chain with the config's samplers in its order, then the draw; with temperature 0 its greedy sampler."""

    def __init__(self, config: SamplingConfig, width: int, history: Sequence[int]) -> None:
        self.lib = samplers()
        for name, result, arguments in (
            ("llama_sampler_chain_init", c_void_p, [_ChainParams]),
            ("llama_sampler_chain_add", None, [c_void_p, c_void_p]),
            ("llama_sampler_init_dist", c_void_p, [c_uint32]),
            ("llama_sampler_init_greedy", c_void_p, []),
        ):
            function = getattr(self.lib, name)
            function.restype, function.argtypes = result, arguments
        self.chain = self.lib.llama_sampler_chain_init(_ChainParams(True))
        for name in config.active:
            if name == "penalties" or not config.is_greedy:
                self.lib.llama_sampler_chain_add(self.chain, make(name, config, width))
        last = self.lib.llama_sampler_init_greedy() if config.is_greedy else self.lib.llama_sampler_init_dist(1)
        self.lib.llama_sampler_chain_add(self.chain, last)
        for token in history:
            self.lib.llama_sampler_accept(self.chain, c_int32(token))
        self.ids = np.arange(width, dtype=np.int32)  # (V,)
        self.rows = np.zeros(width, dtype=TOKEN_DATA)  # (V,)
        self.fill(np.zeros(width, dtype=np.float32))

    def fill(self, logits: NDArray[np.float32]) -> None:
        """llama_token_data of a row, as every caller must write it; a step leaves it sorted, cut and changed."""
        self.rows["id"], self.rows["logit"] = self.ids, logits
        self.array = _TokenArray(self.rows.ctypes.data, self.rows.shape[0], -1, False)

    def sample(self) -> int:
        self.lib.llama_sampler_apply(self.chain, ctypes.byref(self.array))
        return self.array.selected

    def close(self) -> None:
        self.lib.llama_sampler_free(self.chain)


class Transformers:
    """A LogitsProcessorList in our order, then softmax and multinomial, or argmax."""

    def __init__(self, config: SamplingConfig, history: Sequence[int], allowed: NDArray[np.bool_] | None) -> None:
        made = {
            "penalties": lambda: transformers.RepetitionPenaltyLogitsProcessor(config.repetition_penalty),
            "top_k": lambda: transformers.TopKLogitsWarper(config.top_k),
            "top_p": lambda: transformers.TopPLogitsWarper(config.top_p),
            "min_p": lambda: transformers.MinPLogitsWarper(config.min_p),
            "temperature": lambda: transformers.TemperatureLogitsWarper(config.temperature),
        }
        names = [name for name in config.active if name == "penalties" or not config.is_greedy]
        masking = [] if allowed is None else [_Mask(torch.from_numpy(~allowed)[None])]
        self.processors = transformers.LogitsProcessorList([*masking, *(made[name]() for name in names)])
        self.is_greedy = config.is_greedy
        self.ids = torch.tensor([list(history[-config.repetition_window :])])  # (1, T)

    @torch.inference_mode()
    def sample(self, logits: NDArray[np.float32]) -> int:
        row = self.processors(self.ids, torch.from_numpy(logits)[None])  # (1, V)
        if self.is_greedy:
            return int(row.argmax(-1))
        return int(torch.multinomial(torch.softmax(row, dim=-1), 1))


class _Mask(transformers.LogitsProcessor):
    """What a constraint does there: forbidden is -inf. forbidden: (1, V) bool."""

    def __init__(self, forbidden: torch.Tensor) -> None:
        self.forbidden = forbidden

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(self.forbidden, -torch.inf)
