"""Vectors of a store for other programs: safetensors, npz, Zarr, an index in Parquet, and iterators of arrays.

It writes new files and folders only. bfloat16 and int8 are written as float32, which holds their values exactly.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from espalier.activations.store.base import ActivationStore
from espalier.activations.store.legacy import export_legacy
from espalier.activations.store.record import RequestRecord
from espalier.errors import InputError, OutputError
from espalier.optional import optional_imports

if TYPE_CHECKING:
    import torch

ROWS_A_CHUNK = 1024
INDEX = (
    "key",
    "prompt_hash",
    "request_id",
    "trace_id",
    "run_id",
    "model",
    "timestamp",
    "input_length",
    "hidden",
    "dtype",
)
"""Columns of the Parquet index that are fields of the record."""


def to_numpy(
    store: ActivationStore, site: str, layer: int, keys: Iterable[str] | None = None
) -> Iterator[tuple[RequestRecord, NDArray[Any]]]:
    """Each request's record and its vectors, `(positions, hidden)` float16 or float32; row i is position
    `record.positions[i]`. Requests without that site and layer are passed over. Raises as `ActivationStore.vectors`."""
    for key in store.keys() if keys is None else keys:
        record = store.record(key)
        if record.has_activations and site in record.sites and layer in record.layers:
            yield record, store.vectors(key, site, layer)


def to_torch(
    store: ActivationStore, site: str, layer: int, keys: Iterable[str] | None = None
) -> Iterator[tuple[RequestRecord, torch.Tensor]]:
    """As `to_numpy`, with tensors on the CPU: `(positions, hidden)` float16 or float32. Raises MissingDependency."""
    with optional_imports("transformers"):
        import torch  # noqa: PLC0415  # an extra
    for record, values in to_numpy(store, site, layer, keys):
        yield record, torch.from_numpy(values.copy())


def export(store: ActivationStore, target: str | Path, form: str, keys: Iterable[str] | None = None) -> int:
    """Write requests to a new file or folder, in a form of `FORMS`. Returns how many. Raises InputError for an unknown
    form or a target that is there, OutputError, MissingDependency, and as `ActivationStore.captured`."""
    if form not in FORMS:
        raise InputError(f"the form is {form!r}", hint=f"one of {', '.join(FORMS)}", field="form")
    path = Path(target).expanduser()
    if path.exists():
        raise InputError(f"{path} is there already", hint="name a new one", field="output")
    chosen = [*(store.keys() if keys is None else keys)]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        FORMS[form](store, path, chosen)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    return len(chosen)


def _arrays(store: ActivationStore, keys: Iterable[str]) -> Iterator[tuple[str, NDArray[Any]]]:
    """Names `KEY/SITE/LAYER` and arrays `(positions, hidden)`; `KEY/positions (n,) int64` beside them."""
    for key in keys:
        captured = store.captured(key)
        yield f"{key}/positions", np.array(captured.record.positions, dtype=np.int64)
        for (site, layer), values in captured.vectors.items():
            yield f"{key}/{site}/{layer:03d}", values


def _records(store: ActivationStore, keys: Iterable[str]) -> dict[str, Any]:
    return {key: store.record(key).to_json() for key in keys}


def _safetensors(store: ActivationStore, path: Path, keys: list[str]) -> None:
    """All in memory at once, as the format's writer wants it. The records are JSON under `records` in the metadata."""
    with optional_imports("transformers"):
        from safetensors.numpy import save_file  # noqa: PLC0415  # an extra
    arrays = {name: np.ascontiguousarray(values) for name, values in _arrays(store, keys)}
    save_file(arrays, str(path), metadata={"records": json.dumps(_records(store, keys))})


def _npz(store: ActivationStore, path: Path, keys: list[str]) -> None:
    """One array after the other. The records are an array `records`: the UTF-8 of JSON, as uint8. No pickle is needed
    to read it."""
    import zipfile  # noqa: PLC0415  # only here

    with path.open("xb") as file, zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        text = json.dumps(_records(store, keys)).encode()
        for name, values in (*[("records", np.frombuffer(text, dtype=np.uint8))], *_arrays(store, keys)):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(values), allow_pickle=False)  # type: ignore[no-untyped-call]


def _zarr(store: ActivationStore, path: Path, keys: list[str]) -> None:
    """Zarr version 2, without compression: a group for each request, its record as attributes, its arrays in it."""
    path.mkdir()
    _write_json(path / ".zgroup", {"zarr_format": 2})
    for key in keys:
        group = path / key
        for folder in (group, *(group / site for site in store.record(key).sites)):
            folder.mkdir()
            _write_json(folder / ".zgroup", {"zarr_format": 2})
        _write_json(group / ".zattrs", store.record(key).to_json())
        for name, values in _arrays(store, [key]):
            _zarr_array(path / name, values)


def _zarr_array(folder: Path, values: NDArray[Any]) -> None:
    folder.mkdir()
    rows = max(1, min(ROWS_A_CHUNK, len(values)))
    chunk = (rows, *values.shape[1:])
    _write_json(
        folder / ".zarray",
        {
            "zarr_format": 2,
            "shape": list(values.shape),
            "chunks": list(chunk),
            "dtype": values.dtype.str,
            "compressor": None,
            "fill_value": 0,
            "order": "C",
            "filters": None,
        },
    )
    for number, start in enumerate(range(0, len(values), rows)):
        whole = np.zeros(chunk, dtype=values.dtype)  # a chunk is whole, also the last one
        part = values[start : start + rows]
        whole[: len(part)] = part
        (folder / ".".join([str(number), *["0"] * (values.ndim - 1)])).write_bytes(whole.tobytes())


def _parquet(store: ActivationStore, path: Path, keys: list[str]) -> None:
    """A row for each request: fields of its record, and where its vectors are. No vectors."""
    with optional_imports("parquet"):
        import pyarrow as pa  # noqa: PLC0415  # an extra
        import pyarrow.parquet as pq  # noqa: PLC0415
    rows = []
    for key in keys:
        record = store.record(key)
        row = {name: getattr(record, name, key) for name in INDEX}
        rows.append(
            row
            | {
                "tokens": len(record.response_ids),
                "positions": list(record.positions),
                "sites": list(record.sites),
                "layers": list(record.layers),
            }
        )
    texts = [(name, pa.string()) for name in INDEX[:6]]
    numbers = [
        ("timestamp", pa.float64()),
        ("input_length", pa.int64()),
        ("hidden", pa.int64()),
        ("dtype", pa.string()),
    ]
    lists = [("positions", pa.list_(pa.int64())), ("sites", pa.list_(pa.string())), ("layers", pa.list_(pa.int64()))]
    schema = pa.schema([*texts, *numbers, ("tokens", pa.int64()), *lists])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), str(path))


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value), encoding="ascii")


FORMS: Mapping[str, Callable[[ActivationStore, Path, list[str]], None]] = MappingProxyType(
    {"safetensors": _safetensors, "npz": _npz, "zarr": _zarr, "parquet": _parquet, "legacy": export_legacy}
)
"""How each form is written; `parquet` is an index without vectors, `legacy` a store for HalluLens' tools."""
