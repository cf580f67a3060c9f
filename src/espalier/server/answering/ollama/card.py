"""What `/api/tags`, `/api/ps` and `/api/show` say of the model: read from its file or folder, and asked of the engine.

What is not known is empty. It loads nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from espalier.chat.wire.detect import detect_format
from espalier.engines.embedding import GivesHidden
from espalier.engines.gguf.header import read_header
from espalier.errors import EspalierError, NotHere
from espalier.server.asking.fim import fim_tokens
from espalier.server.asking.ollama.ask import DEFAULTS, LATEST
from espalier.server.asking.thinking import can_reason
from espalier.server.process.state import Process

Json = dict[str, Any]
NEVER = "9999-12-31T23:59:59Z"
"""When a model is unloaded that stays loaded."""
QUANTIZATIONS = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    32: "BF16",
}
"""Names of `general.file_type` of a GGUF file."""
WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFile:
    """What the file or the folder of a model says."""

    #: Bytes of the weights; 0 if unknown.
    size: int = 0
    format: str = ""
    family: str = ""
    parameters: str = ""
    quantization: str = ""
    #: Single values of the header, by key.
    values: Json = field(default_factory=dict)


@lru_cache(maxsize=8)
def read_model_file(path: str) -> ModelFile:
    """path: a GGUF file or a folder; for anything else, such as a name of a hub, nothing is known."""
    place = Path(path).expanduser()
    if not path:
        return ModelFile()
    if place.is_dir():
        return _read_folder(place)
    if not place.is_file():
        return ModelFile()
    try:
        header = read_header(place)
    except EspalierError:  # it is no GGUF file; the engine that opened it knows what it is
        return ModelFile(size=place.stat().st_size)
    values = header.values
    file_type = values.get("general.file_type")
    return ModelFile(
        size=place.stat().st_size,
        format="gguf",
        family=header.architecture,
        parameters=str(values.get("general.size_label", "")),
        quantization=QUANTIZATIONS.get(file_type, "unknown") if isinstance(file_type, int) else "unknown",
        values={name: value for name, value in values.items() if not name.startswith("tokenizer.")},
    )


def _read_folder(folder: Path) -> ModelFile:
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the engine that opened it knows what it is
        config = {}
    size = next((size for kind in WEIGHTS if (size := sum(file.stat().st_size for file in folder.glob(kind)))), 0)
    return ModelFile(
        size=size,
        format="safetensors",
        family=str(config.get("model_type", "")),
        quantization=str(config.get("dtype") or config.get("torch_dtype") or "unknown").upper(),
    )


def model_file(process: Process) -> ModelFile:
    """What is known of the file or folder of the model that is served."""
    return read_model_file(process.settings.model_name or process.app.settings.model or "")


def list_entries(process: Process, *, is_running: bool = False) -> list[Json]:
    """An entry for each name of the model, as in `/api/tags`, or as in `/api/ps`."""
    file = model_file(process)
    digest = hashlib.sha256(process.fingerprint.encode()).hexdigest()
    entries = []
    for name in process.names:
        tagged = name if ":" in name.rpartition("/")[2] else name + LATEST
        entry: Json = {"name": tagged, "model": tagged, "size": file.size, "digest": digest, "details": _details(file)}
        if is_running:
            entry |= {"expires_at": NEVER, "size_vram": 0, "context_length": process.engine.capabilities.max_context}
        else:
            entry["modified_at"] = _started(process)
        entries.append(entry)
    return entries[:1] if is_running else entries


def describe_model(process: Process) -> Json:
    """The reply of `/api/show`."""
    file, engine = model_file(process), process.engine.engine
    family = file.family or "espalier"
    info: Json = {"general.architecture": family, "general.basename": process.names[0], **file.values}
    if context := process.engine.capabilities.max_context:
        info[f"{family}.context_length"] = context
    reader = engine.hidden if isinstance(engine, GivesHidden) else None
    if reader is not None:
        info[f"{family}.embedding_length"] = reader.size
    parameters = "\n".join(f"{name:<30} {value:g}" for name, value in DEFAULTS.items())
    return {
        "modelfile": f"FROM {process.names[0]}",
        "parameters": parameters,
        "template": "" if engine.template is None else engine.template.source,
        "details": _details(file),
        "model_info": info,
        "capabilities": abilities_of(process),
        "modified_at": _started(process),
    }


def _details(file: ModelFile) -> Json:
    return {
        "parent_model": "",
        "format": file.format,
        "family": file.family,
        "families": [file.family] if file.family else [],
        "parameter_size": file.parameters,
        "quantization_level": file.quantization,
    }


def abilities_of(process: Process) -> list[str]:
    """What the model can do, in Ollama's words."""
    able, engine = ["completion"], process.engine.engine
    reader = engine.hidden if isinstance(engine, GivesHidden) else None
    if engine.template is not None and detect_format(engine.template.source) is not None:
        able.append("tools")
    if can_reason(engine):
        able.append("thinking")
    if engine.vocab is not None:
        try:
            fim_tokens(engine.vocab)
            able.append("insert")
        except NotHere:  # most models fill no gaps
            pass
    if reader is not None and (reader.pooling or process.settings.embedding_pooling):
        able.append("embedding")
    return able


def _started(process: Process) -> str:
    return datetime.fromtimestamp(process.started, UTC).isoformat().replace("+00:00", "Z")
