"""What every layout gives: the entries of a store one after the other, and those that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from espalier.activations.foreign.entry import StoredRequest
from espalier.errors import InputError


@dataclass(frozen=True, slots=True)
class DamagedEntry:
    """An entry that cannot be read. key: its name, or its place in a file. reason: a clause."""

    key: str
    reason: str


@dataclass(frozen=True, slots=True)
class SalvageLosses:
    """What was lost of a store that was salvaged. said: how much is left, in words. losses: one clause each."""

    said: str
    losses: tuple[str, ...]


Found: TypeAlias = StoredRequest | DamagedEntry | SalvageLosses


class RequestStore(Protocol):
    """A store of logged requests, opened for reading."""

    @property
    def layout(self) -> str:
        """A name from `open.LAYOUTS`."""

    @property
    def path(self) -> Path:
        """What was opened."""

    def found(self) -> Iterator[Found]:
        """Every entry, in the order of the store. A key may come twice: then the later entry replaces the earlier.
        Raises InputError for a store that cannot be read on."""


def store_error(path: Path, reason: str, *, hint: str | None = None) -> InputError:
    """The error for a store that cannot be read."""
    return InputError(f"cannot read the store {path}: {reason}", hint=hint, field="store")
