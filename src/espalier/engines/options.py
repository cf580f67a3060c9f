"""The table of engine options, set when a model is opened: help, range and flags of each.

From the table an option is read from `ESPALIER_…`, checked, and offered as a flag by every command that opens a model.
Each engine lists the options that it takes in `TAKES`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, TypeAlias

from espalier.errors import InputError
from espalier.fields import Field, WrongValue, entries

SCHEMAS_AS = ("gbnf", "json_schema")
KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
INT32 = 2**31 - 1  # what llama.cpp takes numbers as
MOST_THREADS = 512  # GGML_MAX_N_THREADS: more end the process
FLASH_ATTENTION = ("auto", "on", "off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """A LoRA adapter as a GGUF file. scale: its weight, 1.0 as it was trained."""

    path: str
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.path.strip():
            raise InputError("the path of a LoRA adapter is empty", field="lora")
        if isinstance(self.scale, bool) or not isinstance(self.scale, int | float) or not math.isfinite(self.scale):
            raise InputError(f"the scale of a LoRA adapter is a number, not {self.scale!r}", field="lora")

    def __str__(self) -> str:
        """As on a command line: `PATH:SCALE`."""
        return f"{self.path}:{self.scale:g}"


LoraPath: TypeAlias = str | os.PathLike[str]
LoraLike: TypeAlias = LoraPath | Lora | tuple[LoraPath, float]
"""A path, a path with a scale, or a Lora."""


def parse_lora(text: str, *, field: str = "lora") -> Lora:
    """`PATH` or `PATH:SCALE`, as on a command line. A colon with no number after it belongs to the path. Raises
    InputError."""
    path, colon, scale = text.rpartition(":")
    try:
        return Lora(path=path, scale=float(scale)) if colon and path else Lora(path=text)
    except ValueError:
        return Lora(path=text)
    except InputError as error:
        raise InputError(f"{error.message}: {text!r}", field=field) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """How to open a model; None lets the engine choose. Raises InputError naming the option.

    From `sequences` to `lora` the fields are llama.cpp's; docs/llamacpp.md has their defaults. The others are for
    servers and programs of others: docs/upstream.md.
    """

    device: Annotated[str | None, Field("Device: cpu, cuda, cuda:1, mps.", flags=("--device",))] = None
    dtype: Annotated[
        str | None, Field("Type of the weights: float32, bfloat16, float16, auto.", flags=("--dtype",))
    ] = None
    draft_model: Annotated[
        str | None,
        Field(
            "Smaller model with the same vocabulary, which drafts for --strategy draft.",
            flags=("--draft-model",),
            metavar="MODEL",
        ),
    ] = None
    tool_format: Annotated[str | None, Field("Wire format of calls, if the chat template does not tell.")] = None
    sequences: Annotated[
        int | None, Field("GGUF: sequences at once.", least=1, most=INT32, flags=("--parallel", "-np"), metavar="N")
    ] = None
    context: Annotated[
        int | None,
        Field(
            "GGUF: context of one sequence, in tokens.",
            least=2,
            most=INT32,
            flags=("--ctx-size", "-c"),
            metavar="N",
            hint="a prompt is at least one token, and its answer another",
        ),
    ] = None
    gpu_layers: Annotated[
        int | None,
        Field(
            "GGUF: layers on the GPU, -1 for all.", least=-1, most=INT32, flags=("--gpu-layers", "-ngl"), metavar="N"
        ),
    ] = None
    threads: Annotated[
        int | None,
        Field("GGUF: threads of the forward pass.", least=1, most=MOST_THREADS, flags=("--threads", "-t"), metavar="N"),
    ] = None
    kv_type: Annotated[
        str | None,
        Field(
            f"GGUF: type of the KV cache: {', '.join(KV_TYPES)}.",
            choices=KV_TYPES,
            flags=("--kv-type",),
            metavar="TYPE",
        ),
    ] = None
    kv_size: Annotated[
        int | None,
        Field("GGUF: size of the KV cache, in tokens.", least=1, most=INT32, flags=("--kv-size",), metavar="N"),
    ] = None
    kv_unified: Annotated[
        bool | None,
        Field(
            "GGUF: all sequences share one KV cache, or each has its own; default: its own where memory allows.",
            flags=("--kv-unified/--no-kv-unified", "-kvu/-no-kvu"),
        ),
    ] = None
    batch_size: Annotated[
        int | None, Field("GGUF: tokens of one decode.", least=1, most=INT32, flags=("--batch-size", "-b"), metavar="N")
    ] = None
    flash_attention: Annotated[
        str | None,
        Field(
            f"GGUF: flash attention: {', '.join(FLASH_ATTENTION)}.",
            choices=FLASH_ATTENTION,
            flags=("--flash-attn", "-fa"),
            metavar="WHEN",
        ),
    ] = None
    lora: Annotated[
        tuple[Lora, ...],
        Field("GGUF: a LoRA adapter; repeat it.", parse=parse_lora, flags=("--lora",), metavar="FILE[:SCALE]"),
    ] = ()
    engine: Annotated[
        str | None,
        Field(
            "What runs the model, if its name does not tell: llama-server, openai, llama-cli, a plug-in's.",
            flags=("--engine",),
            metavar="NAME",
        ),
    ] = None
    url: Annotated[
        str | None, Field("Address of a llama-server or OpenAI-compatible server.", flags=("--url",), metavar="URL")
    ] = None
    key_file: Annotated[
        str | None, Field("File that holds the key of that server.", flags=("--key-file",), metavar="FILE")
    ] = None
    timeout: Annotated[
        float | None,
        Field("Seconds that a server may be silent, or a program may run.", above=0, flags=("--timeout",), metavar="S"),
    ] = None
    repair: Annotated[
        int | None,
        Field(
            "openai: take constraints that the server cannot hold, check all, and ask again up to N times.",
            least=0,
            most=100,
            flags=("--repair",),
            metavar="N",
        ),
    ] = None
    schema_as: Annotated[
        str | None,
        Field(
            "llama-server: send schemas as our grammar (gbnf), or leave them to its own json_schema.",
            choices=SCHEMAS_AS,
            flags=("--schema-as",),
            metavar="FORM",
        ),
    ] = None
    binary: Annotated[
        str | None,
        Field("llama-cli: path of llama-completion, or of an old llama-cli.", flags=("--binary",), metavar="FILE"),
    ] = None

    def __post_init__(self) -> None:
        for name, entry in entries(EngineOptions).items():
            try:
                entry.checked(getattr(self, name))
            except WrongValue as error:
                hint = entry.field.hint or "leave it out for the default"
                raise InputError(f"{name} is {error.expected}, not {error.value!r}", hint=hint, field=name) from error

    def over(self, defaults: EngineOptions) -> EngineOptions:
        """These options, with those of `defaults` where they are not set."""
        unset = {f.name: getattr(defaults, f.name) for f in fields(self) if getattr(self, f.name) in (None, ())}
        return replace(self, **unset)

    def check_only(self, engine: str, taken: Iterable[str]) -> None:
        """Raises InputError for an option that is set and that the engine does not take."""
        known = {*taken, *ALWAYS}
        for name in self._set():
            if name not in known:
                hint = f"it takes {', '.join(sorted(known))}"
                raise InputError(f"the {engine} engine takes no {name}", hint=hint, field=name)

    def only(self, taken: Iterable[str]) -> EngineOptions:
        """The options that an engine takes; the others are not set."""
        known = {*taken, *ALWAYS}
        return EngineOptions(**{name: getattr(self, name) for name in self._set() if name in known})

    def _set(self) -> list[str]:
        return [field.name for field in fields(self) if getattr(self, field.name) not in (None, ())]


DEFAULT = EngineOptions()
ONLY_FASTER = ("gpu_layers",)
"""Options that change the speed alone: where a build lacks what they need, a command goes on without, and says so."""
ALWAYS = ("tool_format", "engine")
"""Options of every engine."""


def read_lora(given: LoraLike | Sequence[LoraLike] | None) -> tuple[Lora, ...]:
    """One adapter or several, as values. Raises InputError."""
    if given is None:
        return ()
    if isinstance(given, Lora | str | os.PathLike) or _is_pair(given):
        return (_one_lora(given),)
    if not isinstance(given, Sequence):
        raise _no_lora(given)
    return tuple(_one_lora(one) for one in given)


def _is_pair(given: object) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int | float)


def _one_lora(given: object) -> Lora:
    if isinstance(given, Lora):
        return given
    path, scale = given if isinstance(given, tuple) and _is_pair(given) else (given, 1.0)
    if not isinstance(path, str | os.PathLike):
        raise _no_lora(given)
    return Lora(path=os.fsdecode(path), scale=scale)


def _no_lora(given: object) -> InputError:
    return InputError(f"{given!r} is no LoRA adapter", hint="a path, or (path, scale)", field="lora")
