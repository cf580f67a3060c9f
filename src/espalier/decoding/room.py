"""What several drivers of one model have taken of its memory, so that none begins what another has no room left for.

It counts; it knows neither plans nor sequences.
"""

from __future__ import annotations

import threading

from espalier.decoding.ports import StepModel


class Room:
    """The tokens and sequences of one model that are spoken for. Every method from any thread."""

    def __init__(self, model: StepModel) -> None:
        self._capacity, self._most = model.capacity, model.max_sequences
        self._tokens = self._sequences = 0
        self._lock = threading.Lock()

    def take(self, size: int, sequences: int = 1) -> bool:
        """Speak for up to `size` tokens in so many sequences, if there is room; where nobody has any, there always
        is."""
        with self._lock:
            fits = self._tokens + size <= self._capacity and self._sequences + sequences <= self._most
            if not fits and self._sequences:
                return False
            self._tokens += size
            self._sequences += sequences
            return True

    def give_back(self, size: int, sequences: int = 1) -> None:
        """What `take` was given; once for each."""
        with self._lock:
            self._tokens -= size
            self._sequences -= sequences
