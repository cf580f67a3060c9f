"""Packed masks on the device of the logits: what they forbid becomes -inf, and the mass that they remove is measured.

On a CPU the bits are spread by NumPy, which is faster there; elsewhere 4 bytes for 32 tokens travel to the device and
are spread there. It knows no matcher.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

AT_ONCE = 1 << 24
"""Flags that are spread at once at most, 1 byte each."""


def forbid_inplace(logits: torch.Tensor, rows: list[int], packed: NDArray[np.int32], *, pin: bool = False) -> None:
    """Set what row i of `packed`, `(N, W) int32`, does not allow to -inf in row `rows[i]` of `logits`, `(B, V)` float,
    in place. pin: whether the copy goes through pinned memory."""
    width = int(logits.shape[1])
    step = max(1, AT_ONCE // max(1, packed.shape[1] * 32))
    whole = len(rows) == logits.shape[0] and rows == list(range(len(rows)))
    for at in range(0, len(rows), step):
        part = rows[at : at + step]
        forbidden = ~spread(packed[at : at + step], width, logits.device, pin=pin)  # (n, V) bool
        if whole:
            logits[at : at + step].masked_fill_(forbidden, -torch.inf)
        elif logits.device.type != "cpu":  # one call for all rows
            logits[part] = logits[part].masked_fill_(forbidden, -torch.inf)
        else:
            for place, row in enumerate(part):
                logits[row].masked_fill_(forbidden[place], -torch.inf)


def spread(packed: NDArray[np.int32], width: int, device: torch.device, *, pin: bool = False) -> torch.Tensor:
    """`(n, W) int32` to `(n, V) bool` on the device; bit i % 32 of word i // 32 is token i."""
    if device.type == "cpu":
        bits = np.unpackbits(packed.view(np.uint8), axis=1, bitorder="little")[:, :width]
        return torch.from_numpy(bits.view(np.bool_))
    return spread_there(torch.from_numpy(packed), width, device, pin=pin)


def spread_there(packed: torch.Tensor, width: int, device: torch.device, *, pin: bool = False) -> torch.Tensor:
    """As `spread`, with the device's own arithmetic."""
    moved = (packed.pin_memory() if pin else packed).to(device, non_blocking=pin)
    eighths = moved.view(torch.uint8).unsqueeze(-1)  # (n, 4 W, 1)
    bits = torch.bitwise_and(eighths, torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=device))
    return bits.ne(0).flatten(1)[:, :width]


def only_inplace(logits: torch.Tensor, row: int, token: int) -> None:
    """Leave one token in a row of `(B, V)` logits, in place."""
    logits[row] = -torch.inf
    logits[row, token] = 0.0


def taxes(raw: torch.Tensor, masked: torch.Tensor) -> tuple[list[float], list[bool]]:
    """-ln Z of each row in nats, from logits `(n, V)` before and after the mask, inf where nothing is left; and whether
    the mask has removed its greatest logit."""
    before, after = (torch.logsumexp(row.double(), dim=1) for row in (raw, masked))
    costs: list[float] = (before - after).clamp_min(0.0).tolist()
    changed: list[bool] = (raw.amax(dim=1) > masked.amax(dim=1)).tolist()
    return costs, changed
