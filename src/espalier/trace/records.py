"""What one step did, as values: the stages, the masses, the token taken. JSON in and out.

The stages are llama.cpp's words for them: `pre_masking` (what the model wanted), `post_grammar` (after the mask),
`post_chain` (after the samplers), `resampled` (what was taken). Probabilities: `pre_masking` is the softmax of the
raw logits; `post_grammar` the same renormalised over the allowed set; `post_chain` what was drawn from.
This module knows neither how the numbers are made (decoding/step.py) nor how they are shown (trace/page.py).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from espalier.automata.blame import Blame
from espalier.trace import page
from espalier.trace.paths import document_start, json_paths

Exactness = Literal["exact", "bounded"]


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
    The three lists hold the top k of their stage, most probable first, and always the chosen and rejected token.
    """

    step: int
    token_id: int
    text: str
    bytes: bytes
    logprob: float
    pre_masking: tuple[Candidate, ...]
    post_grammar: tuple[Candidate, ...]
    post_chain: tuple[Candidate, ...]
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
            removed_by=tuple(data.get("removed_by", {}).items()),  # traces of before have none
            **_stages(data),
            **{name: data[name] for name in plain},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One generation: what was asked, each step, and sums over them. Shows itself in a notebook.

    prompt: the text that the model was given, template and all. asked: the part of it that a person wrote last.
    constraint, soft: what held the text, and what was a bias alone, as JSON.
    """

    steps: tuple[StepRecord, ...]
    text: str
    finish_reason: str
    model: str = ""
    prompt: str = ""
    asked: str = ""
    constraint: Mapping[str, Any] | None = None
    soft: Sequence[Mapping[str, Any]] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    strategy: str = "mask"
    verdict: Mapping[str, Any] | None = None

    @property
    def total_tax_nats(self) -> float:
        """The sum of -ln Z over the steps: how far the constraint moved the model, in nats."""
        return math.fsum(s.tax_nats for s in self.steps)

    @property
    def mean_removed_mass(self) -> float:
        return math.fsum(s.removed_mass for s in self.steps) / len(self.steps) if self.steps else 0.0

    @property
    def removed_by(self) -> dict[str, float] | None:
        """For each member of a composition the mass that it is the first to refuse, mean of the steps; None where that
        was not measured: only a full trace of a composition does."""
        if not any(step.removed_by for step in self.steps):
            return None
        sums: dict[str, float] = {}
        for step in self.steps:
            for name, mass in step.removed_by:
                sums[name] = sums.get(name, 0.0) + mass
        return {name: mass / len(self.steps) for name, mass in sums.items()}

    def by_path(self) -> dict[str, dict[str, float]] | None:
        """For a constraint that makes a JSON document, by the JSON pointer that a token's first byte stands in:
        `tokens`, `tax_nats`, the sum, and `removed_mass`, the mean. Keys and punctuation count to their container, ""
        is the document; what is before and after it is left out. None for other constraints."""
        start = document_start(self.constraint, self.text)
        if start is None:
            return None
        found: dict[str, dict[str, float]] = {}
        # Where a marker comes first, the text spells it also where it is a special token, which has no bytes.
        pieces = (s.text.encode() if start and s.is_special else s.bytes for s in self.steps)
        for step, path in zip(self.steps, json_paths(pieces, start), strict=True):
            if path is not None:
                sums = found.setdefault(path, {"tokens": 0, "tax_nats": 0.0, "removed_mass": 0.0})
                sums["tokens"] += 1
                sums["tax_nats"] += step.tax_nats
                sums["removed_mass"] += step.removed_mass
        for sums in found.values():
            sums["removed_mass"] /= sums["tokens"]
        return found

    @property
    def changed_steps(self) -> int:
        """Steps at which the token the model wanted most was not allowed."""
        return sum(1 for s in self.steps if s.pre_masking and not s.pre_masking[0].allowed)

    def summary(self) -> dict[str, Any]:
        return {
            "total_steps": len(self.steps),
            "rejected_steps": sum(1 for s in self.steps if s.was_rejected),
            "changed_steps": self.changed_steps,
            "total_tax_nats": self.total_tax_nats,
            "mean_removed_mass": self.mean_removed_mass,
            "removed_by": self.removed_by,
            "by_path": self.by_path(),
        }

    def to_json(self) -> dict[str, Any]:
        return {
            "format": "espalier-trace",
            "version": 1,
            "metadata": {
                "model": self.model,
                "prompt": self.prompt,
                "asked": self.asked,
                "constraint": self.constraint,
                "soft": [dict(one) for one in self.soft],
                "sampling": dict(self.sampling),
                "strategy": self.strategy,
                "finish_reason": self.finish_reason,
                "verdict": self.verdict,
            },
            "text": self.text,
            "steps": [s.to_json() for s in self.steps],
            "summary": self.summary(),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trace:
        metadata = data["metadata"]
        soft = tuple(metadata.get("soft", ()))  # traces of before have none
        steps = tuple(StepRecord.from_json(s) for s in data["steps"])
        return Trace(steps=steps, text=data["text"], **{**metadata, "soft": soft})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `*.html` (a page that needs nothing else) or `*.json`, whole or not at all.

        Raises InputError for another suffix, OutputError naming a path that cannot be written.
        """
        page.save(self.to_json(), path)

    def _repr_html_(self) -> str:
        return page.frame(page.render(self.to_json()))


def _stages(data: Mapping[str, Any]) -> dict[str, Any]:
    names = ("pre_masking", "post_grammar", "post_chain")
    return {name: tuple(Candidate.from_json(c) for c in data[name]) for name in names}


def _finite(value: float | None) -> float | None:
    """JSON has no infinities; the design's rule is null."""
    return value if value is not None and math.isfinite(value) else None
