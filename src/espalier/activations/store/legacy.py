"""Writes a store that HalluLens' own tools read: two LMDB environments of pickles, for vectors and for metadata.

Only for those tools: whoever reads such a store with `pickle.load` runs what is in it. What is written here holds plain
values, and NumPy arrays where the original has tensors: `torch.as_tensor` makes tensors of them. Our own reader of
foreign stores takes it (`foreign/`), without running a pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from espalier.activations.store.base import ActivationStore
from espalier.activations.store.dtypes import from_bfloat16_bits
from espalier.activations.store.record import CapturedVectors, RequestRecord
from espalier.errors import InputError, OutputError
from espalier.optional import optional_imports

SUFFIX = "_metadata"
MAP_BYTES = 16 << 30
"""As the original's. Nothing is taken from the disk before it is written."""


def metadata_of(record: RequestRecord) -> dict[str, Any]:
    """The original's flat dict: texts, numbers, lists and dicts only."""
    metadata: dict[str, Any] = {
        "prompt": record.prompt,
        "response": record.response,
        "input_length": record.input_length,
        "model": record.model,
        "trim_position": record.trim_position,
        "timestamp": record.timestamp,
        "has_activations": record.has_activations,
        "compression_metadata": {"compression": "none"},
        "prompt_hash": record.prompt_hash,
        "multi_sample": record.sample_index is not None,
        "sample_group_id": record.sample_group_id,
        "sample_index": record.sample_index,
        "request_id": record.request_id,
    }
    if record.messages is not None:
        metadata["messages"] = [dict(message) for message in record.messages]
    if record.has_activations:
        metadata["logging_config"] = {"target_layers": record.target_layers, "sequence_mode": record.sequence_mode}
    return metadata


def entry_of(captured: CapturedVectors) -> dict[str, Any]:
    """The original's entry: for each layer `(1, positions, hidden)` float16 or float32, or None where it was not
    captured. Raises InputError for states of other sites than the residual stream."""
    record = captured.record
    if record.has_activations and record.sites != ("residual",):
        raise InputError("that layout has the residual stream alone", hint="sites=residual", field="sites")
    count = max(record.layers, default=-1) + 1
    layers: list[Any] = [None] * count
    for (_, number), values in captured.vectors.items():
        plain = from_bfloat16_bits(values) if values.dtype == np.uint16 else values
        layers[number] = np.ascontiguousarray(plain)[None]
    fields = {name: value for name, value in metadata_of(record).items() if name != "timestamp"}
    return fields | {"all_layers_activations": layers}


def export_legacy(store: ActivationStore, target: Path, keys: Iterable[str]) -> None:
    """Write the two environments `target` and `target_metadata`. The key of a prompt's first request is its SHA-256, as
    in the original; further ones get `SHA-256_…`, as newer servers write. Raises InputError, OutputError,
    MissingDependency."""
    with optional_imports("activations"):
        import lmdb  # noqa: PLC0415  # an extra
    beside = target.with_name(target.name + SUFFIX)
    if beside.exists():
        raise InputError(f"{beside} is there already", hint="name a new one", field="output")
    taken: set[str] = set()
    try:
        with (
            lmdb.open(str(target), map_size=MAP_BYTES) as vectors,
            lmdb.open(str(beside), map_size=MAP_BYTES) as metadata,
        ):
            for key in keys:
                captured = store.captured(key)
                digest = captured.record.prompt_hash
                name = digest if digest not in taken else key
                taken.add(digest)
                value = {"data": entry_of(captured), "metadata": {"compression": "none"}}
                with vectors.begin(write=True) as writing:
                    writing.put(name.encode(), pickle.dumps(value))
                with metadata.begin(write=True) as writing:
                    writing.put(name.encode(), pickle.dumps(metadata_of(captured.record)))
    except lmdb.Error as error:
        raise OutputError(f"cannot write {target}: {error}") from error
