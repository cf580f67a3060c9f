"""vLLM's own base class where vLLM is installed, and its recorded interface where it is not."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

HAS_VLLM = find_spec("vllm") is not None
"""A vLLM that is there and cannot be imported raises: its processors must be vLLM's own."""

if TYPE_CHECKING or not HAS_VLLM:
    from espalier.integrations.vllm.recorded import BatchUpdate, LogitsProcessor, MoveDirectionality
else:
    from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

__all__ = ["HAS_VLLM", "BatchUpdate", "LogitsProcessor", "MoveDirectionality"]
