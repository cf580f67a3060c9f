"""The sources of drafts: a name leads to a `Source`, which makes a `Drafter` for one text.

A drafter only proposes: whatever it says, the strategy takes no other token than `mask` would. It knows no logits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

from espalier.decoding.drafting import Continuations
from espalier.decoding.plan import Job
from espalier.registry import Registry

USUAL: tuple[str, ...] = ("forced", "grammar", "lookup")
"""The sources of a request that names none."""

SOURCES = Registry(
    "drafts",
    {
        "forced": "espalier.decoding.drafts.forced:FORCED",
        "grammar": "espalier.decoding.drafts.grammar:GRAMMAR",
        "lookup": "espalier.decoding.drafts.lookup:LOOKUP",
        "model": "espalier.decoding.drafts.model:MODEL",
    },
    holds=f"{__name__}:Source",
)
"""Each name leads to a `Source`."""


@dataclass(slots=True)
class DraftText:
    """One text as drafters see it: they change none of it. tokens: generated so far. place: identifies the state of the
    constraint and the last token, None without a constraint. known: what followed at such places before."""

    job: Job
    tokens: list[int]
    known: Continuations
    place: Hashable | None = None


class Drafter(Protocol):
    """Proposes how one text goes on."""

    def propose(self, ahead: Sequence[int], most: int) -> Sequence[int]:
        """At most `most` tokens (one at least is asked for) that may follow the text and the proposed tokens `ahead`;
        none where the drafter knows nothing."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One entry of the registry. make: a drafter for one text. close: what a drafter holds is given back by it; None if
    it holds nothing."""

    make: Callable[[DraftText], Drafter]
    close: Callable[[Drafter], None] | None = None
