"""Reserves the KV cache of one model, so that no plan starts without memory to finish.

It only counts; it knows neither plans nor the model's sequences.
"""

from __future__ import annotations

import threading

from espalier.decoding.ports import StepModel


class Room:
    """The reserved tokens and sequences of one model, which its schedulers share. Thread-safe."""

    def __init__(self, model: StepModel) -> None:
        self._capacity, self._most = model.capacity, model.max_sequences
        self.tokens = self.sequences = 0
        self._lock = threading.Lock()

    def fits(self, size: int, sequences: int = 1, *, spare: int = 0) -> bool:
        """Whether up to `size` tokens in `sequences` sequences can be reserved and `spare` tokens stay free. Where
        nothing is reserved yet, anything fits."""
        with self._lock:
            return self._fits(size, sequences, spare)

    def take(self, size: int, sequences: int = 1) -> bool:
        """Reserve as much, if it fits. Returns whether it did."""
        with self._lock:
            if not self._fits(size, sequences, 0):
                return False
            self.tokens += size
            self.sequences += sequences
            return True

    def give_back(self, size: int, sequences: int = 1) -> None:
        """Undo one `take` that returned True, with the same arguments."""
        with self._lock:
            self.tokens -= size
            self.sequences -= sequences

    def _fits(self, size: int, sequences: int, spare: int) -> bool:
        has_room = self.tokens + size + spare <= self._capacity and self.sequences + sequences <= self._most
        return has_room or not self.sequences
