"""How a model is opened: what a user sets beside its name. Values; each engine says which of them it takes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

from espalier.errors import InputError

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


LoraPath: TypeAlias = str | os.PathLike[str]
LoraLike: TypeAlias = LoraPath | Lora | tuple[LoraPath, float]
"""A path, a path with a scale, or a Lora."""


def _check_most(name: str, value: int | None, most: int) -> None:
    if value is not None and value > most:
        raise InputError(f"{name} is at most {most}, not {value}", hint="leave it out for the default", field=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """None lets the engine choose. device: `cpu`, `cuda`, `cuda:1`, `mps`. dtype: of the weights. tool_format: how
    calls are written where the chat template does not tell.

    For llama.cpp. context: positions of one sequence, at most what the model was trained for. sequences: how many there
    may be at once; kv_size: tokens that all of them together can hold, shared prefixes counted once. batch_size: tokens
    of one decode. gpu_layers: layers on the GPU, -1 for all. threads: for the forward pass, at most MOST_THREADS.
    kv_type: of the KV cache, one of KV_TYPES. flash_attention: one of FLASH_ATTENTION. lora: adapters, applied
    together. Raises InputError.
    """

    device: str | None = None
    dtype: str | None = None
    tool_format: str | None = None
    context: int | None = None
    sequences: int | None = None
    kv_size: int | None = None
    batch_size: int | None = None
    gpu_layers: int | None = None
    threads: int | None = None
    kv_type: str | None = None
    flash_attention: str | None = None
    lora: tuple[Lora, ...] = ()

    def __post_init__(self) -> None:
        for name in ("context", "sequences", "kv_size", "batch_size", "threads"):
            value = getattr(self, name)
            least = 2 if name == "context" else 1  # a prompt is one token at least, and so is what follows it
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                hint = "a prompt takes one token at least, and its answer another" if value == 1 else ""
                raise InputError(f"{name} is a whole number from {least} on, not {value!r}", hint=hint, field=name)
            _check_most(name, value, MOST_THREADS if name == "threads" else INT32)
        layers = self.gpu_layers
        if layers is not None and (isinstance(layers, bool) or not isinstance(layers, int) or layers < -1):
            raise InputError(f"gpu_layers is a number of layers, or -1 for all, not {layers!r}", field="gpu_layers")
        _check_most("gpu_layers", layers, INT32)
        for name, known in (("kv_type", KV_TYPES), ("flash_attention", FLASH_ATTENTION)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise InputError(f"unknown {name} {value!r}", hint=f"one of {', '.join(known)}", field=name)

    def over(self, defaults: EngineOptions) -> EngineOptions:
        """These, and what they leave open as `defaults` have it."""
        unset = {f.name: getattr(defaults, f.name) for f in fields(self) if getattr(self, f.name) in (None, ())}
        return replace(self, **unset)

    def check_only(self, engine: str, taken: Iterable[str]) -> None:
        """Raises InputError for an option that was set and that the engine does not take."""
        known = {*taken, "tool_format"}
        for name in self._set():
            if name not in known:
                hint = f"it takes {', '.join(sorted(known))}"
                raise InputError(f"the {engine} engine takes no {name}", hint=hint, field=name)

    def only(self, taken: Iterable[str]) -> EngineOptions:
        """Those of them that an engine takes, the others unset."""
        known = {*taken, "tool_format"}
        return EngineOptions(**{name: getattr(self, name) for name in self._set() if name in known})

    def _set(self) -> list[str]:
        return [field.name for field in fields(self) if getattr(self, field.name) not in (None, ())]


DEFAULT = EngineOptions()


def read_lora(given: LoraLike | Sequence[LoraLike] | None) -> tuple[Lora, ...]:
    """One adapter or several, as values. Raises InputError."""
    if given is None:
        return ()
    if isinstance(given, Lora | str | os.PathLike) or _is_pair(given):
        return (_one_lora(given),)
    if not isinstance(given, Sequence):
        raise _no_lora(given)
    return tuple(_one_lora(one) for one in given)


def parse_lora(text: str, *, field: str = "lora") -> Lora:
    """`PATH` or `PATH:SCALE`, as on a command line. A colon with no number behind it belongs to the path."""
    path, colon, scale = text.rpartition(":")
    try:
        return Lora(path=path, scale=float(scale)) if colon and path else Lora(path=text)
    except ValueError:
        return Lora(path=text)
    except InputError as error:
        raise InputError(f"{error.message}: {text!r}", field=field) from error


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
