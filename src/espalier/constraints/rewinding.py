"""What a matcher says that lets a text begin what it must not become: tokens that may be tried and are then taken back.

`mask` stays what the laws of `base.py` ask for, so whoever knows nothing of this keeps to the constraint all the same.
It does not know who takes tokens back (`decoding/rewinding/strategy.py`), nor which place is tried again.
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
"""More tokens than any text has: `unsettled` of what can meet a dead end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What a token that was tried costs. count: how many tokens go back, itself included, so at least 2: a token that
    is at fault alone is not tried at all. blame: why."""

    count: int
    blame: Blame


@runtime_checkable
class Rewinding(Protocol):
    """What such a matcher has beside the methods of `Matcher`. Nothing here changes what another method shows.

    Who tries a token does not `advance` by it: `recall` tells how far the text goes back, and `rollback` by one less
    than its `count` brings the matcher there, as the tried token was never taken.
    """

    @property
    def unsettled(self) -> int:
        """How many of the last tokens may still have to go back: these are not shown. It counts the tokens taken, EOS
        aside, may be larger than their number, and grows by at most one a token: what was settled stays so."""
        ...

    def tempting(self) -> Mask:
        """The tokens that `mask` refuses and that may be tried, `(W,) int32`, a fresh copy. Nothing where
        `unsettled` is 0, and once finished."""
        ...

    def recall(self, token: int) -> Recall:
        """What trying a tempting token costs: no more than `unsettled` and the token itself. Raises ValueError for one
        that is not tempting."""
        ...


@runtime_checkable
class RewindingMatcher(Matcher, Rewinding, Protocol):
    """Both."""


def rewinding_parts(spec: Spec | None) -> tuple[Spec, ...]:
    """The spec itself and what it holds, however deep, as far as it asks to take text back (`Spec.rewinds`)."""
    return () if spec is None else tuple(one for one in spec.walk() if one.rewinds)


def check_only_masks(spec: Spec | None, who: str, *, field: str) -> None:
    """For those who cannot take text back. who: `a logits processor`. Raises CapabilityError naming the field."""
    for part in rewinding_parts(spec):
        raise CapabilityError(
            f"{part.kind} takes text back, which {who} cannot",
            hint="use a constraint that only masks, or generate with an engine of ours and strategy=mask",
            field=field,
        )
