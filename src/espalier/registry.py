"""Maps names to code: a name leads to a string `"module:attr"`, which is imported on first use.

Built-ins are registered as plugins are: a distribution declares an entry point in the group `espalier.<kind>`, and it
appears beside the built-ins. This module knows nothing about what the names mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from espalier.errors import UnknownName


def imported(target: str) -> Any:
    """Import `attr` from `module`. target: `"module:attr"`."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


class Registry:
    """The names of one kind, such as strategies or engines. `espalier.<kind>` is the entry-point group of plugins."""

    def __init__(self, kind: str, builtin: Mapping[str, str]) -> None:
        self.kind = kind
        self._targets = dict(builtin)
        self._plugins_read = False

    def names(self) -> list[str]:
        """All names in registration order, built-ins first."""
        self._read_plugins()
        return list(self._targets)

    def target(self, name: str) -> str:
        """The `module:attr` string of a name. Raises UnknownName with the known names."""
        if name not in self._targets:
            self._read_plugins()
        try:
            return self._targets[name]
        except KeyError:
            known = ", ".join(self.names())
            raise UnknownName(f"{self.kind}: there is no {name!r}", hint=f"known: {known}") from None

    def load(self, name: str) -> Any:
        """Import and return what is registered under `name`."""
        return imported(self.target(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def _read_plugins(self) -> None:
        if self._plugins_read:
            return
        for point in entry_points(group=f"espalier.{self.kind}"):
            # A plugin may add a name, and never silently replaces a built-in.
            self._targets.setdefault(point.name, point.value)
        self._plugins_read = True  # last, so that another thread never sees half a table
