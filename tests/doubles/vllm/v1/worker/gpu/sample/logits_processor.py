"""vLLM's interface of logits processors for its second model runner as published
(vllm/v1/worker/gpu/sample/logits_processor/interface.py, 0.32), recorded for machines where vLLM is not installed.
Names, fields and signatures only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LogitsProcRequestState:
    """Buffers of all slots. all_token_ids, total_len: `.gpu`. prompt_len, prefill_len: `.np` on the host."""

    device: Any
    max_num_reqs: int
    vocab_size: int
    all_token_ids: Any
    prompt_len: Any
    prefill_len: Any
    total_len: Any


@dataclass(frozen=True)
class LogitsContext:
    """The layout of a step: a row of logits -> its slot, its place among the rows of its request, its input and its
    position; a request -> its slot."""

    expanded_idx_mapping: Any
    idx_mapping: Any
    idx_mapping_np: Any
    expanded_local_pos: Any
    input_ids: Any
    pos: Any
    seq_lens_upper_bound_np: Any


class LogitsProcessor(ABC):
    def __init__(self, vllm_config: Any, req_states: LogitsProcRequestState) -> None:
        return

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raises ValueError for params that are refused."""
        return

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        """Whether the processor changes logits of the request that takes a slot."""
        return True

    def apply_staged_writes(self) -> None:
        return

    @abstractmethod
    def apply(self, logits: Any, ctx: LogitsContext) -> Any: ...
