"""`StepRecord`: one step as a value, with its stages, masses and token. JSON in and out.

The stages have llama.cpp's names: `pre_masking` (what the model wanted), `post_grammar` (after the mask), `post_chain`
(after the samplers), `resampled` (what was taken). Probabilities: `pre_masking` is the softmax of the raw logits,
`post_grammar` the same renormalised over the allowed set, `post_chain` the distribution that was drawn from. This
module knows neither how the numbers are computed (decoding/step/decide.py) nor the run of a step (records.py).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from espalier.automata.reasons.blame import Blame
from espalier.json_record import INTERNAL, NEEDED, OMITTED, Json, JsonRecord, reader_of
from espalier.trace.lazy import LateFields
from espalier.trace.sidecar import Distribution

Exactness = Literal["exact", "bounded", "untraceable"]
"""exact: measured. bounded: some values are bounds. untraceable: even what was rejected is not known; see `note`."""
TraceLevel = Literal["off", "summary", "steps", "full"]
"""off: nothing is recorded. summary: sums over the run. steps: also a StepRecord per token, with the best candidates of
every stage. full: also the model's full distribution at every step."""
LEVELS: tuple[TraceLevel, ...] = ("off", "summary", "steps", "full")


def _finite(value: float | None) -> float | None:
    """None for infinities, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None


_read_number = reader_of(float, sys.float_info.max)
_read_shares = reader_of(dict[str, float])


def _log_probability(value: Any) -> float:
    """null is -inf."""
    number: float = -math.inf if value is None else _read_number(value)
    return number


def _shares(value: Any) -> tuple[tuple[str, float], ...]:
    return tuple(_read_shares(value).items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate(JsonRecord):
    """One token in one stage. logit: None if the stage has none, or if it is -inf. prob: in [0, 1]."""

    id: int
    text: str
    bytes: bytes
    prob: float
    logit: Annotated[float | None, Json(most=sys.float_info.max, write=_finite)] = None
    allowed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord(LateFields, JsonRecord):
    """One generated token. Many records of a run are made when they are read, from what the step left behind; those of
    long rows with lists, and of steps with filters, DRY or mirostat, are made at the step.

    The three lists hold the top k of their stage, most probable first, and always the chosen and the rejected token.
    """

    #: Other tools may add fields to a step.
    is_open = True

    step: int
    token_id: Annotated[int, Json("id", within="token")]
    text: Annotated[str, Json(within="token")]
    bytes: Annotated[bytes, Json(within="token")]
    #: ln of the token's probability under the model's raw logits.
    logprob: Annotated[float, Json(within="token", write=_finite, read=_log_probability)]
    is_special: Annotated[bool, Json(within="token", needed=True)] = False
    pre_masking: Sequence[Candidate]
    post_grammar: Sequence[Candidate]
    post_chain: Sequence[Candidate]
    resampled: Candidate
    was_rejected: Annotated[bool, NEEDED] = False
    rejected: Annotated[Candidate | None, NEEDED] = None
    was_forced: Annotated[bool, NEEDED] = False
    allowed_count: int
    #: 1 - Z.
    removed_mass: float
    #: -ln Z.
    tax_nats: float
    #: The mass of the allowed set after penalties, bias and temperature, before truncation; None when greedy, and with
    #: a dynamic temperature, which depends on what is allowed.
    z_sampled: float | None
    #: Nats, of the raw distribution.
    entropy_before: float
    #: Nats, of the same renormalised over the allowed set.
    entropy_after: float
    #: Why the model's top choice was refused, if it was and the constraint can say; if a token was drawn and rejected,
    #: why that one was.
    blame: Annotated[Blame | None, NEEDED] = None
    #: The mass that each part is the first to refuse, together removed_mass: the members of a composition, then the
    #: composition itself for what only all members together refuse, then the bans beside it (`allowed_ids`,
    #: `logit_bias`, filters by name, `min_tokens`). Without a composition: `constraint` (or `padding`) and the bans;
    #: empty without bans.
    removed_by: Annotated[tuple[tuple[str, float], ...], Json(write=dict, read=_shares)] = ()
    exactness: Annotated[Exactness, NEEDED] = "exact"
    #: Whether the model's top choice was not allowed; None if unknown.
    was_changed: bool | None = None
    #: The grammar rule, or the position in the schema, of the token's first byte; None if the constraint cannot tell.
    rule: str | None = None
    #: The least and the most that the removed mass can be, for a step known only from a reply or a log (exactness
    #: `bounded`; removed_mass and tax_nats are then the least); None if it was measured.
    bounds: Annotated[tuple[float, float] | None, OMITTED] = None
    #: Whether it is not known if a token was rejected, as where a rejection log does not cover the step; was_rejected
    #: is then false.
    is_unknown: Annotated[bool, OMITTED] = False
    #: Why the step is not exact, if that is known.
    note: Annotated[str, OMITTED] = ""
    #: The model's own, at level `full`.
    distribution: Annotated[Distribution | None, INTERNAL] = field(default=None, compare=False, repr=False)

    @property
    def verdict(self) -> Literal["rejected", "accepted", "unknown"]:
        """Whether a token was drawn and rejected at this step, as far as that is known."""
        return "unknown" if self.is_unknown else "rejected" if self.was_rejected else "accepted"

    @property
    def is_changed(self) -> bool:
        """Whether the model's top choice was not allowed, as far as that is known."""
        if self.origin is not None:
            return bool(self.origin.is_changed)
        if self.was_changed is not None:
            return self.was_changed
        return bool(self.pre_masking) and not self.pre_masking[0].allowed

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """(tax in nats, removed mass, entropy before, entropy after), entropies in nats."""
        if self.origin is not None:  # a row has them: nothing else of the record need be made
            measures: tuple[float, float, float, float] = self.origin.measures()
            return measures
        return self.tax_nats, self.removed_mass, self.entropy_before, self.entropy_after

    @property
    def kinds(self) -> tuple[bool, bool, bool]:
        """(a token was drawn and rejected, no token was drawn, the top choice was not allowed)."""
        return self.was_rejected, self.was_forced, self.is_changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind(JsonRecord):
    """Tokens that were taken and then undone. step: the step of the first one. blame: why."""

    #: As for a step.
    is_open = True

    step: int
    tokens: tuple[int, ...]
    text: str
    blame: Annotated[Blame | None, NEEDED] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTokens(JsonRecord):
    """Tokens that one source proposed for one forward pass. step: that of the first one. drafted: how many were
    proposed; accepted: how many of them, from the first, were drawn. What was refused is not kept."""

    step: int
    source: str
    drafted: int
    accepted: int
