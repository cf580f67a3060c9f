"""Stores whose metadata are JSON: Zarr (`meta/index.jsonl`), JSON and NPY files, memory-mapped captures.

The vectors beside them are not read. A line that is cut, as a killed writer leaves it, is one damaged entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from espalier.activations.foreign.entry import BadEntry, entry_of
from espalier.activations.foreign.store import DamagedEntry, Found, store_error
from espalier.errors import InputError, TooLarge
from espalier.files.json_shape import check_shape
from espalier.files.limits import ACTIVATION_ENTRY, ACTIVATION_INDEX, ACTIVATION_OLD_INDEX, FileLimits
from espalier.files.reading import open_file, read_bytes

SHARED = ("sample_index", "key", "prompt_hash")
"""Names a sample in the commit and in the generation of a capture."""


@dataclass(frozen=True, slots=True)
class ZarrStore:
    """`<name>.zarr/meta/index.jsonl`: one line for each entry, all fields but the arrays."""

    path: Path
    layout: str = "zarr"

    def found(self) -> Iterator[Found]:
        """Raises InputError, TooLarge."""
        return _entries(_lines(self.path / "meta" / "index.jsonl"))


@dataclass(frozen=True, slots=True)
class JsonStore:
    """`metadata.jsonl` with a sidecar `activations/<key>.json` for each line, or the older `metadata.json`."""

    path: Path
    layout: str = "json"

    def found(self) -> Iterator[Found]:
        """Raises InputError, TooLarge."""
        lines = self.path / "metadata.jsonl"
        if lines.is_file():
            return _entries(self._with_sidecar(key, fields) for key, fields in _lines(lines))
        path = self.path / "metadata.json"
        whole = _object(read_bytes(path, ACTIVATION_OLD_INDEX), str(path), ACTIVATION_OLD_INDEX)
        entries = whole.get("entries") if isinstance(whole, Mapping) else None
        if not isinstance(entries, Mapping):
            raise store_error(path, 'it has no object "entries"')
        return _entries((str(key), fields) for key, fields in entries.items())

    def _with_sidecar(self, key: str, fields: Any) -> tuple[str, Any]:
        """The line, and what its sidecar has beside: response, model, length, messages."""
        if not isinstance(fields, Mapping) or not _is_name(key):
            return key, fields
        path = self.path / "activations" / f"{key}.json"
        if not path.is_file():
            return key, BadEntry(f"its file {path.name} is not there")
        try:
            beside = _object(read_bytes(path, ACTIVATION_ENTRY), str(path))
        except (InputError, BadEntry) as error:
            return key, BadEntry(str(error))
        return key, {**fields, **beside} if isinstance(beside, Mapping) else BadEntry(f"{path.name} is not an object")


@dataclass(frozen=True, slots=True)
class CaptureStore:
    """`config.json`, `meta.jsonl` (a line is a commit) and `generation.jsonl` of a memory-mapped capture. The commits
    and the generations stand in the same order; a generation without a commit was not finished."""

    path: Path
    layout: str = "memmap"

    def found(self) -> Iterator[Found]:
        """Raises InputError, TooLarge."""
        config = _object(read_bytes(self.path / "config.json", ACTIVATION_ENTRY), str(self.path / "config.json"))
        model = str(config.get("model_name") or "") if isinstance(config, Mapping) else ""
        return _entries(self._read_committed(), model=model)

    def _read_committed(self) -> Iterator[tuple[str, Any]]:
        """A crash between the two writes leaves one generation that no commit follows: it is passed over where it
        names another sample than the commit does."""
        generations = _lines(self.path / "generation.jsonl")
        for key, commit in _lines(self.path / "meta.jsonl"):
            if not isinstance(commit, Mapping):
                yield key, commit
                continue
            for _, record in generations:
                if isinstance(record, Mapping) and _is_of(record, commit):
                    yield key, _rename_generation(record, commit)
                    break
            else:
                yield key, BadEntry("generation.jsonl has no line for it")
                generations = iter(())


def _is_of(record: Mapping[str, Any], commit: Mapping[str, Any]) -> bool:
    """Whether a generation is the one that was committed, as far as both name what they are about."""
    return all(record[name] == commit[name] for name in SHARED if name in record and name in commit)


def _rename_generation(record: Mapping[str, Any], commit: Mapping[str, Any]) -> Mapping[str, Any]:
    """Such a record calls its response `generation`, as inference files do."""
    fields = {**commit, **record}
    return fields if "response" in fields else {**fields, "response": fields.get("generation")}


def _entries(entries: Any, *, model: str = "") -> Iterator[Found]:
    for key, fields in entries:
        try:
            if isinstance(fields, BadEntry):
                raise fields
            yield entry_of(key, fields, model=model)
        except BadEntry as reason:
            yield DamagedEntry(key, str(reason))


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Each line with its key, or its place where it has none; a BadEntry for a line that is no JSON object."""
    with open_file(path, ACTIVATION_INDEX) as file:
        for number, line in enumerate(_cut_lines(file, path), 1):
            if not line.strip():
                continue
            place = f"{path.name}, line {number}"
            try:
                fields = _object(line, place)
            except (BadEntry, TooLarge) as error:
                yield place, BadEntry(str(error))
                continue
            key = fields.get("key") if isinstance(fields, Mapping) else None
            yield (key if isinstance(key, str) else place), fields


def _cut_lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Lines within the limit on one entry. Raises TooLarge."""
    while line := file.readline(ACTIVATION_ENTRY.bytes + 1):
        if len(line) > ACTIVATION_ENTRY.bytes:
            raise TooLarge(f"{path} has a line of more than {ACTIVATION_ENTRY.bytes:,} bytes", field="store")
        yield line


def _object(data: bytes, source: str, reader: FileLimits = ACTIVATION_ENTRY) -> Any:
    """Parsed JSON. Raises BadEntry, TooLarge."""
    check_shape(data, reader, source)
    try:
        return json.loads(data)
    except ValueError as error:
        raise BadEntry(f"it is no JSON: {error}"[:200]) from error


def _is_name(key: str) -> bool:
    """Whether this key can be a file's name: one that leads out of the folder is not followed."""
    return bool(key) and len(key) < 200 and not set(key) & set("/\\\0") and key not in (".", "..")
