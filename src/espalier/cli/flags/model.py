"""Which model a command opens and how, from flags: llama.cpp's names for what llama.cpp calls so.

What the flags mean, and which engine takes them, is `engines/options.py`'s affair and the engines' own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from espalier import api
from espalier.cli.columns import WIDTH, middle, shown
from espalier.engines.open import choose
from espalier.engines.options import FLASH_ATTENTION, KV_TYPES, parse_lora
from espalier.wiring import App

SPELLED = {"llamacpp": "llama.cpp"}  # others are called as they are

Model = Annotated[
    str | None, typer.Option("--model", "-m", help="GGUF file, folder or hub name. Default: the demo model.")
]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, mps.")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16, float16, auto.")]
CtxSize = Annotated[int | None, typer.Option("--ctx-size", "-c", help="GGUF: tokens of one sequence.", metavar="N")]
GpuLayers = Annotated[
    int | None, typer.Option("--gpu-layers", "-ngl", help="GGUF: layers on the GPU, -1 for all.", metavar="N")
]
Threads = Annotated[int | None, typer.Option("--threads", "-t", help="GGUF: threads of the model.", metavar="N")]
KvType = Annotated[str | None, typer.Option(help=f"GGUF: of the KV cache: {', '.join(KV_TYPES)}.", metavar="TYPE")]
KvSize = Annotated[int | None, typer.Option(help="GGUF: tokens that the KV cache holds.", metavar="N")]
BatchSize = Annotated[int | None, typer.Option("--batch-size", "-b", help="GGUF: tokens of one pass.", metavar="N")]
FlashAttn = Annotated[
    str | None, typer.Option("--flash-attn", "-fa", help=f"GGUF: {', '.join(FLASH_ATTENTION)}.", metavar="WHEN")
]
LoraFiles = Annotated[
    list[str] | None, typer.Option("--lora", help="GGUF: an adapter; repeat it.", metavar="FILE[:SCALE]")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFlags:
    """The flags that open a model; None is not given."""

    model: str | None = None
    device: str | None = None
    dtype: str | None = None
    ctx_size: int | None = None
    gpu_layers: int | None = None
    threads: int | None = None
    kv_type: str | None = None
    kv_size: int | None = None
    batch_size: int | None = None
    flash_attn: str | None = None
    lora: Sequence[str] | None = None

    def load(self, app: App) -> api.LoadedEngine:
        """Raises what `espalier.load` raises."""
        return api.load(
            self.model,
            device=self.device,
            dtype=self.dtype,
            context=self.ctx_size,
            kv_size=self.kv_size,
            batch_size=self.batch_size,
            gpu_layers=self.gpu_layers,
            threads=self.threads,
            kv_type=self.kv_type,
            flash_attention=self.flash_attn,
            lora=[parse_lora(one) for one in self.lora or ()],
            app=app,
        )

    def described(self, engine: api.LoadedEngine, app: App) -> str:
        """What `load` opened, on one line of a terminal: its name, which engine runs it, and how much it reads."""
        kind = choose(app.model_name(self.model))
        rest = f", {SPELLED.get(kind, kind)}, {engine.capabilities.max_context} tokens of context"
        return middle(shown(engine.name), WIDTH - len(rest)) + rest
