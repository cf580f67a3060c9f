"""Judges finished texts with independent validators, and parses their values.

Each kind has a judge of its own (`Kind.judge`), which never asks a matcher. It knows no kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from espalier.constraints.kinds import KINDS
from espalier.constraints.spec import Spec
from espalier.errors import BrokenPlugin
from espalier.lexicon.files import WordFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The result of judging one text. valid: None where no independent judge could decide. judge: the validator's name.
    errors: messages, at most five."""

    valid: bool | None
    judge: str
    errors: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"valid": self.valid, "judge": self.judge, "errors": list(self.errors)}


CUT = Verdict(valid=False, judge="matcher", errors=("the text was cut before it was complete",))


class Unjudgeable(Exception):
    """The text exceeds what this judge can process; the verdict is then `valid=None`."""


def judge(spec: Spec, text: str, words: WordFiles | None = None) -> Verdict:
    """The verdict on one output. Never raises because of the text.

    words: the word files of languages; those that ship with Espalier if not given.
    """
    judges = KINDS.find(spec.kind, "judge")
    if judges is None:
        return Verdict(valid=None, judge="none")
    try:
        with KINDS.blamed(spec.kind):
            found: Verdict = judges(spec, text, WordFiles.standard() if words is None else words)
    except BrokenPlugin as error:  # the text is there: it is shown, and nobody vouches for it
        return Verdict(valid=None, judge="none", errors=(error.message,))
    return found


def parse(spec: Spec | None, text: str) -> Any:
    """The value of a complete output: JSON for a JSON constraint (None if it does not parse), else the text.

    An integer of more digits than Python converts is a Decimal.
    """
    parser = None if spec is None else KINDS.find(spec.kind, "parse")
    if spec is None or parser is None:
        return text
    with KINDS.blamed(spec.kind):
        return parser(spec, text)
