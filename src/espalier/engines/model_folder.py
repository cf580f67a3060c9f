"""Looks through a model's folder before transformers opens it: kinds of files, sizes, and numbers that decide how much
is built.

transformers believes a config: a billion layers are built one by one, and missing weights are made in the size that it
states. It loads nothing and imports no heavy library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from espalier.errors import InputError, UnknownModel
from espalier.files.json_shape import check_shape
from espalier.files.limits import MODEL_JSON, TOKENIZER
from espalier.files.reading import read_text, shortened
from espalier.tokens.tokenizer_json import check_tokenizer
from espalier.tokens.trial import try_expressions

SMALL = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "model.safetensors.index.json",
    "pytorch_model.bin.index.json",
    "vocab.json",
)
SUFFIXES = frozenset({".json", ".jinja", ".model", ".txt", ".safetensors", ".bin", ".pt", ".tiktoken"})
WEIGHTS = frozenset({".safetensors", ".bin", ".pt"})
LARGEST = 1 << 31
MAX_PARTS = 8_192
"""The most layers, experts or heads."""
PARTS = ("layer", "expert", "head", "block")
PER_BYTE = 16
"""A byte of a weights file holds at most so many weights: none have less than half a bit."""
HINT = "fetch the model again"


def local_folder(name: str) -> Path | None:
    """The folder of a local model; None for a name on the hub. Raises UnknownModel."""
    path = Path(name).expanduser()
    if path.is_dir():
        if (path / "config.json").is_file():
            return path
        raise UnknownModel(f"the folder {name} holds no model", hint="it has no config.json", field="model")
    if path.exists():
        raise UnknownModel(f"{name} is a file", hint="give the folder that it is in", field="model")
    # Hub names are `name` or `owner/name`.
    if not name or name.startswith((".", "~", os.sep)) or name.count("/") > 1:
        raise UnknownModel(f"there is no folder {name!r}", field="model")
    return None


def check_folder(folder: Path) -> None:
    """Raises InputError naming the file and the field, TooLarge, VocabError."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if entry.suffix in SUFFIXES)
        for entry in entries:
            if not entry.is_file():  # a pipe would wait for its writer, a device never end
                raise InputError(f"{entry} is not a file", hint=HINT, field="model")
        weights = sum(entry.stat().st_size for entry in entries if entry.suffix in WEIGHTS)
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror or error}", field="model") from error
    there = {entry.name for entry in entries}
    objects = {name: _object(folder / name) for name in SMALL if name in there}
    if "config.json" in objects:
        check_config(objects["config.json"], str(folder / "config.json"), weights=weights)
    if "tokenizer.json" in there:
        path = folder / "tokenizer.json"
        text = read_text(path, TOKENIZER)
        check_shape(text, TOKENIZER, str(path))
        spec = _parse_json(text, path)
        check_tokenizer(spec)
        try_expressions(spec)


def check_config(config: Mapping[str, Any], source: str, *, weights: int) -> None:
    """weights: bytes of the weights files, 0 if there are none. Raises InputError naming the field."""
    for where, value in _numbers(config):
        name = where.rpartition(".")[2].lower()
        most = MAX_PARTS if any(part in name for part in PARTS) else LARGEST
        if name.endswith(("_dim", "_size")):
            most = LARGEST
        if abs(value) > most:
            raise InputError(
                f"{source}: {where} is {shortened(f'{value:,}', 30)}, and the limit is {most:,}",
                hint=HINT,
                field="model",
            )
    for level in (config, config.get("text_config")):
        if isinstance(level, Mapping) and weights:
            rows, width = level.get("vocab_size"), level.get("hidden_size", level.get("n_embd"))
            if type(rows) is int and type(width) is int and rows * width > PER_BYTE * weights:
                raise InputError(
                    f"{source} states {rows:,} times {width:,} embeddings, which do not fit into {weights:,} bytes",
                    hint=HINT,
                    field="model",
                )


def _numbers(value: Any, where: str = "") -> Iterator[tuple[str, int]]:
    left = [(where, value)]
    while left:
        path, node = left.pop()
        if isinstance(node, Mapping):
            left += [(f"{path}.{key[:60]}" if path else key[:60], inner) for key, inner in node.items()]
        elif isinstance(node, list):
            left += [(path, inner) for inner in node]
        elif type(node) is int:
            yield path, node


def _object(path: Path) -> Mapping[str, Any]:
    text = read_text(path, MODEL_JSON)
    check_shape(text, MODEL_JSON, str(path))
    parsed = _parse_json(text, path)
    if not isinstance(parsed, Mapping):
        raise InputError(f"{path} is not a JSON object", hint=HINT, field="model")
    return parsed


def _parse_json(text: str, path: Path) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}", hint=HINT, field="model") from error
