"""Reads how to decode: the strategy fields of `espalier`, and the beam fields of vLLM and the word-list server.

`Decoding` checks the values, `engines/capabilities.py` what the engine can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from espalier.decoding.options import FIELDS
from espalier.decoding.strategies import STRATEGIES
from espalier.errors import InputError
from espalier.server.asking.naming import field_names
from espalier.server.bodies.openai import EspalierOptions, SharedBody
from espalier.server.http.errors import BadRequest

TOP = ("num_beams", "length_penalty", "early_stopping")
"""Fields of Decoding that may also stand at the top level of a body."""
IDLE: Mapping[str, tuple[Any, ...]] = {"num_beams": (1,), "length_penalty": (0, 1), "early_stopping": (False,)}
"""Top-level values that mean nothing without beam search; some clients always send them."""
BEAM = "beam"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """fields: the fields of Decoding that the body gives. names: from a field of Decoding to the field of the body.
    is_search: whether one run gives all outputs of a prompt, so that the sampling's `n` is 1."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    is_search: bool = False


def read_decoding(body: SharedBody, *, n: int, default_beams: tuple[int, str] | None = None) -> Decoded:
    """n: how many outputs the body asks for. default_beams: how many beams search where the body does not say how to
    decode, and the field that asks for them. Raises BadRequest for fields that contradict each other, InputError for a
    field that needs beam search, UnknownName for an unknown strategy."""
    fields, names = _given_fields(body)
    _check_strategy(fields)
    is_search = _choose_beams(body, fields, names, n, default_beams)
    for name in ("num_beams", "particles"):  # a default of the strategy is blamed on the strategy's field
        if "strategy" in names:
            names.setdefault(name, names["strategy"])
    if not is_search:
        _drop_idle(fields, names)
        return Decoded(fields=fields, names=names)
    returned = fields.setdefault("num_return_sequences", n)
    names.setdefault("num_return_sequences", "n")
    if n not in (1, returned):
        raise BadRequest(
            f"n is {n}, but espalier.num_return_sequences is {returned}", hint="give one of them", field="n"
        )
    return Decoded(fields=fields, names=names, is_search=True)


def _given_fields(body: SharedBody) -> tuple[dict[str, Any], dict[str, str]]:
    """Fields of Decoding that the body gives, from `espalier` and from the top level, and their names in the body."""
    ours = body.espalier or EspalierOptions()
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name in FIELDS:
        inner, outer = getattr(ours, name), getattr(body, name) if name in TOP else None
        if inner is not None and outer is not None and inner != outer:
            raise BadRequest(f"{name} contradicts espalier.{name}", hint="leave one of them out", field=name)
        if inner is not None:
            fields[name], names[name] = inner, f"espalier.{name}"
        elif outer is not None:
            fields[name], names[name] = outer, name
    return fields, names


def _choose_beams(
    body: SharedBody, fields: dict[str, Any], names: dict[str, str], n: int, default_beams: tuple[int, str] | None
) -> bool:
    """Whether beam search runs; if the body asks for it without naming the strategy, add it to `fields` and `names`."""
    if body.use_beam_search:
        if fields.setdefault("strategy", BEAM) != BEAM:
            raise BadRequest(
                f"use_beam_search is not {fields['strategy']}", hint="leave one of them out", field="use_beam_search"
            )
        names.setdefault("strategy", "use_beam_search")
        if "num_beams" not in fields:  # as in vLLM
            fields["num_beams"], names["num_beams"] = n, "n"
    elif "strategy" not in fields and fields.get("num_beams", 1) != 1:
        fields["strategy"], names["strategy"] = BEAM, names["num_beams"]
    elif "strategy" not in fields and "num_beams" not in fields and default_beams is not None:
        beams, name = default_beams
        fields |= {"strategy": BEAM, "num_beams": max(beams, n)}
        names |= {"strategy": name, "num_beams": "n" if n > beams else name}
    return fields.get("strategy") == BEAM


def _check_strategy(fields: Mapping[str, Any]) -> None:
    if "strategy" in fields:
        with field_names(otherwise="espalier.strategy"):
            STRATEGIES.require(fields["strategy"])


def _drop_idle(fields: dict[str, Any], names: dict[str, str]) -> None:
    for name in TOP:
        if name not in fields or names[name] != name:
            continue
        if not any(isinstance(fields[name], bool) == isinstance(idle, bool) and fields[name] == idle
                   for idle in IDLE[name]):  # fmt: skip
            raise InputError(f"{name} needs beam search", hint='"num_beams": 4', field=name)
        del fields[name], names[name]
