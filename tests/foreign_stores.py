"""Stores in every layout of the HalluLens project, written from the description of their formats."""

from __future__ import annotations

import hashlib
import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

QUESTION = "Answer in one sentence. Q:{}\n A:"


def sha(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()


def logged(question: str, response: str, *, form: str = f"user: {QUESTION}", **more: Any) -> dict[str, Any]:
    """The metadata of one request, as the server of June 2025 wrote them."""
    return {
        "prompt": form.format(question),
        "response": response,
        "input_length": 15,
        "model": "meta-llama/Llama-3.1-8B",
        "trim_position": None,
        "timestamp": 1703123456.789,
        "has_activations": True,
        "compression_metadata": {"compression": "none"},
        "logging_config": {"target_layers": "all", "sequence_mode": "all"},
    } | more


def write_lmdb(path: Path, values: Mapping[str, bytes], *, map_size: int = 1 << 26) -> None:
    import lmdb

    path.mkdir(parents=True, exist_ok=True)
    with lmdb.open(str(path), map_size=map_size) as base, base.begin(write=True) as writing:
        for key, value in values.items():
            writing.put(key.encode(), value)


def keyed(entries: Sequence[Mapping[str, Any]], keys: Sequence[str] | None) -> dict[str, Mapping[str, Any]]:
    return dict(zip(keys or [sha(one["prompt"]) for one in entries], entries, strict=True))


def write_pair(
    path: Path, entries: Sequence[Mapping[str, Any]], keys: Sequence[str] | None = None, *, map_size: int = 1 << 26
) -> Path:
    """The two environments: that of vectors (here without any), and that of metadata, which is read."""
    write_lmdb(path, {"x": b"not to be read"})
    write_lmdb(
        path.with_name(path.name + "_metadata"),
        {k: pickle.dumps(dict(e)) for k, e in keyed(entries, keys).items()},
        map_size=map_size,
    )
    return path


def write_single(path: Path, entries: Sequence[Mapping[str, Any]], keys: Sequence[str] | None = None) -> Path:
    """The oldest logs: one environment, with vectors beside the texts."""
    import numpy as np

    vectors = {"all_layers_activations": [np.zeros((1, 3, 4), np.float16), None]}
    write_lmdb(path, {k: pickle.dumps(dict(e) | vectors) for k, e in keyed(entries, keys).items()})
    return path


def write_zarr(path: Path, entries: Sequence[Mapping[str, Any]], keys: Sequence[str] | None = None) -> Path:
    lines = []
    for key, one in keyed(entries, keys).items():
        fields = {k: v for k, v in one.items() if k not in ("timestamp", "input_length")}
        lines.append({"key": key, "prompt_len": one["input_length"]} | fields)
    (path / "meta").mkdir(parents=True)
    (path / "meta" / "index.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines), "utf-8")
    return path


def write_json(path: Path, entries: Sequence[Mapping[str, Any]], keys: Sequence[str] | None = None) -> Path:
    (path / "activations").mkdir(parents=True)
    short = ("prompt", "has_activations", "timestamp", "request_id", "sample_index")
    with (path / "metadata.jsonl").open("w", encoding="utf-8") as file:
        for key, one in keyed(entries, keys).items():
            file.write(json.dumps({"key": key} | {k: v for k, v in one.items() if k in short}) + "\n")
            (path / "activations" / f"{key}.json").write_text(json.dumps(dict(one)), "utf-8")
    return path


def write_old_json(path: Path, entries: Sequence[Mapping[str, Any]], keys: Sequence[str] | None = None) -> Path:
    path.mkdir(parents=True)
    whole = {"logger_config": {}, "entries": {k: dict(e) for k, e in keyed(entries, keys).items()}}
    (path / "metadata.json").write_text(json.dumps(whole), "utf-8")
    return path


def write_capture(path: Path, entries: Sequence[Mapping[str, Any]], keys: Sequence[str] | None = None) -> Path:
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_name": "meta-llama/Llama-3.1-8B", "num_layers": 2}), "utf-8")
    with (path / "meta.jsonl").open("w") as commits, (path / "generation.jsonl").open("w") as generations:
        for number, (key, one) in enumerate(keyed(entries, keys).items()):
            commit = {"sample_index": number, "key": key, "prompt_hash": sha(one["prompt"]), "prompt_len": 15}
            record = {"sample_index": number, "prompt": one["prompt"], "generation": one["response"], "answer": "x"}
            commits.write(json.dumps(commit) + "\n")
            generations.write(json.dumps(record) + "\n")
    return path


WRITERS = {
    "lmdb": write_pair,
    "lmdb-single": write_single,
    "zarr": write_zarr,
    "json": write_json,
    "json-old": write_old_json,
    "memmap": write_capture,
}
