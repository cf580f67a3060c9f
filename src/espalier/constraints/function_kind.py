"""Kinds of constraints made of functions, as plug-ins declared them before there was `ConstraintKind`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from espalier.constraints.base import Verdict
from espalier.constraints.compiler import ConstraintKind
from espalier.registry import imported

if TYPE_CHECKING:
    from espalier.automata.languages.dfa import Dfa
    from espalier.automata.languages.network import Network
    from espalier.constraints.base import Compiled
    from espalier.constraints.compiler import Compiler
    from espalier.constraints.watching import WatchedLanguage, WatchedMachine
    from espalier.grammar.ast import Grammar
    from espalier.lexicon.files import WordFiles

Code: TypeAlias = str | Callable[..., Any]
"""A function, or `module:function` to import it from when it is first called."""


class Kind(ConstraintKind[Any]):
    """A kind made of functions with the arguments of the methods, None where there is none. It goes with the next
    release."""

    def __init__(
        self,
        *,
        spec: type[Any],
        compile: Code,  # noqa: A002  # as the method is called
        automaton: Code | None = None,
        watched: Code | None = None,
        machine: Code | None = None,
        judge: Code | None = None,
        parse: Code | None = None,
        gbnf: Code | None = None,
    ) -> None:
        self._spec = spec
        self._compile, self._automaton, self._watched, self._machine = compile, automaton, watched, machine
        self._judge, self._parse, self._gbnf = judge, parse, gbnf

    @property
    def spec(self) -> type[Any]:
        return self._spec

    def compile(self, spec: Any, compiler: Compiler) -> Compiled:
        compiled: Compiled = function_of(self._compile)(spec, compiler)
        return compiled

    def automaton(self, spec: Any, compiler: Compiler) -> Dfa | Network | None:
        return None if self._automaton is None else function_of(self._automaton)(spec, compiler)

    def watched(self, spec: Any, compiler: Compiler) -> WatchedLanguage | None:
        return None if self._watched is None else function_of(self._watched)(spec, compiler)

    def machine(self, spec: Any, compiler: Compiler) -> WatchedMachine | None:
        return None if self._machine is None else function_of(self._machine)(spec, compiler)

    def judge(self, spec: Any, text: str, words: WordFiles) -> Verdict:
        verdict: Verdict = (
            super().judge(spec, text, words) if self._judge is None else function_of(self._judge)(spec, text, words)
        )
        return verdict

    def parse(self, spec: Any, text: str) -> Any:
        return text if self._parse is None else function_of(self._parse)(spec, text)

    def to_gbnf(self, spec: Any, compiler: Compiler, before: str) -> Grammar | None:
        return None if self._gbnf is None else function_of(self._gbnf)(spec, compiler, before)

    @property
    def has_automaton(self) -> bool:
        return self._automaton is not None

    @property
    def has_judge(self) -> bool:
        return self._judge is not None

    @property
    def has_parser(self) -> bool:
        return self._parse is not None


def function_of(code: Code) -> Callable[..., Any]:
    function: Callable[..., Any] = imported(code) if isinstance(code, str) else code
    return function
