"""The interface of matchers that rewind: tokens that may be sampled against the mask and are then undone.

`mask` still obeys the laws of `base.py`, so a strategy that ignores this interface keeps the constraint all the same.
It does not know the strategy that undoes tokens (`decoding/rewinding/strategy.py`), nor where sampling resumes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from espalier.automata.reasons.blame import Blame
from espalier.constraints.base import Matcher
from espalier.constraints.spec import Spec
from espalier.errors import CapabilityError
from espalier.tokens.mask import Mask

EVERYTHING = 2**31
"""More tokens than any text has: `unsettled` of a matcher that can reach a dead end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """The cost of sampling an undoable token. count: how many tokens are undone, that token included, so at least 2 (a
    token that alone completes a match is never undoable). blame: why."""

    count: int
    blame: Blame


@runtime_checkable
class Rewinding(Protocol):
    """Methods besides those of `Matcher`. None of them changes the state.

    An undoable token is never passed to `advance`: `recall` says how many tokens to undo, and `rollback` by one less
    than its `count` undoes them, because the matcher never took the undoable token itself.
    """

    @property
    def unsettled(self) -> int:
        """How many of the last tokens may still be undone, so they must not be streamed yet. Without EOS; may exceed
        the number of tokens taken; grows by at most one per token, so a settled token stays settled."""
        ...

    def undoable(self) -> Mask:
        """The tokens that `mask` refuses and that may be sampled and then undone, `(W,) int32`, a fresh copy. Empty
        where `unsettled` is 0, and once finished."""
        ...

    def recall(self, token: int) -> Recall:
        """The cost of sampling an undoable token: at most `unsettled` tokens and the token itself. Raises ValueError
        for a token that is not undoable."""
        ...


@runtime_checkable
class RewindingMatcher(Matcher, Rewinding, Protocol):
    """A matcher that rewinds."""


def rewinding_parts(spec: Spec | None) -> tuple[Spec, ...]:
    """The parts of a spec, itself included, that rewind (`Spec.rewinds`)."""
    return () if spec is None else tuple(part for part in spec.walk() if part.rewinds)


def check_only_masks(spec: Spec | None, who: str, *, field: str) -> None:
    """For callers that cannot undo tokens. who: for example `a logits processor`. Raises CapabilityError, naming the
    field, for a spec that rewinds."""
    for part in rewinding_parts(spec):
        raise CapabilityError(
            f"{part.kind} takes text back, which {who} cannot",
            hint="use a constraint that only masks, or generate with an engine of ours and strategy=mask",
            field=field,
        )
