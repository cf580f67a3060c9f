"""How a body asks to decode: the fields of `espalier`, vLLM's and the word-list server's beside them. What values mean
is Decoding's to say; what they need of an engine is said here, since its own errors name none of a body's fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from espalier.decoding.options import FIELDS
from espalier.decoding.plan import STRATEGIES, Strategy
from espalier.engines.base import Capabilities, Request
from espalier.engines.local.engine import LocalEngine
from espalier.errors import CapabilityError, InputError
from espalier.server.asking.naming import field_names
from espalier.server.bodies.openai import EspalierOptions, SharedBody
from espalier.server.http.errors import BadRequest
from espalier.server.process.state import Process

TOP = ("num_beams", "length_penalty", "early_stopping")
"""Fields of Decoding that a body may also have at its top."""
IDLE: Mapping[str, tuple[Any, ...]] = {"num_beams": (1,), "length_penalty": (0, 1), "early_stopping": (False,)}
"""Values at the top that ask for nothing where there are no beams: clients send them always."""
BEAM = "beam"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """fields: of Decoding, those that are said. names: by a field of Decoding, the body's that said it. is_search:
    whether one run gives all the outputs of a prompt, so that `n` is no longer the sampling's."""

    fields: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    is_search: bool = False


def read_decoding(body: SharedBody, *, n: int, default_beams: tuple[int, str] | None = None) -> Decoded:
    """n: how many outputs the body asks for. default_beams: how many beams search where the body does not say how to
    decode, and the field that asks for them. Raises BadRequest for fields that contradict each other, InputError for a
    field that needs beam search, UnknownName for an unknown strategy."""
    ours = body.espalier or EspalierOptions()
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    for name in FIELDS:
        inner, outer = getattr(ours, name), getattr(body, name) if name in TOP else None
        if inner is not None and outer is not None and inner != outer:
            raise BadRequest(f"{name} says otherwise than espalier.{name}", hint="leave one of them out", field=name)
        if inner is not None:
            fields[name], names[name] = inner, f"espalier.{name}"
        elif outer is not None:
            fields[name], names[name] = outer, name
    _check_strategy(fields)
    is_beams = fields.get("strategy") == BEAM
    if body.use_beam_search:
        if fields.setdefault("strategy", BEAM) != BEAM:
            raise BadRequest(
                f"use_beam_search is not {fields['strategy']}", hint="leave one of them out", field="use_beam_search"
            )
        names.setdefault("strategy", "use_beam_search")
        if "num_beams" not in fields:  # as vLLM has it
            fields["num_beams"], names["num_beams"] = n, "n"
        is_beams = True
    elif "strategy" not in fields and fields.get("num_beams", 1) != 1:
        fields["strategy"], names["strategy"] = BEAM, names["num_beams"]
        is_beams = True
    elif "strategy" not in fields and "num_beams" not in fields and default_beams is not None:
        beams, name = default_beams
        fields |= {"strategy": BEAM, "num_beams": max(beams, n)}
        names |= {"strategy": name, "num_beams": "n" if n > beams else name}
        is_beams = True
    if not is_beams:
        _drop_idle(fields, names)
        return Decoded(fields=fields, names=names)
    asked = fields.setdefault("num_return_sequences", n)
    names.setdefault("num_return_sequences", "n")
    if n not in (1, asked):
        raise BadRequest(f"n is {n}, and espalier.num_return_sequences {asked}", hint="say one", field="n")
    return Decoded(fields=fields, names=names, is_search=True)


def check_decoding(request: Request, names: Mapping[str, str], process: Process) -> None:
    """Whether it can be had with this sampling, and of this engine. Raises InputError and its kin, and CapabilityError
    naming the field of the body."""
    decoding = request.decoding
    strategy: Strategy = STRATEGIES.load(decoding.strategy)
    strategy.check(decoding, request.sampling)
    can: Capabilities = process.engine.capabilities
    named = names.get("strategy", "espalier.strategy")
    several = strategy.sequences(decoding)
    if several > 1 and not can.fork:
        raise CapabilityError(f"{process.engine.name} cannot follow several texts of one prompt", field=named)
    if strategy.truncates and not can.truncate:
        raise CapabilityError(f"{process.engine.name} cannot take tokens back", hint="use mask", field=named)
    most = most_sequences(process)
    if most is not None and several > most:
        given = {"num_beams": decoding.num_beams, "particles": decoding.particles}
        counted = next((names.get(name, name) for name, value in given.items() if value is not None), named)
        raise CapabilityError(
            f"{counted}: {several} texts at once; the model holds {most}", hint=f"at most {most}", field=counted
        )


def most_sequences(process: Process) -> int | None:
    """How many texts the model can follow at once, None where that is not known here."""
    engine = process.engine.engine
    return engine.model.max_sequences if isinstance(engine, LocalEngine) else None


def _check_strategy(fields: Mapping[str, Any]) -> None:
    if "strategy" in fields:
        with field_names(otherwise="espalier.strategy"):
            STRATEGIES.target(fields["strategy"])


def _drop_idle(fields: dict[str, Any], names: dict[str, str]) -> None:
    for name in TOP:
        if name not in fields or names[name] != name:
            continue
        if not any(isinstance(fields[name], bool) == isinstance(idle, bool) and fields[name] == idle
                   for idle in IDLE[name]):  # fmt: skip
            raise InputError(f"{name} wants beams", hint='"num_beams": 4', field=name)
        del fields[name], names[name]
