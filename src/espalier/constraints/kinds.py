"""The table of constraint kinds: one `Kind` value each, declared in the module of the kind's spec.

Modules are imported when their kind is first asked for, and functions given as text when they are first called, so a
spec can be parsed without the code that compiles it. It does not know what the functions do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from espalier.errors import UnknownName
from espalier.registry import Deferred, Registry, imported

Code: TypeAlias = str | Callable[..., Any]
"""A function, or `module:function` to import it from when it is first called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Everything there is about one kind of constraint. `None`: not possible for this kind.

    spec: the class of its specs, whose `kind` is the kind's name.
    compile: `(spec, compiler) -> Compiled`.
    automaton: `(spec, compiler) -> Dfa | Network`, the accepted texts as an automaton over bytes. Kinds with an
        automaton can be regions of `Free`, and `AllOf` can search them for common ends. A Network is returned only
        where no Dfa exists.
    watched: `(spec, compiler) -> WatchedLanguage` (`unique/places.py`): the automaton, and the tracker that it needs
        beside it. None: the automaton needs none.
    machine: `(spec, compiler) -> WatchedMachine | None` (`unique/places.py`): the same as a machine that is explored on
        demand, for `AllOf`. None: made of what `compile` returns, or else of the automaton.
    judge: `(spec, text, word_files) -> Verdict`, which must not use the matcher. None: verdicts are `valid=None`.
    parse: `(spec, text) -> value` of a complete text. None: the value is the text.
    gbnf: `(spec, compiler, before) -> Grammar`, for llama.cpp's own sampler. None: written from the automaton.
    """

    spec: type[Any]
    compile: Code
    automaton: Code | None = None
    watched: Code | None = None
    machine: Code | None = None
    judge: Code | None = None
    parse: Code | None = None
    gbnf: Code | None = None


class Kinds(Registry[Any]):
    """Kind values by name; a plug-in declares one as an entry point of the group `espalier.<group>`."""

    def __init__(self, group: str, builtin: Mapping[str, Any], holds: type[Any]) -> None:
        super().__init__(group, builtin, holds=holds, check=_other_name)

    def find(self, name: str, field: str) -> Any | None:
        """A field of a kind's value, imported; None where the kind has none, or there is no such kind. Raises
        BrokenPlugin."""
        try:
            found = getattr(self.load(name), field)
        except UnknownName:
            return None
        return imported(found) if isinstance(found, str) else found

    def get(self, name: str, field: str) -> Any:
        """As `find`. Raises UnknownName, with the names there are, instead of returning None."""
        found = self.find(name, field)
        if found is None:
            raise UnknownName(f"{self.kind}: there is no {field} for {name!r}", hint=f"known: {', '.join(self)}")
        return found


def _other_name(name: str, value: Any) -> str | None:
    """Say what is wrong with a value whose specs write another `kind` than the name under which they are read back."""
    kind = getattr(value.spec, "kind", None)
    return None if kind == name else f"its specs have the kind {kind!r}"


KINDS = Kinds(
    "constraints",
    {
        "json_schema": Deferred("espalier.constraints.spec:JSON_SCHEMA"),
        "json_object": Deferred("espalier.constraints.spec:JSON_OBJECT"),
        "regex": Deferred("espalier.constraints.spec:REGEX"),
        "choice": Deferred("espalier.constraints.spec:CHOICE"),
        "gbnf": Deferred("espalier.constraints.spec:GBNF"),
        "wordlist": Deferred("espalier.constraints.words.spec:KIND"),
        "ban": Deferred("espalier.constraints.ban:KIND"),
        "safety": Deferred("espalier.constraints.safety.spec:KIND"),
        "all_of": Deferred("espalier.constraints.compose.all_of:KIND"),
        "any_of": Deferred("espalier.constraints.compose.any_of:KIND"),
        "after": Deferred("espalier.constraints.after.spec:KIND"),
        "free": Deferred("espalier.constraints.free:KIND"),
        "thinking": Deferred("espalier.constraints.after.thinking:KIND"),
        "tool_calls": Deferred("espalier.constraints.tools.spec:KIND"),
    },
    holds=Kind,
)
