"""Rows as vLLM's first model runner tells them: which requests join, leave and change places, with lists of their
tokens that grow.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from espalier.integrations.vllm.masking import Place, PlacedRows, RowMasker

INPUT_BATCH = "vllm.v1.worker.gpu_input_batch"


class RowsV1:
    """swap: the direction that vLLM gives to an exchange of two rows."""

    def __init__(self, masker: RowMasker, *, swap: Any) -> None:
        self._masker, self._swap = masker, swap
        self._places: dict[int, Place] = {}

    def update(self, update: Any) -> None:
        """Rows join, leave and change places, in the order that vLLM states. Their tokens are read in `apply`, when
        those of the last step are known."""
        self._masker.settle()
        if update is None:
            return
        for index in update.removed:
            self._masker.leave(self._places.pop(index, None))
        for index, params, _, output in update.added:
            place = self._masker.open_place(params, output)
            self._masker.leave(self._places.pop(index, None))
            if place is not None:
                self._places[index] = place
        for first, second, direction in update.moved:
            moved, other = self._places.pop(first, None), self._places.pop(second, None)
            if moved is not None:
                self._places[second] = moved
            if other is not None and direction is self._swap:
                self._places[first] = other
            else:  # whoever was there has left, which nothing else says
                self._masker.leave(other)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        if self._places:
            self._masker.mask_rows(logits, [PlacedRows(self._places[i], [i]) for i in sorted(self._places)])
        return logits


def tells_tokens(config: Any) -> bool:
    """Whether this vLLM fills in the tokens of the last step before it calls a processor, although it schedules ahead:
    it does so for processors that are named in its settings, and not for those that it finds as plug-ins."""
    if not getattr(getattr(config, "model_config", None), "logits_processors", None):
        return False
    try:
        batch = import_module(INPUT_BATCH)
    except ImportError:
        return False
    return hasattr(batch.InputBatch, "update_async_output_token_ids")
