"""LlamaStepModel on files that are opened once, exact unless a test says otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from espalier.decoding.ports import Extend
from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions

DEMO = Path(__file__).parents[1] / "models" / "demo" / "demo.gguf"
EXACT = {"kv_type": "f32", "flash_attention": "off"}

FILES: dict[Path, LlamaFile] = {}


def load(path: Path) -> LlamaFile:
    """Each file once."""
    if path not in FILES:
        FILES[path] = LlamaFile(path, EngineOptions())
    return FILES[path]


def model_of(path: Path, **options: Any) -> LlamaStepModel:
    return LlamaStepModel(load(path), EngineOptions(**({"threads": 1} | EXACT | options)))


def put(model, tokens, wanted="last", sequence=None):
    """Tokens at the end of a new sequence, or of that one; the sequence and a copy of the rows."""
    sequence = model.new() if sequence is None else sequence
    return sequence, model.extend([Extend(sequence=sequence, tokens=tuple(tokens), logits=wanted)])[0].copy()


class Failing:
    """The library, whose decode fails after some calls, having done its work or not."""

    def __init__(self, real: Any, code: int, after: int, *, does: bool) -> None:
        self.real, self.code, self.after, self.does = real, code, after, does

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def llama_decode(self, ctx: Any, batch: Any) -> int:
        self.after -= 1
        if self.after >= 0:
            return int(self.real.llama_decode(ctx, batch))
        if self.does:
            self.real.llama_decode(ctx, batch)
        return self.code
