"""A kind of constraint whose matcher is no automaton: a grammar that keeps its machine to itself, as a plugin might.

`declared(monkeypatch)` puts it into the table of kinds. It says nothing about what such a matcher may lack besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from espalier import Gbnf
from espalier.constraints.base import Compiled, Matcher
from espalier.constraints.compiler import Compiler, ConstraintKind
from espalier.constraints.kinds import KINDS
from espalier.constraints.matching.base import CompiledWrapper, WrappingMatcher
from espalier.constraints.spec import Spec


@dataclass(frozen=True, slots=True)
class Opaque(Spec):
    """A text in the language of a grammar."""

    kind: ClassVar[str] = "opaque"
    grammar: str


class OpaqueCompiled(CompiledWrapper):
    def __init__(self, spec: Opaque, inner: Compiled) -> None:
        super().__init__(inner)
        self._spec = spec

    @property
    def spec(self) -> Spec:
        return self._spec

    def matcher(self, *, before: str = "") -> OpaqueMatcher:
        return OpaqueMatcher(self, self._inner.matcher(before=before))


class OpaqueMatcher(WrappingMatcher[OpaqueCompiled, Matcher]):
    __slots__ = ()


class OpaqueKind(ConstraintKind[Opaque]):
    spec = Opaque

    def compile(self, spec: Opaque, compiler: Compiler) -> Compiled:
        return OpaqueCompiled(spec, compiler.compile(Gbnf(spec.grammar)))


def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS._builtin, "opaque", OpaqueKind())
