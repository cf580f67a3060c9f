"""One generation as a value: what was asked, each step, and sums over them. JSON in and out, and files.

It knows neither how the numbers are made (decoding/step.py) nor how they are shown (trace/page.py). A step by itself,
and all that it holds, is of `steps.py`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from espalier.errors import InputError
from espalier.trace import page, sidecar
from espalier.trace.files import json_text, write_text
from espalier.trace.measure import cumulative
from espalier.trace.steps import LEVELS, Candidate, Exactness, Rewind, StepRecord, TraceLevel
from espalier.trace.summary import Summary, TokenCost, summarise, token_costs

__all__ = ["LEVELS", "Candidate", "Exactness", "Rewind", "StepRecord", "Trace", "TraceLevel"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One generation: what was asked, each step, and sums over them. Shows itself in a notebook.

    prompt: the text that the model was given, template and all. asked: the part of it that a person wrote last.
    constraint, soft: what held the text, and what was a bias alone, as JSON. decoding: the strategy and its options.
    closed_by_budget: whether the limit on tokens decided how it ends. rewinds: what was taken back on the way. score: a
    beam's; weighing: what faithful sampling knows. level: how much of it was asked for. sums: over steps that are not
    kept, at level `summary`. prompt_ids: what the prompt was split into. setup: what else a replay must know: `before`,
    what the prompt held of the model's turn, `stream`, `max_tokens` as far as the context allowed, and the names of the
    user's `filters`. Traces of before have neither.
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
    decoding: Mapping[str, Any] = field(default_factory=dict)
    closed_by_budget: bool = False
    rewinds: tuple[Rewind, ...] = ()
    score: float | None = None
    weighing: Mapping[str, Any] | None = None
    level: TraceLevel = "steps"
    sums: Summary | None = None
    prompt_ids: tuple[int, ...] = ()
    setup: Mapping[str, Any] = field(default_factory=dict)

    @property
    def total_tax_nats(self) -> float:
        """The sum of -ln Z over the steps: how far the constraint moved the model, in nats."""
        return self.sums.total_tax_nats if self.sums else math.fsum(s.tax_nats for s in self.steps)

    @property
    def cumulative_tax_nats(self) -> list[float]:
        """After each step, the sum of -ln Z so far, in nats. Empty at level `summary`."""
        return cumulative([s.tax_nats for s in self.steps])

    @property
    def mean_removed_mass(self) -> float:
        return self._summed.mean_removed_mass

    @property
    def removed_by(self) -> dict[str, float] | None:
        """For each member of a composition, and each ban beside it, the mass that it is the first to refuse, mean of
        the steps; None where nothing was measured, and where there is but one constraint to refuse anything."""
        return self._summed.removed_by

    def by_path(self) -> dict[str, dict[str, float]] | None:
        """For a constraint that makes a JSON document, by the JSON pointer that a token's first byte stands in:
        `tokens`, `tax_nats`, the sum, and `removed_mass`, the mean. Keys and punctuation count to their container, ""
        is the document; what is before and after it is left out. None for other constraints."""
        return self._summed.by_path

    def by_rule(self) -> dict[str, dict[str, float]] | None:
        """The same by the rule of the grammar in which a token's first byte stands; None where nothing tells."""
        return self._summed.by_rule

    def by_token(self) -> tuple[TokenCost, ...]:
        """A row for each step: what the constraint cost there, and up to there. Empty at level `summary`."""
        return token_costs(self.steps, self.constraint, self.text)

    @property
    def changed_steps(self) -> int:
        """Steps at which the token the model wanted most was not allowed."""
        return self.sums.changed_steps if self.sums else sum(s.is_changed for s in self.steps)

    @property
    def _summed(self) -> Summary:
        return self.sums or summarise(self.steps, self.constraint, self.text, self.rewinds)

    def safety_counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """What safety filters did, by category and pattern: `refused_favourites`, the steps at which one refused what
        the model wanted most, or what was drawn; `taken_back`, how often one took text back. Empty where none did."""
        found = {"refused_favourites": self._summed.refused_favourites, "taken_back": self._summed.taken_back}
        return {name: counts for name, counts in found.items() if counts}

    def summary(self) -> dict[str, Any]:
        """The sums over the run, as JSON; the same at every level but `off`."""
        return self._summed.to_json()

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
                "decoding": dict(self.decoding),
                "closed_by_budget": self.closed_by_budget,
                "rewinds": [one.to_json() for one in self.rewinds],
                "score": self.score,
                "weighing": self.weighing,
                "level": self.level,
                "prompt_ids": list(self.prompt_ids),
                "setup": dict(self.setup),
            },
            "text": self.text,
            "steps": [s.to_json() for s in self.steps],
            "summary": self.summary(),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Trace:
        metadata = dict(data["metadata"])
        metadata["rewinds"] = tuple(Rewind.from_json(one) for one in metadata.get("rewinds", ()))
        soft = tuple(metadata.get("soft", ()))  # traces of before have none
        metadata["prompt_ids"] = tuple(metadata.get("prompt_ids", ()))
        steps = tuple(StepRecord.from_json(s) for s in data["steps"])
        sums = Summary.from_json(data["summary"]) if metadata.get("level") == "summary" else None
        return Trace(steps=steps, text=data["text"], sums=sums, **{**metadata, "soft": soft})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `*.html` (a page that needs nothing else) or `*.json`, whole or not at all. Beside `x.json` stands the
        sidecar `x.npz` where the steps have their distributions (level `full`); its layout is said in `sidecar.py`.

        Raises InputError for another suffix, OutputError naming a path that cannot be written.
        """
        writer = WRITERS.get(Path(path).suffix.lower())
        if writer is None:
            raise InputError(
                f"cannot tell from the name {os.fspath(path)!r} how to write a trace",
                hint=f"end it in {' or '.join(WRITERS)}",
            )
        found = [(place, s.token_id, s.distribution) for place, s in enumerate(self.steps)]
        if writer is json_text and any(one for _, _, one in found):
            # First: a reader who finds the JSON shall find what belongs to it.
            sidecar.save(path, [(place, token, one) for place, token, one in found if one is not None])
        write_text(path, writer(self.to_json()))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Trace:
        """Read what `save` wrote as `*.json`, with the distributions of its sidecar where that is there.

        Raises InputError naming the path for what cannot be read, is no trace, or has another trace's sidecar.
        """
        try:
            data = json.loads(Path(path).read_bytes())
        except (OSError, ValueError) as error:  # ValueError: no JSON, no UTF-8
            raise InputError(f"cannot read {os.fspath(path)!r}: {error}") from error
        try:
            trace = Trace.from_json(data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{os.fspath(path)!r} is not a saved trace", hint="Trace.save writes them") from error
        if trace.level != "full":
            return trace
        steps = list(trace.steps)
        for place, token, distribution in sidecar.load(path):
            if place >= len(steps) or steps[place].token_id != token:
                raise InputError(f"{sidecar.beside(path).name!r} belongs to another trace than {os.fspath(path)!r}")
            steps[place] = replace(steps[place], distribution=distribution)
        return replace(trace, steps=tuple(steps))

    def _repr_html_(self) -> str:
        return page.frame(page.render(self.to_json()))


WRITERS: dict[str, Callable[[Mapping[str, Any]], str]] = {".html": page.render, ".json": json_text}
"""By the suffix of a file, what writes a trace."""
