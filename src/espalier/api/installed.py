"""Lists the plug-ins of the installed packages: what they declare, and whether it can be used (docs/plugins.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from espalier.chat.reading.turn_parser import CALL_PARSERS
from espalier.chat.wire.formats import WIRE_FORMATS
from espalier.constraints.kinds import KINDS
from espalier.constraints.soft.spec import SOFT_KINDS
from espalier.decoding.strategies import STRATEGIES
from espalier.engine_table import ENGINES, VOCABS
from espalier.grammar.builtin import GRAMMARS
from espalier.json_record import JsonRecord
from espalier.registry import PREFIX, Registry, plugins_are_on, points
from espalier.sampling.samplers.plugged import PLUGGED
from espalier.trace.report.export import EXPORTERS
from espalier.version import __version__

REGISTRIES: tuple[Registry[Any], ...] = (
    KINDS,
    SOFT_KINDS,
    ENGINES,
    STRATEGIES,
    PLUGGED,
    WIRE_FORMATS,
    EXPORTERS,
    GRAMMARS,
    CALL_PARSERS,
    VOCABS,
)
"""All that plug-ins can add to, in the order of the list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledName(JsonRecord):
    """One name. package: "espalier" for a built-in. state: `built-in`, `ready`, `broken`, `refused`, or `off` where
    plug-ins are switched off; reason: why it cannot be used."""

    kind: str
    name: str
    package: str
    version: str
    state: str
    reason: str = ""


def plugins(*, builtins: bool = False) -> tuple[InstalledName, ...]:
    """What the plug-ins of the installed packages declare, by kind; each is imported to see whether it can be used.

    builtins: with Espalier's own names of each kind, which are not imported. An entry point of a group that Espalier
    does not have is refused.
    """
    names: list[InstalledName] = []
    for registry in REGISTRIES:
        if builtins:
            names += (_own(registry.kind, name) for name in registry.builtins())
        for plugin in registry.plugins():
            usable, why = registry.state(plugin)
            names.append(
                InstalledName(
                    kind=plugin.kind,
                    name=plugin.name,
                    package=plugin.package,
                    version=plugin.version,
                    state=usable,
                    reason=why,
                )
            )
    groups = {PREFIX + registry.kind for registry in REGISTRIES}
    for group, several in points().items():
        if group in groups and plugins_are_on():
            continue
        reason = "plug-ins are switched off" if group in groups else f"there is no group {group}"
        state = "off" if group in groups else "refused"
        for point in several:
            package, version = ("", "") if point.dist is None else (point.dist.name, point.dist.version)
            kind = group.removeprefix(PREFIX)
            names.append(
                InstalledName(kind=kind, name=point.name, package=package, version=version, state=state, reason=reason)
            )
    return tuple(names)


def _own(kind: str, name: str) -> InstalledName:
    return InstalledName(kind=kind, name=name, package="espalier", version=__version__, state="built-in")
