"""Our own store, read as the others are: its requests as entries. It is our file, so it is mapped in this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from espalier.activations.foreign.entry import BadEntry, entry_of
from espalier.activations.foreign.store import DamagedEntry, Found
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.locks import NAME as LOCK
from espalier.errors import InputError, MissingDependency

LAYOUT = "espalier"
_NAMES = ("prompt", "response", "model", "input_length", "timestamp", "request_id", "run_id", "sample_index")


@dataclass(frozen=True, slots=True)
class OwnStore:
    """A store that `ActivationStore` wrote."""

    path: Path
    layout: str = LAYOUT

    def found(self) -> Iterator[Found]:
        """In the order of time. Raises InputError as `ActivationStore`."""
        with ActivationStore(self.path) as store:
            for key in store.keys():  # noqa: SIM118  # no dict
                try:
                    record = store.record(key)
                    fields = {name: getattr(record, name) for name in _NAMES}
                    if record.messages is not None:
                        fields["messages"] = [dict(message) for message in record.messages]
                    if record.trim_position is not None:
                        fields["trim_position"] = record.trim_position
                    yield entry_of(key, fields)
                except (InputError, BadEntry) as error:
                    yield DamagedEntry(key, str(error))


def own_store(path: Path) -> OwnStore | None:
    """The store at a path, None where there is none of ours. Raises InputError for one of a newer version."""
    if not (path / LOCK).is_file() or not (path / "data.mdb").is_file():
        return None
    try:
        ActivationStore(path).close()
    except MissingDependency:
        raise
    except InputError as error:
        if "has version" in error.message:
            raise
        return None
    return OwnStore(path)
