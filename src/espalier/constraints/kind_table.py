"""The registries of kinds, as the lower modules see them: names, and the class of each kind's specs.

`kinds.py`, which knows every kind, fills `KINDS` when the package is imported. It does not know what kinds can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from espalier.errors import UnknownName
from espalier.registry import Registry


class SpecKind(Protocol):
    """What every kind has, of constraints and of soft constraints."""

    @property
    def spec(self) -> type[Any]:
        """The class of its specs, whose `kind` is the kind's name."""
        ...


K = TypeVar("K", bound=SpecKind)


class Kinds(Registry[K]):
    """Kinds by name; a plug-in declares one as an entry point of the group `espalier.<group>`. They are filled from
    above, since a kind stands above the modules that compile it."""

    def __init__(self, group: str) -> None:
        super().__init__(group, {}, check=_other_name)

    def fill(self, builtin: Mapping[str, K], *, holds: type[Any]) -> None:
        """Add Espalier's own kinds. holds: the class of all values, those of plug-ins included."""
        self._builtin.update(builtin)
        self._holds = holds

    def spec_of(self, name: str) -> type[Any] | None:
        """The class of a kind's specs, None where there is no such kind. Raises BrokenPlugin."""
        try:
            return self.load(name).spec
        except UnknownName:
            return None


def _other_name(name: str, value: SpecKind) -> str | None:
    """Say what is wrong with a value whose specs write another `kind` than the name under which they are read back."""
    kind = getattr(value.spec, "kind", None)
    return None if kind == name else f"its specs have the kind {kind!r}"


KINDS: Kinds[SpecKind] = Kinds("constraints")
