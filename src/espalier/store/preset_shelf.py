"""Presets in the store, as the catalogue of presets wants them. The store is opened when a preset is first looked for,
and not at all where there cannot be one: no database file, or no library to open it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from espalier.errors import MissingDependency

if TYPE_CHECKING:
    from espalier.store.open import Store


class PresetShelf:
    """Safe across threads. database_url: None is the SQLite file in the user's data folder."""

    def __init__(self, database_url: Callable[[], str | None]) -> None:
        self._database_url = database_url
        self._store: Store | None = None
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Raises what opening and reading the database raises."""
        store = self._open_store(makes=False)
        return [] if store is None else store.preset_names()

    def get(self, name: str) -> Mapping[str, Any] | None:
        """The JSON of a preset, None if there is none. Raises as `names`."""
        store = self._open_store(makes=False)
        return None if store is None else store.preset(name)

    def save(self, preset: Mapping[str, Any], *, replace: bool) -> str:
        """Store a preset, and return where. Raises InputError if there is one of that name, unless it may be
        replaced, MissingDependency, and what opening and writing raises."""
        store = self._open_store(makes=True)
        assert store is not None
        store.save_preset(preset, replace=replace)
        return store.database.address

    def remove(self, name: str) -> str | None:
        """Delete a preset, and return where it was; None if there was none."""
        store = self._open_store(makes=False)
        return store.database.address if store is not None and store.remove_preset(name) else None

    def _open_store(self, *, makes: bool) -> Store | None:
        """makes: whether a file that is not there is made, and a missing library is an error."""
        with self._lock:
            if self._store is None:
                try:
                    from espalier.store.db import default_url  # noqa: PLC0415  # slow to import, and an extra
                    from espalier.store.open import open_store  # noqa: PLC0415
                except MissingDependency:
                    if makes:
                        raise
                    return None
                url = self._database_url()
                if not makes and not _is_there(url, default_url):
                    return None
                self._store = open_store(url)
            return self._store


def _is_there(url: str | None, default_url: Callable[..., Any]) -> bool:
    """Whether there may be a database: a SQLite file that is not there holds nothing, and is not made to look."""
    if url is None:
        return Path(str(default_url(os.environ).database)).is_file()
    return not url.startswith("sqlite:") or Path(url.partition("///")[2]).is_file()
