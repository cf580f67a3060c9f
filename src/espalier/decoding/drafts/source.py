"""What a source of drafts is: a `DraftSource` makes a `Drafter` for one text. `sources.py` lists them.

A drafter only proposes: whatever it says, the strategy takes no other token than `mask` would. It knows no logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from espalier.decoding.drafting.continuations import Continuations, HistoryPosition
from espalier.decoding.plan import Job

FORCED, GRAMMAR, LOOKUP, MODEL = "forced", "grammar", "lookup", "model"
USUAL: tuple[str, ...] = (FORCED, GRAMMAR, LOOKUP)
"""The sources of a request that names none; `model` comes after them where a smaller model is open."""


@dataclass(slots=True)
class DraftText:
    """One text as drafters see it: they change none of it. tokens: generated so far. place: identifies the state of the
    constraint and the last tokens, None without a constraint. known: what followed at such places before. least: the
    probability below which a token is not worth a draft."""

    job: Job
    tokens: list[int]
    known: Continuations
    place: HistoryPosition | None = None
    least: float = 0.0


class Drafter(Protocol):
    """Proposes how one text goes on."""

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        """At most `most` tokens (one at least is asked for) that may follow the text and the proposed tokens `ahead`;
        none where the drafter knows nothing."""
        ...


class SureDrafter(Drafter, Protocol):
    """A drafter that knows how likely each of its tokens is right. It is asked at every place, so it must be quick."""

    sure: Sequence[float]
    """The probability that each token of the last proposal is right, if those before it are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSource:
    """One entry of the registry. make: a drafter for one text. close: what a drafter holds is given back by it; None if
    it holds nothing. is_sure: whether it makes a `SureDrafter`."""

    make: Callable[[DraftText], Drafter]
    is_sure: bool = False
    close: Callable[[Drafter], None] | None = None
