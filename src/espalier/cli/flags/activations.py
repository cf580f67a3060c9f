"""Flags of captured hidden states: what to capture, and the store that they go to."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from espalier.activations.capture.options import Activations
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.layout import CODECS
from espalier.activations.store.record import CapturedVectors
from espalier.engines.base import Result
from espalier.errors import InputError

TRACES = "traces"
"""The folder within a store that holds the traces of its requests, one file for each trace id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureFlags:
    """Flags that say which hidden states are captured; None is not given."""

    layers: Annotated[
        str | None, typer.Option(help="all (the default), first_half, second_half, or 0,3,-1.", metavar="LAYERS")
    ] = None
    site: Annotated[
        list[str] | None, typer.Option(help="residual (the default), attention, mlp; repeat it.", metavar="SITE")
    ] = None
    positions: Annotated[
        str | None, typer.Option(help="all (the default), prompt, response, last, every N.", metavar="WHICH")
    ] = None
    activation_dtype: Annotated[
        str | None, typer.Option(help="float16 (the default), bfloat16, float32, int8.", metavar="TYPE")
    ] = None
    compression: Annotated[
        str | None, typer.Option(help="Of stored vectors: none (the default), zstd.", metavar="HOW")
    ] = None
    run_id: Annotated[str | None, typer.Option(help="Stored with each request.", metavar="ID")] = None

    def options(self) -> Activations:
        """Raises InputError."""
        if self.compression is not None and self.compression not in CODECS:
            raise InputError(f"--compression {self.compression}", hint=", ".join(CODECS), field="compression")
        given = {
            "layers": None if self.layers is None else _layers(self.layers),
            "sites": None if self.site is None else tuple(self.site),
            "positions": self.positions,
            "dtype": self.activation_dtype,
            "run_id": self.run_id,
        }
        return Activations.from_json({name: value for name, value in given.items() if value is not None})

    @property
    def given(self) -> str | None:
        """The first flag that was given."""
        names = ("layers", "site", "positions", "activation_dtype", "compression", "run_id")
        return next((name for name in names if getattr(self, name) is not None), None)

    def stored(self, store: ActivationStore, result: Result) -> Iterator[tuple[str, CapturedVectors]]:
        """Store a result and its further texts, each with a trace where there is one. Yields keys and what was stored.
        Raises OutputError and as `ActivationStore.put`."""
        for output in (result, *result.others):
            if output.activations is None:
                raise InputError("this result has no hidden states", field="activations")
            trace_id = None
            if output.trace is not None and output.trace.steps:
                trace_id = f"trace-{secrets.token_hex(12)}"
                path = trace_path(store.path, trace_id)
                path.parent.mkdir(exist_ok=True)
                output.trace.save(path, edge="cli")
            changes: dict[str, Any] = {"trace_id": trace_id}
            if self.compression is not None:
                changes["compression"] = self.compression
            captured = replace(output.activations, record=replace(output.activations.record, **changes))
            yield store.put(captured), captured


def trace_path(store: Path, trace_id: str) -> Path:
    """Where the trace of a stored request is. Raises InputError for an id that is no file name."""
    if not trace_id or not all(char.isalnum() or char in "-_." for char in trace_id) or trace_id.startswith("."):
        raise InputError(f"{trace_id!r} is no id of a trace", field="trace")
    return store / TRACES / f"{trace_id}.json"


def _layers(text: str) -> str | tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.strip("[]").split(","))
    except ValueError:
        return text  # a name, which `Activations` checks
