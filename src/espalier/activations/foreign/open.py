"""Finds out which layout a store has, and opens it for reading."""

from __future__ import annotations

import os
from pathlib import Path

from espalier.activations.foreign.lines import CaptureStore, JsonStore, ZarrStore
from espalier.activations.foreign.lmdb import lmdb_store
from espalier.activations.foreign.own import LAYOUT, own_store
from espalier.activations.foreign.salvage import salvaged_store
from espalier.activations.foreign.store import RequestStore, store_error

LAYOUTS = {
    LAYOUT: "a folder that espalier activations capture wrote",
    "lmdb": "two LMDB environments, NAME and NAME_metadata",
    "lmdb-single": "one LMDB environment (before May 2025)",
    "zarr": "NAME.zarr with meta/index.jsonl",
    "json": "a folder with metadata.jsonl or metadata.json",
    "memmap": "a folder with config.json, meta.jsonl and generation.jsonl",
}


def open_store(path: str | os.PathLike[str], *, salvage_in: Path | None = None) -> RequestStore:
    """The store at a path; nothing is read yet and nothing is created. salvage_in: read what is left of a damaged LMDB
    store, in a copy that lies in this folder meanwhile; the other layouts pass over what is damaged anyway. Raises
    InputError for a path where there is none, naming what was looked for."""
    given = Path(path).expanduser()
    if salvage_in is not None and (salvaged := salvaged_store(given, salvage_in)) is not None:
        return salvaged
    own = own_store(given)
    if own is not None:
        return own
    store = lmdb_store(given)
    if store is not None:
        return store
    if (given / "meta" / "index.jsonl").is_file():
        return ZarrStore(given)
    if (given / "meta.jsonl").is_file() and (given / "generation.jsonl").is_file():
        return CaptureStore(given)
    if (given / "metadata.jsonl").is_file() or (given / "metadata.json").is_file():
        return JsonStore(given)
    if not given.exists():
        raise store_error(given, "there is nothing at this path", hint="is the path that of the store itself?")
    raise store_error(
        given, "no layout of a store is known that looks so", hint=f"known: {'; '.join(LAYOUTS.values())}"
    )
