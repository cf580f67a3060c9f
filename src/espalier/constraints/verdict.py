"""Judges finished texts with independent validators, and parses their values.

Each kind has a judge of its own (`ConstraintKind.judge`), which never asks a matcher. It knows no kind.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from espalier.constraints.base import Promise as Promise
from espalier.constraints.base import Verdict as Verdict
from espalier.constraints.compiler import find_kind
from espalier.constraints.kind_table import KINDS
from espalier.constraints.spec import Spec
from espalier.errors import BrokenPlugin
from espalier.lexicon.files import WordFiles

CUT = Verdict(valid=False, judge="matcher", errors=("the text was cut before it was complete",), breaks="cut")


def cut_by_stop(spec: Spec, stop: str | int | None) -> Verdict:
    """The verdict on a text that a stop text, or a stop id, cut before it satisfied its constraint."""
    what = f"the stop id {stop}" if isinstance(stop, int) else f"the stop text {stop!r}"
    return replace(CUT, errors=(f"{what} cut the text before it satisfied its constraint ({spec.kind})",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A finished text that breaks what its contract called enforced: a fault of Espalier, or of the engine."""

    #: The kind of the constraint.
    kind: str
    #: Of the constraint, as `Spec.fingerprint` has it.
    fingerprint: str
    #: Who found it.
    judge: str
    #: What the judge says; it may quote the text.
    errors: tuple[str, ...]

    @property
    def told(self) -> str:
        """One sentence for whoever reads the text."""
        what = "; ".join(self.errors[:2]) or "not valid"
        return f"the text breaks its constraint ({self.kind}), which was called enforced: {what}; {REPORT}"


REPORT = "this is a fault of Espalier or of the engine: do not use the text as valid, and report it"


def breach_of(spec: Spec | None, verdict: Verdict | None) -> Breach | None:
    """The breach, None for a text that is valid, not judged, cut, or breaks only what is checked afterwards."""
    if spec is None or verdict is None or verdict.breaks != "enforced":
        return None
    return Breach(kind=spec.kind, fingerprint=spec.fingerprint, judge=verdict.judge, errors=verdict.errors)


def promise_of(broken: Iterable[Verdict]) -> Promise:
    """What a text breaks of which all these invalid verdicts hold: `checked` only if none says more."""
    return "enforced" if any(verdict.breaks != "checked" for verdict in broken) else "checked"


class Unjudgeable(Exception):
    """The text exceeds what this judge can process; the verdict is then `valid=None`."""


def judge(spec: Spec, text: str, words: WordFiles | None = None) -> Verdict:
    """The verdict on one output. Never raises because of the text.

    words: the word files of languages; those that ship with Espalier if not given.
    """
    kind = find_kind(spec)
    if kind is None:
        return Verdict(valid=None, judge="none")
    try:
        with KINDS.blamed(spec.kind):
            return kind.judge(spec, text, WordFiles.standard() if words is None else words)
    except BrokenPlugin as error:  # the text is there: it is shown, and nobody vouches for it
        return Verdict(valid=None, judge="none", errors=(error.message,))


IN_GRAMMAR: ContextVar[bool] = ContextVar("in_grammar", default=False)
"""Whether the constraint that is judged was enforced as a part of a grammar, which enforces less of a schema than a
matcher of its own does."""


def judge_in_grammar(spec: Spec, text: str, words: WordFiles | None = None) -> Verdict:
    """The verdict on a part of an output whose constraint was enforced as a part of a grammar. Never raises."""
    before = IN_GRAMMAR.set(True)
    try:
        return judge(spec, text, words)
    finally:
        IN_GRAMMAR.reset(before)


def parse(spec: Spec | None, text: str) -> Any:
    """The value of a complete output: JSON for a JSON constraint (None if it does not parse), else the text.

    An integer of more digits than Python converts is a Decimal.
    """
    kind = None if spec is None else find_kind(spec)
    if spec is None or kind is None:
        return text
    with KINDS.blamed(spec.kind):
        return kind.parse(spec, text)


def has_parser(spec: Spec) -> bool:
    """Whether the kind of a constraint has values of its own, other than the text."""
    kind = find_kind(spec)
    return kind is not None and kind.has_parser


def has_judge(spec: Spec) -> bool:
    """Whether the kind of a constraint has a judge."""
    kind = find_kind(spec)
    return kind is not None and kind.has_judge
