"""Memory of the KV cache: zeros that cost nothing until they are written, and are given back."""

from __future__ import annotations

import os
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from espalier.engines.huggingface.slot_cache import SlotCache  # noqa: E402
from espalier.engines.huggingface.zeros import Zeros  # noqa: E402
from tests.server_process import resident_bytes  # noqa: E402

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5, 3, 300, 64), (7, 3, 301, 66), (3, 2, 3, 4)])
def test_a_row_that_is_cleared_is_zero_and_no_other_is(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    zeros = Zeros(shape, dtype, CPU)
    assert not zeros.tensor.any()
    zeros.tensor.fill_(1.5)
    with torch.inference_mode():
        zeros.clear(1)
    assert not zeros.tensor[1].any()
    assert all((zeros.tensor[row] == 1.5).all() for row in range(shape[0]) if row != 1)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_a_cache_that_grows_takes_no_memory_for_what_nobody_has_written() -> None:
    """With 64 sequences, growing to 2,048 positions took 0.8 s of CPU time and 588 MB, and no stream went on."""

    cache = SlotCache(layers=4, max_rows=64, max_positions=2048, device=CPU, dtype=torch.float32)
    rows = [cache.add() for _ in range(64)]
    states = torch.ones((1, 4, 2000, 64))  # (B, H, T, D)
    before = resident_bytes(os.getpid())
    cache.begin(rows[:1], [2000])
    for layer in cache._layers:
        layer.update(states, states)
    cache.commit()
    assert cache.length(rows[0]) == 2000
    held = resident_bytes(os.getpid()) - before
    assert held < 60_000_000  # of 1,074 MB that the buffers can hold
    cache.remove(rows[0])
    assert resident_bytes(os.getpid()) - before < held - 10_000_000
