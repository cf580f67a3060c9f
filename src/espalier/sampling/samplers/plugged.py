"""Samplers of plug-ins: `PLUGGED`, the fields that they add, and how their values are checked.

An entry point of the group `espalier.samplers` is a `Sampler`. Its fields are called as the sampler, or begin with its
name and `_`, so that a field leads to its plug-in without importing the others. A config has their values in `extra`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from espalier.errors import SamplingError
from espalier.registry import Registry
from espalier.sampling.fields import SamplingField, Types, shown
from espalier.sampling.samplers.registry import SAMPLERS
from espalier.sampling.samplers.sampler import Sampler

Extra = tuple[tuple[str, Any], ...]


def _problem(name: str, sampler: Sampler) -> str | None:
    """Say what is wrong with a plug-in's sampler."""
    if sampler.name != name:
        return f"its name is {sampler.name!r}"
    strange = [field.name for field in sampler.fields if field.name != name and not field.name.startswith(f"{name}_")]
    if strange:
        return f"its field {strange[0]!r} does not begin with {name!r}"
    clash = {field.name for own in SAMPLERS.values() for field in own.fields} & {field.name for field in sampler.fields}
    if clash:
        return f"its field {min(clash)!r} is Espalier's"
    if not any(field.off is not None for field in sampler.fields):
        return "none of its fields has an `off` value"
    return None


PLUGGED = Registry("samplers", SAMPLERS, holds=Sampler, check=_problem)
"""The samplers of Espalier and of plug-ins."""


def sampler_named(name: str) -> Sampler:
    """A sampler of ours or of a plug-in. Raises UnknownName, BrokenPlugin."""
    return PLUGGED.load(name)


def sampler_of(field: str) -> Sampler | None:
    """The plug-in's sampler that has this field; None if there is none. Raises BrokenPlugin."""
    names = [plugin.name for plugin in PLUGGED.plugins() if field == plugin.name or field.startswith(f"{plugin.name}_")]
    for name in sorted(set(names) - SAMPLERS.keys(), key=len, reverse=True):
        sampler = PLUGGED.load(name)
        if any(known.name == field for known in sampler.fields):
            return sampler
    return None


def check_extra(given: Any) -> Extra:
    """Field -> value of plug-ins' samplers, as sorted pairs with the defaults of each sampler's other fields. Raises
    SamplingError naming the field, BrokenPlugin."""
    if given is None or given == ():
        return ()
    items = dict(given.items() if isinstance(given, Mapping) else _pairs(given))
    values: dict[str, Any] = {}
    for name in items:
        sampler = sampler_of(name) if isinstance(name, str) else None
        if sampler is None:
            known = ", ".join(plugin.name for plugin in PLUGGED.plugins() if plugin.refusal is None)
            raise SamplingError(
                f"extra: no plug-in has a sampling field {shown(name)}",
                hint=f"samplers: {known or 'none'}",
                field="extra",
            )
        for field in sampler.fields:
            values[field.name] = field.check(items.get(field.name, field.default))
    return tuple(sorted(values.items()))


def samplers_in(extra: Extra) -> tuple[Sampler, ...]:
    """The samplers whose fields these are."""
    samplers = (sampler_of(name) for name, _ in extra)
    return tuple({sampler.name: sampler for sampler in samplers if sampler is not None}.values())


def _pairs(pairs: Any) -> Iterable[tuple[Any, Any]]:
    try:
        return [(name, value) for name, value in pairs]
    except (TypeError, ValueError):
        raise SamplingError("extra: a mapping from fields to values", field="extra") from None


class ExtraField(SamplingField):
    """The config's field `extra`."""

    types: ClassVar[Types] = Types("Any", "tuple[tuple[str, Any], ...]", Any)

    def check(self, given: Any) -> Extra:
        return check_extra(given)
