"""Encodes long texts in a worker process that can be ended: a `tokenizers` library looks at no limit while it works.

Only work with a limit goes there (a server's); anybody else's texts are encoded where they are. It reads the JSON form
of a tokenizer and knows no `Vocab`.
"""

from __future__ import annotations

import base64
import os
import tempfile
import threading
import weakref
from functools import lru_cache
from typing import Any

import numpy as np

from espalier.confined.pool import Processes, is_supported
from espalier.owners import owner
from espalier.time_limit import is_limited, left, spend

LONG = 65_536
"""Characters; fewer take some tenths of a second at most."""
PROCESSES = 2
MOST_SECONDS = 60.0
"""Of CPU time for one text, where the limit of the caller leaves more."""
NICER = 5
WHAT = "encoding the text"


class FarTokenizer:
    """One tokenizer. spec: its JSON. spells_specials: whether text that looks like a special token becomes its id.
    Thread-safe; the processes begin with the first long text and end with the object."""

    def __init__(self, spec: str, *, spells_specials: bool) -> None:
        self._spec, self._spells_specials = spec, spells_specials
        self._lock = threading.Lock()
        self._begun: tuple[Processes, int] | None = None

    def takes(self, text: str) -> bool:
        """Whether this text is better encoded here."""
        return len(text) > LONG and is_limited() and is_supported()

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The ids. special: with the special tokens that the tokenizer adds. Raises OutOfTime once the limit of the
        caller is used up, Cancelled, ConfinedError."""
        processes, file = self._start_processes()
        task = {"file": file, "spells_specials": self._spells_specials, "special": special, "text": text}
        packed = processes.call(encoded, task, seconds=min(left(), MOST_SECONDS), what=WHAT, owner=owner(), used=spend)
        ids: list[int] = np.frombuffer(base64.b64decode(packed), dtype="<i4").tolist()
        return ids

    def _start_processes(self) -> tuple[Processes, int]:
        """The processes, and the descriptor of the file that they all inherit: the tokenizer."""
        with self._lock:
            if self._begun is None:
                # Without a name: nothing is left of it however this process ends, and nothing else can delete it.
                file = tempfile.TemporaryFile("w", encoding="utf-8")  # noqa: SIM115
                file.write(self._spec)
                file.flush()
                processes = Processes(count=PROCESSES, nicer=NICER, files=(file.fileno(),))
                weakref.finalize(self, _end, processes, file)
                self._begun = processes, file.fileno()
            return self._begun


def _end(processes: Processes, file: Any) -> None:
    processes.close()
    file.close()


def encoded(given: dict[str, Any]) -> str:
    """What a worker process does: the ids as base64 of `(T,) int32`, little endian: a list of a million numbers would
    take the parent a tenth of a second to read."""
    tokenizer = _tokenizer(given["file"], given["spells_specials"])
    ids = tokenizer.encode(given["text"], add_special_tokens=given["special"]).ids
    return base64.b64encode(np.asarray(ids, dtype="<i4").tobytes()).decode()


@lru_cache(maxsize=4)
def _tokenizer(file: int, spells_specials: bool) -> Any:
    from tokenizers import Tokenizer  # noqa: PLC0415  # only worker processes need it

    # From its start: processes that inherit a descriptor also share where it stands.
    tokenizer = Tokenizer.from_buffer(os.pread(file, os.fstat(file).st_size, 0))
    tokenizer.encode_special_tokens = not spells_specials
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
