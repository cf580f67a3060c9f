"""Opens a GGUF file in llama-completion."""

from __future__ import annotations

from espalier.constraints.compiler import NOWHERE, Folders
from espalier.engines.options import DEFAULT, EngineOptions
from espalier.errors import InputError
from espalier.upstream.llama_cli.engine import SECONDS, LlamaCliEngine
from espalier.upstream.llama_cli.program import find_program

FLAGS = {
    "context": "--ctx-size",
    "gpu_layers": "--gpu-layers",
    "threads": "--threads",
    "batch_size": "--batch-size",
    "flash_attention": "--flash-attn",
}
TAKES = ("binary", "timeout", "kv_type", *FLAGS)


def open_engine(model: str, *, options: EngineOptions = DEFAULT, folders: Folders = NOWHERE) -> LlamaCliEngine:
    """model: a GGUF file. Raises UnknownModel, InputError, CapabilityError for a program that is none."""
    options.check_only("llama-cli", TAKES)
    if not model:
        raise InputError("llama-cli needs a model", hint="--model FILE.gguf", field="model")
    program = find_program(options.binary)
    arguments = []
    given = {flag: getattr(options, name) for name, flag in FLAGS.items()}
    given |= {"--cache-type-k": options.kv_type, "--cache-type-v": options.kv_type}
    for flag, value in given.items():
        if value is not None:
            arguments += [flag, str(value)]
    return LlamaCliEngine(
        model,
        program,
        seconds=options.timeout or SECONDS,
        arguments=arguments,
        folders=folders,
        tool_format=options.tool_format,
    )
