"""vLLM's interface of logits processors as published (vllm/v1/sample/logits_processor/interface.py, 0.32), recorded for
machines where vLLM is not installed. Names, fields and signatures only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class MoveDirectionality(Enum):
    UNIDIRECTIONAL = auto()
    SWAP = auto()


@dataclass(frozen=True)
class BatchUpdate:
    """removed: rows. added: (row, sampling params, prompt ids, output ids), the last a list that grows. moved: (from,
    to, direction). They hold in the order removed, added, moved."""

    batch_size: int
    removed: Sequence[int]
    added: Sequence[tuple[int, Any, list[int] | None, list[int]]]
    moved: Sequence[tuple[int, int, MoveDirectionality]]


class LogitsProcessor(ABC):
    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Raises ValueError for params that are refused."""
        return

    @abstractmethod
    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None: ...

    @abstractmethod
    def apply(self, logits: Any) -> Any: ...

    @abstractmethod
    def is_argmax_invariant(self) -> bool: ...

    @abstractmethod
    def update_state(self, batch_update: BatchUpdate | None) -> None: ...
