"""What to capture, as data: layers, sites, positions and number type. It knows no model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from espalier.activations.store.dtypes import DTYPES
from espalier.activations.store.record import SITES
from espalier.errors import InputError

LAYERS = ("all", "first_half", "second_half")
LONGEST_RUN_ID = 200
POSITIONS = ("all", "prompt", "response", "last")
_EVERY = re.compile(r"every ([1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activations:
    """Which hidden states of a run are captured.

    layers: `all`, `first_half`, `second_half`, or numbers from 0; negative ones count from the last. sites: `residual`
    (the stream after a layer, before the final norm), `attention` and `mlp` (what these add to the stream). positions:
    `all`, `prompt`, `response`, `last` (the last one computed), or `every N` (those that N divides). dtype: `float16`,
    `bfloat16`, `float32`, or `int8` with a scale for each vector.
    run_id: kept with each request.

    A position has a vector once the model has read its token. The token that ends a text is not read, so it has none.
    Raises InputError naming the field.
    """

    layers: str | tuple[int, ...] = "all"
    sites: tuple[str, ...] = ("residual",)
    positions: str = "all"
    dtype: str = "float16"
    run_id: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", _layers(self.layers))
        object.__setattr__(self, "sites", _sites(self.sites))
        if self.positions not in POSITIONS and not (
            isinstance(self.positions, str) and _EVERY.fullmatch(self.positions)
        ):
            raise InputError(
                f"positions: {self.positions!r} is not known",
                hint=f"{', '.join(POSITIONS)}, every N",
                field="positions",
            )
        if self.dtype not in DTYPES:
            raise InputError(f"dtype: {self.dtype!r} is not known", hint=", ".join(DTYPES), field="dtype")
        if self.run_id is not None and not (isinstance(self.run_id, str) and 0 < len(self.run_id) <= LONGEST_RUN_ID):
            raise InputError(f"run_id: a text of 1 to {LONGEST_RUN_ID} characters", field="run_id")

    @property
    def every(self) -> int | None:
        """N of `every N`, else None."""
        match = _EVERY.fullmatch(self.positions)
        return None if match is None else int(match[1])

    def numbers(self, count: int) -> tuple[int, ...]:
        """The layers of a model of `count` layers, ascending. Raises InputError for one that it has not."""
        if isinstance(self.layers, str):
            half = count // 2
            start, end = {"all": (0, count), "first_half": (0, half), "second_half": (half, count)}[self.layers]
            return tuple(range(start, end))
        for layer in self.layers:
            if not -count <= layer < count:
                raise InputError(f"layers: the model has no layer {layer}", hint=f"0 to {count - 1}", field="layers")
        return tuple(sorted({number % count for number in self.layers}))

    def wanted(self, prompt: int) -> Callable[[int], bool]:
        """A function that says whether the vectors of a position are needed, or may be. prompt: its tokens."""
        every = self.every
        if every is not None:
            return lambda position: position % every == 0
        tests: dict[str, Callable[[int], bool]] = {
            "all": lambda _: True,
            "prompt": lambda position: position < prompt,
            "response": lambda position: position >= prompt,
            "last": lambda position: position >= prompt - 1,  # which one it is shows at the end
        }
        return tests[self.positions]

    def to_json(self) -> dict[str, Any]:
        """As `from_json` reads it."""
        layers = self.layers if isinstance(self.layers, str) else [*self.layers]
        options = {"layers": layers, "sites": [*self.sites], "positions": self.positions, "dtype": self.dtype}
        return options if self.run_id is None else options | {"run_id": self.run_id}

    @staticmethod
    def from_json(data: Any) -> Activations:
        """From a JSON object with some of the fields; true means the defaults. Raises InputError."""
        if data is True:
            return Activations()
        if not isinstance(data, Mapping):
            raise InputError("activations are an object or true", hint='{"layers": "all"}', field="activations")
        names = [field.name for field in fields(Activations)]
        for name in data:
            if name not in names:
                raise InputError(
                    f"activations have no field {name!r}", hint=f"known: {', '.join(names)}", field="activations"
                )
        return Activations(**data)


def _layers(given: Any) -> str | tuple[int, ...]:
    if isinstance(given, str):
        if given not in LAYERS:
            raise InputError(f"layers: {given!r} is not known", hint=f"{', '.join(LAYERS)}, [0, -1]", field="layers")
        return given
    if not isinstance(given, Sequence) or not given or any(type(layer) is not int for layer in given):
        raise InputError("layers are a name or a list of numbers", hint=f"{', '.join(LAYERS)}, [0, -1]", field="layers")
    return tuple(given)


def _sites(given: Any) -> tuple[str, ...]:
    several = (given,) if isinstance(given, str) else given
    known = isinstance(several, Sequence) and all(isinstance(site, str) and site in SITES for site in several)
    if not known or not several:
        raise InputError(f"sites: {given!r} is not known", hint=", ".join(SITES), field="sites")
    return tuple(site for site in SITES if site in several)
