"""The random numbers of llama.cpp: mt19937, and the uniform numbers that libstdc++ makes of it."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

WORDS = 624
AT_ONCE = 512


class RandomNumbers:
    """The numbers of one seed, by their index in the stream, so that several may be tried at one place."""

    def __init__(self, seed: int) -> None:
        """seed: below 2**32."""
        self._generator = np.random.MT19937()
        self._generator.state = {"bit_generator": "MT19937", "state": {"key": _key(seed), "pos": WORDS}}
        self._raw: list[int] = []

    def uniform(self, place: int) -> float:
        """The `place`-th double in [0, 1), made of two words, the lower one first."""
        low, high = self._word(2 * place), self._word(2 * place + 1)
        return (low + high * 2.0**32) / 2.0**64

    def single(self, place: int) -> np.float32:
        """The `place`-th float in [0, 1), made of one word."""
        found = np.float32(self._word(place)) / np.float32(2.0**32)
        return found if found < 1 else np.nextafter(np.float32(1), np.float32(0))

    def _word(self, place: int) -> int:
        while place >= len(self._raw):
            self._raw += self._generator.random_raw(AT_ONCE).tolist()
        return self._raw[place]


@lru_cache(maxsize=64)
def _key(seed: int) -> np.ndarray:
    """The state that mt19937 begins with, `(624,) uint32`."""
    words = [seed & 0xFFFFFFFF]
    for place in range(1, WORDS):
        last = words[-1]
        words.append((1812433253 * (last ^ (last >> 30)) + place) & 0xFFFFFFFF)
    return np.array(words, dtype=np.uint32)
