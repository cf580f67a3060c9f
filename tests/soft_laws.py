"""Laws of soft constraints over several vocabularies: what a filter adds, and that forks and rollbacks restore it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from espalier.constraints.compiler import Compiler
from espalier.constraints.soft.spec import SoftSpec
from espalier.sampling.filters import FilterContext
from tests.tokenizers import VOCABS

CONTEXT = FilterContext(step=0, prompt=(), generated=())
over_each_vocabulary = pytest.mark.parametrize("name", VOCABS)


@cache
def compiler_of(name: str) -> Compiler:
    return Compiler(VOCABS[name]())


def biases(filter_: Any, width: int = 257) -> NDArray[np.float32]:
    """What the filter adds, `(V,) float32`, on logits that nobody may write to."""
    logits = np.zeros(width, dtype=np.float32)
    logits.setflags(write=False)
    out: NDArray[np.float32] = filter_.apply(logits, CONTEXT)
    assert out.dtype == np.float32
    assert out.shape == (width,)
    return out


def tokenisation(compiler: Compiler, data: bytes, choose: Callable[[Sequence[int]], int]) -> list[int]:
    """Random tokens that spell `data`."""
    position, ids = 0, list[int]()
    while position < len(data):
        ids.append(choose(compiler.trie.prefixes(data, position)))
        position += len(compiler.vocab.bytes_of(ids[-1]))
    return ids


def check_forks_and_rollbacks(spec: SoftSpec, compiler: Compiler, ids: Sequence[int], undone: int) -> None:
    """Forks before and after each token keep their biases, and so does the filter after `undone` tokens are undone."""
    width = compiler.vocab.width
    moving: Any = spec.filter(compiler)
    seen, forks = [biases(moving, width)], [moving.fork()]
    for token in ids:
        moving.on_token(token)
        seen.append(biases(moving, width))
        forks.append(moving.fork())
    for fork, expected in zip(forks, seen, strict=True):
        assert np.array_equal(biases(fork, width), expected)
    moving.rollback(undone)
    assert np.array_equal(biases(moving, width), seen[len(ids) - undone])
    for token in ids[len(ids) - undone :]:
        moving.on_token(token)
    assert np.array_equal(biases(moving, width), seen[-1])
    assert np.array_equal(biases(forks[0], width), seen[0])
