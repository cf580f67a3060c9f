"""What an answer must be, in one place for every command that asks for one: constraints, safety filters, word lists.

What can be found wrong without the model is found before it is loaded: undefined rules, members that contradict one
another, unknown word lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from espalier import api
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.safety import SafetyFlags
from espalier.cli.flags.words import WordFlags
from espalier.constraints.soft.spec import SoftWordlist
from espalier.constraints.spec import Gbnf, Spec
from espalier.errors import LimitExceeded, SpecError
from espalier.wiring import App

MEMBER = re.compile(r"all_of\[\d+\]\.(\w+)")
KINDS: Mapping[str, str] = {
    "schema": "json_schema",
    "regex": "regex",
    "grammar": "gbnf",
    "choice": "choice",
    "json_object": "json_object",
    "ban": "ban",
}
"""Field of ConstraintFlags -> the kind of its constraint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerFlags:
    """The three groups of flags, as a command was given them."""

    constraint: ConstraintFlags
    safety: SafetyFlags
    vocab: WordFlags

    def specs(self) -> tuple[Spec | None, tuple[SoftWordlist, ...]]:
        """What must hold, and the soft word list if there is one. Raises InputError, SpecError and its kin."""
        words = self.vocab.wordlist()
        soft = self.vocab.soft(words) if words else None
        return self.safety.join(self.constraint.spec(None if soft else words)), () if soft is None else (soft,)

    def check(self, spec: Spec | None, app: App) -> None:
        """Compile a constraint over bytes, so that its faults show before a model is loaded. Left to the model's own
        vocabulary are limits, and grammars that name tokens. Raises what compiling raises, in the words of flags."""
        if spec is None or any("<" in part.grammar for part in spec.walk() if isinstance(part, Gbnf)):
            return
        try:
            with suppress(LimitExceeded):
                api.compile(spec, app=app)
        except SpecError as error:
            error.message = MEMBER.sub(self._flag, error.message)
            raise

    def _flag(self, member: re.Match[str]) -> str:
        """The flag that gave a member; the member's name where none did, or where it may be of --constraint's file."""
        if self.constraint.constraint is not None:
            return member[0]
        for name, kind in KINDS.items():
            if kind == member[1] and getattr(self.constraint, name):
                return f"--{name.replace('_', '-')}"
        if member[1] == "wordlist":
            return "--vocab-words" if self.vocab.words else "--vocab-lang"
        return member[0]

    def options(self, app: App) -> dict[str, Any]:
        """Options of `make_request`. Raises as `specs` and `check`."""
        spec, soft = self.specs()
        self.check(spec, app)
        return {"constraint": spec, "soft": soft, **self.constraint.schema_options(app)}
