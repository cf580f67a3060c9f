"""Reserves the KV cache of one model, so that no plan starts without memory to finish.

It only counts; it knows neither plans nor the model's sequences.
"""

from __future__ import annotations

import threading

from espalier.decoding.ports import StepModel

FOR_OTHERS = 8
"""One lane of so many is left to requests that have none, when several outputs of one request wait; of twice as many,
to owners that have none: whoever asks for one text never waits until one of another's long texts ends. The same part
of the KV cache is left to smaller requests, where large ones fill it; and beside as many sequences as one run may have,
one of so many is left to owners that have none."""


def with_spare(sequences: int) -> int:
    """How many sequences a model must hold, so that one run may have that many and some are left to others."""
    return sequences + sequences // FOR_OTHERS


def run_sequences(model: StepModel) -> int:
    """The most sequences of one run. Of what `with_spare` gives it is what was asked for."""
    return model.max_sequences - model.max_sequences // (FOR_OTHERS + 1)


def run_tokens(model: StepModel) -> int:
    """The most tokens in the KV cache that a run of several sequences may grow to."""
    return model.capacity - model.capacity // FOR_OTHERS


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
