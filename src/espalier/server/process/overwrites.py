"""What the logging server's routes set for all requests that follow, under WORDLIST_SERVER_COMPAT."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Overwrites:
    """None leaves a value to the request. lmdb_path: the store for hidden states."""

    temperature: float | None = None
    top_p: float | None = None
    lmdb_path: str | None = None

    def sampling(self) -> dict[str, Any]:
        """The sampling that is set, by the names of the body."""
        given = {"temperature": self.temperature, "top_p": self.top_p}
        return {name: value for name, value in given.items() if value is not None}
