"""Maps names to values: Espalier's own, and those of plug-ins, which are imported on first use.

A distribution adds names as entry points of the group `espalier.<kind>`; they appear beside the built-ins
(docs/plugins.md). A plug-in that is broken or refused costs nobody else anything: its error names it where it is used.
This module knows nothing about what the names mean.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from espalier.errors import BrokenPlugin, EspalierError, UnknownName
from espalier.nearest import did_you_mean

LOG = logging.getLogger("espalier.plugins")
PREFIX = "espalier."
SWITCH = "ESPALIER_PLUGINS"
OFF = ("0", "false", "f", "no", "n", "off")

T = TypeVar("T")
PluginState: TypeAlias = Literal["ready", "broken", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What one entry point declares. target: `module:attr`. package, version: of its distribution, "" if unknown.
    refusal: why the name is not taken; None if it is."""

    kind: str
    name: str
    target: str
    package: str
    version: str
    refusal: str | None = None

    @property
    def label(self) -> str:
        """As messages call it."""
        return f"plug-in {self.package or self.target} {self.version}".rstrip()


def imported(target: str) -> Any:
    """Import `attr` from `module`. target: `"module:attr"`."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


def import_name(function: Callable[..., Any]) -> str:
    """The text by which another process finds a function of a module: the inverse of `imported`."""
    return f"{function.__module__}:{function.__qualname__}"


class _Switch:
    """Whether plug-ins are read in this process: the variable ESPALIER_PLUGINS, and `forbid_plugins`."""

    forbidden = False


def forbid_plugins() -> None:
    """From now on no plug-in is read in this process. For servers whose settings say so."""
    _Switch.forbidden = True


def plugins_are_on() -> bool:
    """Whether plug-ins are read. The environment counts here too, for code that builds no App."""
    return not _Switch.forbidden and os.environ.get(SWITCH, "").strip().lower() not in OFF


@cache
def points() -> Mapping[str, Sequence[EntryPoint]]:
    """Every entry point of a group `espalier.…`, by group. The installed distributions are searched once."""
    entries = entry_points()
    return {group: [*entries.select(group=group)] for group in sorted(entries.groups) if group.startswith(PREFIX)}


class Registry(Generic[T]):
    """The names of one kind, such as strategies or engines. `espalier.<kind>` is the entry-point group of plug-ins.

    builtin: Espalier's own values. holds: the class of all values; None for functions and classes. check: says what is
    wrong with a plug-in's value under its name; None if nothing is.
    """

    def __init__(
        self,
        kind: str,
        builtin: Mapping[str, T],
        *,
        holds: type[T] | None = None,
        check: Callable[[str, T], str | None] | None = None,
    ) -> None:
        self.kind = kind
        self._builtin: dict[str, T] = dict(builtin)
        self._holds, self._check = holds, check
        self._plugins: tuple[Plugin, ...] | None = None
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """All names in registration order, built-ins first; refused ones are left out."""
        return [*self._builtin, *self.plugin_names()]

    def plugin_names(self) -> list[str]:
        """The names that plug-ins add."""
        return [plugin.name for plugin in self.plugins() if plugin.refusal is None]

    def require(self, name: str) -> None:
        """Raises UnknownName with the known names where there is no such name, BrokenPlugin where it was refused.
        Imports nothing."""
        if name not in self._builtin:
            self._plugin(name)

    def plugin_module(self, name: str) -> str:
        """The name of the module that a plug-in's value is imported from. Raises as `require`."""
        return self._plugin(name).target.partition(":")[0]

    def load(self, name: str) -> T:
        """The value that is registered under `name`. Raises UnknownName, and BrokenPlugin with the reason for a
        plug-in that cannot be used."""
        value = self._builtin.get(name)
        return self._import(self._plugin(name)) if value is None else value

    def builtins(self) -> Collection[str]:
        """The names that are not plug-ins'."""
        return self._builtin.keys()

    def plugins(self) -> tuple[Plugin, ...]:
        """What distributions declare for this kind, sorted by name. Imports nothing."""
        if not plugins_are_on():
            return ()
        with self._lock:
            if self._plugins is None:
                self._plugins = tuple(self._read())
                for plugin in self._plugins:
                    if plugin.refusal is not None:
                        LOG.warning("%s: %s %r is refused: %s", plugin.label, self.kind, plugin.name, plugin.refusal)
            return self._plugins

    def state(self, plugin: Plugin) -> tuple[PluginState, str]:
        """Whether a plug-in can be used, and the reason if not. Imports it."""
        if plugin.refusal is not None:
            return "refused", plugin.refusal
        try:
            self._import(plugin)
        except BrokenPlugin as error:
            return "broken", error.reason
        return "ready", ""

    @contextmanager
    def blamed(self, name: str) -> Iterator[None]:
        """Around code of a plug-in: what it raises, but for errors of Espalier's, becomes a BrokenPlugin that names it.
        Around a built-in it does nothing."""
        try:
            yield
        except EspalierError:
            raise
        except Exception as error:
            if name in self._builtin:
                raise
            reason = f"{type(error).__name__}: {error}"
            raise BrokenPlugin(self._plugin(name).label, self.kind, name, reason) from error

    def forget_plugins(self) -> None:
        """Read the installed distributions anew at the next use."""
        points.cache_clear()
        self._plugins = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _plugin(self, name: str) -> Plugin:
        plugin = next((plugin for plugin in self.plugins() if plugin.name == name), None)
        if plugin is None:
            known = f"known: {', '.join(self.names())}"
            near = did_you_mean(name, self.names())
            hint = f"{near} {known}" if near else known
            if not plugins_are_on() and any(point.name == name for point in points().get(PREFIX + self.kind, ())):
                hint = f"a plug-in has it, but {SWITCH} switches plug-ins off; {hint}"
            raise UnknownName(f"{self.kind}: there is no {name!r}", hint=hint)
        if plugin.refusal is not None:
            raise BrokenPlugin(plugin.label, self.kind, name, plugin.refusal)
        return plugin

    def _import(self, plugin: Plugin) -> T:
        try:
            value: T = EntryPoint(plugin.name, plugin.target, PREFIX + plugin.kind).load()
            problem = self._problem(plugin.name, value)
        except (Exception, SystemExit) as error:  # whatever a stranger's module does while it is imported
            reason = f"{type(error).__name__}: {error}"
            raise BrokenPlugin(plugin.label, self.kind, plugin.name, reason) from error
        if problem is not None:
            raise BrokenPlugin(plugin.label, self.kind, plugin.name, problem)
        return value

    def _problem(self, name: str, value: Any) -> str | None:
        if self._holds is None:
            if not callable(value):
                return f"a value of type {type(value).__name__}, not a function"
        elif isinstance(value, type) and issubclass(value, self._holds):
            return f"the class {value.__name__}: declare an object of it, {value.__name__}()"
        elif not isinstance(value, self._holds):
            return f"a value of type {type(value).__name__}, not a {self._holds.__name__}"
        return None if self._check is None else self._check(name, value)

    def _read(self) -> Iterator[Plugin]:
        declared = sorted(points().get(PREFIX + self.kind, ()), key=lambda point: point.name)
        for point in declared:
            package, version = ("", "") if point.dist is None else (point.dist.name, point.dist.version)
            others = {other.dist.name for other in declared if other.name == point.name and other.dist is not None} - {
                package
            }
            refusal = None
            if point.name in self._builtin:
                refusal = "Espalier itself has this name, and a plug-in replaces nothing"
            elif others:
                refusal = f"{', '.join(sorted(others))} declares this name too"
            yield Plugin(
                kind=self.kind, name=point.name, target=point.value, package=package, version=version, refusal=refusal
            )
