"""A logits processor for vLLM, whichever of its two model runners runs: `vllm serve MODEL --logits-processors
espalier.integrations.vllm:ConstraintProcessor`, and `extra_args={"espalier": {...}}` in a request's sampling params.
`processor.py` is the processor, `masking.py` what it does with a step's rows, `checks.py` says what it refuses.
"""

from espalier.integrations.vllm.processor import ConstraintProcessor

__all__ = ["ConstraintProcessor"]
