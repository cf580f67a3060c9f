"""A logits processor for vLLM's V1 engine: `vllm serve MODEL --logits-processors
espalier.integrations.vllm:ConstraintProcessor`, and `extra_args={"espalier": {...}}` in a request's sampling params.
`processor.py` is the processor, `checks.py` says what it refuses.
"""

from espalier.integrations.vllm.processor import ConstraintProcessor

__all__ = ["ConstraintProcessor"]
