"""What a vocabulary of 131,072 ids costs before the first mask, and what stays in memory after many."""

from __future__ import annotations

import dataclasses
import statistics
import tempfile
import time
from pathlib import Path
from random import Random

import numpy as np

from espalier.automata.masks.cache import ByteCache
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonObject
from espalier.tokens import mask as masks
from espalier.tokens.trie import build_trie, load_trie
from tests.tokenizers import tekken_vocab

ROUNDS = 7


def main() -> None:
    vocab = tekken_vocab()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        trie = build_trie(vocab.tokens)
        print(f"trie built:          {(time.perf_counter() - start) * 1e3:8.1f} ms")
        load_trie(vocab, Path(folder))
        seconds = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            load_trie(vocab, Path(folder))
            seconds.append(time.perf_counter() - start)
        print(f"trie read from disk: {statistics.median(seconds) * 1e3:8.1f} ms (the bar is 50)")
    held = sum(v.nbytes for v in dataclasses.astuple(trie) if isinstance(v, np.ndarray))
    print(f"trie in memory:      {held / 2**20:8.1f} MiB, {len(trie)} nodes")
    compiled = Compiler(vocab).compile(JsonObject())
    rng = Random(0)
    for _ in range(60):  # random walks meet many states
        matcher = compiled.matcher()
        for _ in range(60):
            ids = masks.allowed_ids(matcher.mask(), vocab.width)
            matcher.advance(int(rng.choice(ids)))
            if matcher.is_finished:
                break
    for name, cache in vars(compiled.machine).items():  # type: ignore[attr-defined]  # ours
        if isinstance(cache, ByteCache):
            print(f"cache {name.strip('_'):<15}{cache.size / 2**20:8.1f} MiB of at most {cache.limit / 2**20:.0f}")


if __name__ == "__main__":
    main()
