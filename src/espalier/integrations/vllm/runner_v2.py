"""Rows as vLLM's second model runner tells them (`VLLM_USE_V2_MODEL_RUNNER`, its default on GPUs since 0.32): requests
live in slots, and their tokens on the device.

A step names the slot of each row, its position and the token before it; with speculative decoding a request has one
row more for each drafted token, and each is masked as what follows the drafts before it. One small copy for each step
brings slots, positions and tokens to the host, however far ahead the scheduler is; a second one only where a request
got several tokens at once. Nobody says when the request in a slot leaves: the next one that takes the slot shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from espalier.integrations.vllm.masking import Place, PlacedRows, RowMasker


@dataclass(slots=True)
class _Slot:
    """prompt: how many tokens its prompt has. output: the tokens of the request so far, as they have come to the
    host."""

    place: Place
    prompt: int
    output: list[int] = field(default_factory=list)


class RowsV2:
    """states: vLLM's buffers of all slots, which are read alone."""

    def __init__(self, masker: RowMasker, states: Any) -> None:
        self._masker, self._states = masker, states
        self._slots: dict[int, _Slot] = {}

    def add(self, index: int, params: Any) -> bool:
        """A request takes a slot, and whoever had it has left. Returns whether it asks anything of us."""
        output: list[int] = []
        place = self._masker.open_place(params, output)
        self._leave(index)
        if place is None:
            return False
        self._slots[index] = _Slot(place, int(self._states.prompt_len.np[index]), output)
        return True

    def apply(self, logits: torch.Tensor, step: Any) -> torch.Tensor:
        """step: vLLM's LogitsContext."""
        if not self._slots or not any(int(slot) in self._slots for slot in step.idx_mapping_np):
            return logits
        columns = (step.expanded_idx_mapping, step.pos, step.input_ids)
        slots, ends, tokens = torch.stack([column.to(torch.int64) for column in columns]).cpu().numpy()  # (3, B)
        rows: dict[int, list[int]] = {}
        for row, slot in enumerate(slots.tolist()):
            if slot in self._slots:
                rows.setdefault(slot, []).append(row)
        # Logits inside a prompt, or inside the tokens of a request that comes back, are thrown away.
        filled = self._states.prefill_len.np
        rows = {slot: own for slot, own in rows.items() if ends[own[0]] + 1 >= filled[slot]}
        self._read(rows, ends, tokens)
        placed = [PlacedRows(self._slots[slot].place, own, tokens[own[1:]].tolist()) for slot, own in rows.items()]
        self._masker.mask_rows(logits, sorted(placed, key=lambda placed_rows: placed_rows.rows[0]))
        return logits

    def _leave(self, index: int) -> None:
        """Whoever had the slot has left. The device still has the last tokens, since those of the next one are written
        before the step."""
        left = self._slots.pop(index, None)
        if left is not None and left.place.report:
            first, end = left.prompt + len(left.output), int(self._states.total_len.gpu[index])
            left.output.extend(self._states.all_token_ids.gpu[index, first:end].tolist())
            self._masker.leave(left.place)

    def _read(self, rows: Mapping[int, list[int]], ends: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """Bring the outputs up to the first row of each request, `pos + 1` tokens with the prompt. The newest token is
        that row's own input."""
        missing: list[tuple[int, int, int]] = []
        for slot, own in rows.items():
            output, prompt = self._slots[slot].output, self._slots[slot].prompt
            length = max(0, int(ends[own[0]]) + 1 - prompt)
            if length == len(output) + 1:
                output.append(int(tokens[own[0]]))
            elif length > len(output):
                missing.append((slot, prompt + len(output), prompt + length))
            else:
                del output[length:]
        if not missing:
            return
        held = self._states.all_token_ids.gpu  # (slots, T)
        places = np.concatenate([np.arange(first, end) for _, first, end in missing])
        owners = np.concatenate([np.full(end - first, slot) for slot, first, end in missing])
        index = torch.from_numpy(np.stack([owners, places])).to(held.device)  # (2, n)
        newest = iter(held[index[0], index[1]].tolist())
        for slot, first, end in missing:
            self._slots[slot].output.extend(next(newest) for _ in range(first, end))
