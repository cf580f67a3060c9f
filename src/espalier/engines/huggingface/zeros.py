"""Tensors of zeros for the KV cache whose memory the system gives when it is written, and takes back when it is told.

`torch.zeros` writes every page, so growing a cache for 64 sequences took a second, and kept half a gigabyte that held
nothing. It knows no cache.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence

import torch

LEAST_BYTES = 2**20
"""Smaller tensors are not worth a mapping of their own."""
PAGE = mmap.PAGESIZE


class Zeros:
    """tensor: zeros, until somebody writes. On a CPU of a POSIX system its pages come when they are written. Raises
    MemoryError, RuntimeError (of torch)."""

    __slots__ = ("_pages", "tensor")

    def __init__(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
        size = math.prod(shape) * dtype.itemsize
        self._pages: mmap.mmap | None = None
        # A tensor made in inference mode cannot be written to outside of it.
        with torch.inference_mode(False):
            if device.type == "cpu" and size >= LEAST_BYTES and hasattr(mmap, "MAP_PRIVATE"):
                try:
                    self._pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                except OSError as error:
                    raise MemoryError(f"there are no {size} bytes for the KV cache") from error
                self.tensor = torch.frombuffer(self._pages, dtype=dtype).view(*shape)
            else:
                self.tensor = torch.zeros(*shape, dtype=dtype, device=device)

    def clear(self, row: int) -> None:
        """Make one row of the first dimension zero, and give its memory back."""
        part = self.tensor[row]
        if self._pages is None or not hasattr(self._pages, "madvise"):
            part.zero_()
            return
        flat = part.reshape(-1).view(torch.uint8)  # contiguous, so these are its own bytes
        start = row * len(flat)
        first, last = -(-start // PAGE) * PAGE, (start + len(flat)) // PAGE * PAGE
        if last <= first:
            flat.zero_()
            return
        flat[: first - start].zero_()
        flat[last - start :].zero_()
        self._pages.madvise(mmap.MADV_DONTNEED, first, last - first)
