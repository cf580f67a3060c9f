"""Reserves the KV cache of one model among its drivers, so that no plan starts without memory to finish.

It only counts; it knows neither plans nor the model's sequences.
"""

from __future__ import annotations

import threading

from espalier.decoding.ports import StepModel


class Room:
    """The reserved tokens and sequences of one model. Thread-safe."""

    def __init__(self, model: StepModel) -> None:
        self._capacity, self._most = model.capacity, model.max_sequences
        self._tokens = self._sequences = 0
        self._lock = threading.Lock()

    def take(self, size: int, sequences: int = 1) -> bool:
        """Reserve up to `size` tokens in `sequences` sequences. False where they do not fit; where nothing is reserved
        yet, they always fit."""
        with self._lock:
            fits = self._tokens + size <= self._capacity and self._sequences + sequences <= self._most
            if not fits and self._sequences:
                return False
            self._tokens += size
            self._sequences += sequences
            return True

    def give_back(self, size: int, sequences: int = 1) -> None:
        """Undo one `take` that returned True, with the same arguments."""
        with self._lock:
            self._tokens -= size
            self._sequences -= sequences
