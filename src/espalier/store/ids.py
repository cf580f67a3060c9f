"""Makes random ids that are ordered by the time of their creation. It does not know what the ids name."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Callable

LETTERS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32; ordered as its bytes are
TIME_LETTERS = 11  # 55 bits of microseconds: past the year 3000
RANDOM_LETTERS = 16  # 80 bits
LAST = 32**TIME_LETTERS - 1

_FORM = re.compile(rf"[a-z]+_[{LETTERS}]{{{TIME_LETTERS + RANDOM_LETTERS}}}")


class Ids:
    """Makes ids `<prefix>_<time><random>`, always increasing, even if the clock stands still or goes back.

    clock: Unix seconds. Ids of several processes are ordered as well as their clocks agree.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._last = 0
        self._lock = threading.Lock()

    def new(self, prefix: str) -> tuple[str, float]:
        """A new id, and its time in Unix seconds."""
        with self._lock:
            self._last = max(int(self._clock() * 1e6), self._last + 1)
            moment = self._last
        tail = _spell(secrets.randbits(5 * RANDOM_LETTERS), RANDOM_LETTERS)
        return f"{prefix}_{_spell(moment, TIME_LETTERS)}{tail}", moment / 1e6


def first_id(prefix: str, moment: float) -> str:
    """The lower bound of all ids made at this Unix time or later; earlier ids are smaller."""
    return f"{prefix}_{_spell(min(max(0, int(moment * 1e6)), LAST), TIME_LETTERS)}"


def is_id(text: str, prefix: str) -> bool:
    """Whether a text has the form of an id with this prefix."""
    return text.startswith(f"{prefix}_") and _FORM.fullmatch(text) is not None


def moment_of(text: str) -> float:
    """The Unix seconds at which an id was made."""
    letters = text.partition("_")[2][:TIME_LETTERS]
    number = 0
    for letter in letters:
        number = number << 5 | LETTERS.index(letter)
    return number / 1e6


def _spell(number: int, letters: int) -> str:
    return "".join([LETTERS[number >> shift & 31] for shift in range(5 * (letters - 1), -1, -5)])
