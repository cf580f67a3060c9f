"""What one step did, as values: the stages, the masses, the token taken. JSON in and out.

The stages are llama.cpp's words for them: `pre_masking` (what the model wanted), `post_grammar` (after the mask),
`post_chain` (after the samplers), `resampled` (what was taken). Probabilities: `pre_masking` is the softmax of the
raw logits; `post_grammar` the same renormalised over the allowed set; `post_chain` what was drawn from.
This module knows neither how the numbers are made (decoding/step.py) nor of what run a step is a part (records.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from espalier.automata.reasons.blame import Blame
from espalier.trace.sidecar import Distribution

Exactness = Literal["exact", "bounded"]
TraceLevel = Literal["off", "summary", "steps", "full"]
"""off: nothing recorded. summary: sums over the run. steps: a StepRecord per token, with the best candidates of every
stage. full: the model's whole distribution at every step besides."""
LEVELS: tuple[TraceLevel, ...] = ("off", "summary", "steps", "full")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One token in one stage. logit is None where the stage has none (and where it is -inf); prob in [0, 1]."""

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
class StepRecord:
    """One generated token.

    logprob: ln of the token's probability under the model's raw logits. removed_mass: 1 - Z. tax_nats: -ln Z.
    z_sampled: mass of the allowed set after penalties, bias and temperature, before truncation; None when greedy,
    and where the temperature is dynamic, since it then depends on what is allowed.
    entropy_before / entropy_after: nats, of the raw distribution and of it renormalised over the allowed set.
    blame: why the model's favourite was refused, where it was and the constraint can say; where a token was drawn and
    rejected, why that was.
    removed_by: the mass that each is the first to refuse, together removed_mass: a composition's members, then the
    composition itself for what only all of them together refuse, then what bans beside it (`allowed_ids`, `logit_bias`,
    filters by name, `min_tokens`). Without a composition: `constraint` (or `padding`) and the bans; empty without bans.
    was_changed: whether the token that the model wanted most was not allowed; None where nobody looked.
    rule: the rule of the grammar, or the place in the schema, in which the token's first byte stands; None where the
    constraint has none or cannot tell. distribution: the model's own, at level `full`; it is not in the JSON.
    bounds: the least and the most that the removed mass can be, where a reply or a log alone tells of the step
    (exactness `bounded`; removed_mass and tax_nats are then the least); None where it was measured.
    The three lists hold the top k of their stage, most probable first, and always the chosen and rejected token.
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
    distribution: Distribution | None = field(default=None, compare=False, repr=False)

    @property
    def is_changed(self) -> bool:
        """Whether the token that the model wanted most was not allowed, as far as that is known."""
        if self.was_changed is not None:
            return self.was_changed
        return bool(self.pre_masking) and not self.pre_masking[0].allowed

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """Tax in nats, removed mass, entropy before and after in nats."""
        return self.tax_nats, self.removed_mass, self.entropy_before, self.entropy_after

    @property
    def kinds(self) -> tuple[bool, bool, bool]:
        """Whether a token was drawn and rejected, whether none was drawn, whether the favourite was not allowed."""
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
            # Traces of before have none of these.
            removed_by=tuple(data.get("removed_by", {}).items()),
            was_changed=data.get("was_changed"),
            rule=data.get("rule"),
            bounds=_pair(data.get("bounds")),
            **_stages(data),
            **{name: data[name] for name in plain},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewind:
    """Tokens that were taken and taken back. step: where the first of them stood. blame: why."""

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


def _stages(data: Mapping[str, Any]) -> dict[str, Any]:
    names = ("pre_masking", "post_grammar", "post_chain")
    return {name: tuple(Candidate.from_json(c) for c in data[name]) for name in names}


def _pair(found: Sequence[float] | None) -> tuple[float, float] | None:
    if found is None:
        return None
    lower, upper = found
    return float(lower), float(upper)


def _finite(value: float | None) -> float | None:
    """JSON has no infinities; the design's rule is null."""
    return value if value is not None and math.isfinite(value) else None
