"""`StepRecord`: one step as a value, with its stages, masses and token. JSON in and out.

The stages have llama.cpp's names: `pre_masking` (what the model wanted), `post_grammar` (after the mask), `post_chain`
(after the samplers), `resampled` (what was taken). Probabilities: `pre_masking` is the softmax of the raw logits,
`post_grammar` the same renormalised over the allowed set, `post_chain` the distribution that was drawn from. This
module knows neither how the numbers are computed (decoding/step/decide.py) nor the run of a step (records.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from espalier.automata.reasons.blame import Blame
from espalier.trace.lazy import LateFields
from espalier.trace.sidecar import Distribution

Exactness = Literal["exact", "bounded", "untraceable"]
"""exact: measured. bounded: some values are bounds. untraceable: even what was rejected is not known; see `note`."""
TraceLevel = Literal["off", "summary", "steps", "full"]
"""off: nothing is recorded. summary: sums over the run. steps: also a StepRecord per token, with the best candidates of
every stage. full: also the model's full distribution at every step."""
LEVELS: tuple[TraceLevel, ...] = ("off", "summary", "steps", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One token in one stage. logit: None if the stage has none, or if it is -inf. prob: in [0, 1]."""

    id: int
    text: str
    bytes: bytes
    prob: float
    logit: float | None = None
    allowed: bool = True

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "text": self.text,
            "bytes": list(self.bytes),
            "prob": self.prob,
            "logit": _finite(self.logit),
            "allowed": self.allowed,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Candidate:
        return Candidate(**{**data, "bytes": bytes(data["bytes"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord(LateFields):
    """One generated token. Many records of a run are made when they are read, from what the step left behind; those of
    long rows with lists, and of steps with filters, DRY or mirostat, are made at the step.

    logprob: ln of the token's probability under the model's raw logits. removed_mass: 1 - Z. tax_nats: -ln Z.
    z_sampled: mass of the allowed set after penalties, bias and temperature, before truncation; None when greedy, and
    with a dynamic temperature, which depends on what is allowed. entropy_before, entropy_after: nats, of the raw
    distribution and of the same renormalised over the allowed set.

    blame: why the model's top choice was refused, if it was and the constraint can say; if a token was drawn and
    rejected, why that one was. removed_by: the mass that each part is the first to refuse, together removed_mass: the
    members of a composition, then the composition itself for what only all members together refuse, then the bans
    beside it (`allowed_ids`, `logit_bias`, filters by name, `min_tokens`). Without a composition: `constraint` (or
    `padding`) and the bans; empty without bans. is_unknown: whether it is not known if a token was rejected, as where a
    rejection log does not cover the step; was_rejected is then false. was_changed: whether the model's top choice was
    not allowed; None if unknown.

    rule: the grammar rule, or the position in the schema, of the token's first byte; None if the constraint cannot
    tell. distribution: the model's own, at level `full`; it is not part of the JSON. bounds: the least and the most
    that the removed mass can be, for a step known only from a reply or a log (exactness `bounded`; removed_mass and
    tax_nats are then the least); None if it was measured. note: why the step is not exact, if that is known. The three
    lists hold the top k of their stage, most probable
    first, and always the chosen and the rejected token.
    """

    step: int
    token_id: int
    text: str
    bytes: bytes
    logprob: float
    pre_masking: Sequence[Candidate]
    post_grammar: Sequence[Candidate]
    post_chain: Sequence[Candidate]
    resampled: Candidate
    allowed_count: int
    removed_mass: float
    tax_nats: float
    z_sampled: float | None
    entropy_before: float
    entropy_after: float
    was_rejected: bool = False
    rejected: Candidate | None = None
    was_forced: bool = False
    is_special: bool = False
    blame: Blame | None = None
    removed_by: tuple[tuple[str, float], ...] = ()
    exactness: Exactness = "exact"
    was_changed: bool | None = None
    rule: str | None = None
    bounds: tuple[float, float] | None = None
    is_unknown: bool = False
    note: str = ""
    distribution: Distribution | None = field(default=None, compare=False, repr=False)

    @property
    def verdict(self) -> Literal["rejected", "accepted", "unknown"]:
        """Whether a token was drawn and rejected at this step, as far as that is known."""
        return "unknown" if self.is_unknown else "rejected" if self.was_rejected else "accepted"

    @property
    def is_changed(self) -> bool:
        """Whether the model's top choice was not allowed, as far as that is known."""
        if self.was_changed is not None:
            return self.was_changed
        return bool(self.pre_masking) and not self.pre_masking[0].allowed

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """(tax in nats, removed mass, entropy before, entropy after), entropies in nats."""
        return self.tax_nats, self.removed_mass, self.entropy_before, self.entropy_after

    @property
    def kinds(self) -> tuple[bool, bool, bool]:
        """(a token was drawn and rejected, no token was drawn, the top choice was not allowed)."""
        return self.was_rejected, self.was_forced, self.is_changed

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "token": {
                "id": self.token_id,
                "text": self.text,
                "bytes": list(self.bytes),
                "logprob": _finite(self.logprob),
                "is_special": self.is_special,
            },
            "pre_masking": [c.to_json() for c in self.pre_masking],
            "post_grammar": [c.to_json() for c in self.post_grammar],
            "post_chain": [c.to_json() for c in self.post_chain],
            "resampled": self.resampled.to_json(),
            "was_rejected": self.was_rejected,
            "rejected": self.rejected.to_json() if self.rejected else None,
            "was_forced": self.was_forced,
            "allowed_count": self.allowed_count,
            "removed_mass": self.removed_mass,
            "tax_nats": self.tax_nats,
            "z_sampled": self.z_sampled,
            "entropy_before": self.entropy_before,
            "entropy_after": self.entropy_after,
            "blame": self.blame.to_json() if self.blame else None,
            "removed_by": dict(self.removed_by),
            "exactness": self.exactness,
            "was_changed": self.was_changed,
            "rule": self.rule,
            **({} if self.bounds is None else {"bounds": list(self.bounds)}),
            **({"is_unknown": True} if self.is_unknown else {}),
            **({"note": self.note} if self.note else {}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> StepRecord:
        token = data["token"]
        plain = (
            "step", "was_rejected", "was_forced", "allowed_count", "removed_mass", "tax_nats", "z_sampled",
            "entropy_before", "entropy_after", "exactness",
        )  # fmt: skip
        return StepRecord(
            token_id=token["id"],
            text=token["text"],
            bytes=bytes(token["bytes"]),
            logprob=-math.inf if token["logprob"] is None else token["logprob"],
            is_special=token["is_special"],
            resampled=Candidate.from_json(data["resampled"]),
            rejected=Candidate.from_json(data["rejected"]) if data["rejected"] else None,
            blame=Blame(**data["blame"]) if data["blame"] else None,
            # Missing in traces of older versions.
            removed_by=tuple(data.get("removed_by", {}).items()),
            was_changed=data.get("was_changed"),
            rule=data.get("rule"),
            bounds=_pair(data.get("bounds")),
            is_unknown=data.get("is_unknown", False),
            note=data.get("note", ""),
            **_stages(data),
            **{name: data[name] for name in plain},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """Tokens that were taken and then undone. step: the step of the first one. blame: why."""

    step: int
    tokens: tuple[int, ...]
    text: str
    blame: Blame | None = None

    def to_json(self) -> dict[str, Any]:
        blame = self.blame.to_json() if self.blame else None
        return {"step": self.step, "tokens": list(self.tokens), "text": self.text, "blame": blame}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Rewind:
        blame = Blame(**data["blame"]) if data["blame"] else None
        return Rewind(step=data["step"], tokens=tuple(data["tokens"]), text=data["text"], blame=blame)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """Tokens that one source proposed for one forward pass. step: that of the first one. drafted: how many were
    proposed; accepted: how many of them, from the first, were drawn. What was refused is not kept."""

    step: int
    source: str
    drafted: int
    accepted: int

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step, "source": self.source, "drafted": self.drafted, "accepted": self.accepted}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Drafted:
        return Drafted(step=data["step"], source=data["source"], drafted=data["drafted"], accepted=data["accepted"])


def _stages(data: Mapping[str, Any]) -> dict[str, Any]:
    names = ("pre_masking", "post_grammar", "post_chain")
    return {name: tuple(Candidate.from_json(c) for c in data[name]) for name in names}


def _pair(bounds: Sequence[float] | None) -> tuple[float, float] | None:
    if bounds is None:
        return None
    lower, upper = bounds
    return float(lower), float(upper)


def _finite(value: float | None) -> float | None:
    """None for infinities, which JSON does not have."""
    return value if value is not None and math.isfinite(value) else None
