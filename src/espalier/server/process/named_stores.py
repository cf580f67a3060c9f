"""Stores of hidden states that requests name under WORDLIST_SERVER_COMPAT, confined to the folder beside
ACTIVATIONS_STORE."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from espalier.errors import InputError, LimitExceeded
from espalier.server.process.hidden_states import HiddenStates
from espalier.server.settings import ServerSettings

MOST_STORES = 8
"""Beside the configured one. Each has a quota of its own, so this also bounds the disk that clients can fill."""
MOST_FOLDERS = 4
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""A part of a path: no hidden folder, no `..`."""
HINT = "a folder below the one that holds ACTIVATIONS_STORE, of letters, digits, _, - and ."


class NamedStores:
    """Opens each store once and keeps it open. From any thread. first: the configured store, closed by its owner."""

    def __init__(self, settings: ServerSettings, first: HiddenStates) -> None:
        self._settings, self._lock = settings, threading.Lock()
        configured = Path(settings.activations_store or "").expanduser().absolute()
        self._stated, self._base = configured.parent, configured.parent.resolve()
        self._configured = configured.resolve()
        self._open: dict[Path, HiddenStates] = {self._configured: first}

    def get(self, name: str) -> HiddenStates:
        """The store of this name, made where it is not there. Raises InputError for a path that is elsewhere or holds
        something else, LimitExceeded for one store too many, OutputError."""
        path = self._path(name)
        with self._lock:
            hidden_states = self._open.get(path)
            if hidden_states is None:
                if len(self._open) > MOST_STORES:
                    raise LimitExceeded(
                        f"at most {MOST_STORES} stores can be named until the server starts again", field="lmdb_path"
                    )
                hidden_states = self._open[path] = HiddenStates(self._settings, path=path)
        return hidden_states

    def close(self) -> None:
        """Write what waits, and close all but the configured store."""
        for path, opened in self._open.items():
            if path != self._configured:
                opened.close()

    def _path(self, name: str) -> Path:
        given = Path(name)
        if given.is_absolute():
            for base in (self._stated, self._base):
                if given.is_relative_to(base):
                    given = given.relative_to(base)
                    break
        parts = given.parts
        if not 0 < len(parts) <= MOST_FOLDERS or not all(PART.fullmatch(part) for part in parts):
            raise InputError("lmdb_path is not where this server may write", hint=HINT, field="lmdb_path")
        path = self._base.joinpath(*parts)
        if path == self._stated / self._configured.name or path.resolve() == self._configured:
            return self._configured
        if path.resolve() != path:
            raise InputError("lmdb_path leads through a link", hint=HINT, field="lmdb_path")
        if any((above / "data.mdb").exists() for above in path.parents if above.is_relative_to(self._base)):
            raise InputError("lmdb_path is within another store", hint=HINT, field="lmdb_path")
        return path
