"""Joins a request's `bad_words` to its constraint as one constraint, so that the two cannot meet in a dead end.

It knows no request and no engine: a constraint and some texts go in, a constraint comes out.
"""

from __future__ import annotations

from collections.abc import Sequence

from espalier.constraints.ban import Ban
from espalier.constraints.compiler import with_automaton
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.kinds import KINDS
from espalier.constraints.spec import Spec
from espalier.errors import UnsupportedError


def with_bad_words(constraint: Spec | None, words: Sequence[str]) -> Spec | None:
    """The constraint and a ban of `words`, exactly as written and across token boundaries; without a constraint the ban
    alone. Raises UnsupportedError for a kind without an automaton, SpecError."""
    if not words:
        return constraint
    ban = Ban(tuple(words))
    if constraint is None:
        return ban
    if KINDS.find(constraint.kind, "automaton") is None:
        raise UnsupportedError(
            f"bad_words cannot be combined with {constraint.kind} yet",
            hint=f"leave one of them out; bad_words go with: {with_automaton()}",
            field="bad_words",
        )
    return AllOf(constraint, ban)
