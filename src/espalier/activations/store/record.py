"""One stored request: what is known of it, and its vectors by site and layer."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy.typing as npt

from espalier.errors import InputError
from espalier.json_record import JsonRecord, in_json, read_json

SITES = ("residual", "attention", "mlp")
"""The residual stream after a layer, the attention's and the MLP's output in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord(JsonRecord):
    """Describes one request.

    prompt: the exact text given to the model. response: the text after trimming. model: its name. input_length: prompt
    tokens. timestamp: epoch seconds. prompt_ids, response_ids: token ids. positions: the places of the stored vectors,
    counted over prompt and response from 0. sites, layers: what is stored; a layer counts from 0. hidden: width of a
    vector. dtype, compression: of the chunks. request_id, trace_id, run_id, sample_group_id: ids, None where there are
    none. messages: of a chat. trim_position: the first response token that was cut off. extra: anything else, as JSON.
    """

    #: A newer version may have written other fields too.
    is_open = True

    prompt: str
    response: str
    model: str
    input_length: int
    timestamp: float
    prompt_ids: tuple[int, ...] = ()
    response_ids: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    sites: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    hidden: int = 0
    dtype: str = "float16"
    compression: str = "none"
    messages: tuple[Mapping[str, Any], ...] | None = None
    trim_position: int | None = None
    request_id: str | None = None
    trace_id: str | None = None
    run_id: str | None = None
    sample_index: int | None = None
    sample_group_id: str | None = None
    target_layers: str = "all"
    sequence_mode: str = "all"
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, data: Any) -> Self:
        """Raises InputError for a dict that is no record."""
        try:
            return read_json(cls, data)
        except InputError as error:
            raise InputError(f"this is no record of a request: {error.message}", field="record") from error

    @property
    @in_json()
    def prompt_hash(self) -> str:
        """SHA-256 of the prompt's UTF-8, in hex."""
        return hashlib.sha256(self.prompt.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    @in_json()
    def has_activations(self) -> bool:
        return bool(self.positions and self.layers and self.sites)

    @property
    @in_json("multi_sample")
    def is_sample(self) -> bool:
        """Whether it is one of several samples of a prompt."""
        return self.sample_index is not None


@dataclass(frozen=True, slots=True)
class CapturedVectors:
    """A record and its vectors. vectors: (site, layer) -> `(len(record.positions), record.hidden)`, of float16,
    float32, or uint16 for the bits of bfloat16."""

    record: RequestRecord
    vectors: Mapping[tuple[str, int], npt.NDArray[Any]]

    def __post_init__(self) -> None:
        """Raises ValueError where the vectors are not those that the record names."""
        record = self.record
        named = {(site, layer) for site in record.sites for layer in record.layers} if record.positions else set()
        if set(self.vectors) != named:
            raise ValueError(f"vectors of {sorted(self.vectors)}, and the record names {sorted(named)}")
        for name, vector in self.vectors.items():
            if vector.shape != (len(record.positions), record.hidden):
                raise ValueError(f"{name} has the shape {vector.shape}")


def new_key(record: RequestRecord) -> str:
    """A key that no other request has: samples of one prompt, or of one request, never collide."""
    return f"{record.prompt_hash}_{secrets.token_hex(8)}"
