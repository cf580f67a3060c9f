"""`Trace`: one generation as a value: the request, each step, and sums over the steps. JSON in and out, and files.

It knows neither how the numbers are computed (decoding/step/decide.py) nor how they are rendered (trace/page.py). One
step is in `steps.py`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

from espalier.errors import InputError
from espalier.files.json_shape import check_shape
from espalier.files.limits import TRACE
from espalier.files.reading import read_bytes, shortened
from espalier.json_record import INTERNAL, Json, JsonRecord, mismatch, object_of, read_json, reader_of, write_json
from espalier.trace import page, sidecar
from espalier.trace.files import json_text, write_text
from espalier.trace.measure import cumulative
from espalier.trace.packed_steps import PackedSteps
from espalier.trace.steps import LEVELS, Candidate, DraftTokens, Exactness, Rewind, StepRecord, TraceLevel
from espalier.trace.summary import TokenCost, TraceSummary, summarise_with_paths, token_costs
from espalier.wording import Edge

__all__ = ["LEVELS", "Candidate", "DraftTokens", "Exactness", "Rewind", "StepRecord", "Trace", "TraceLevel"]


METADATA = Json(within="metadata")
METADATA_NEEDED = Json(within="metadata", needed=True)
HINT = "Trace.save writes them"


def _read_constraint(value: Any) -> Any:
    """A constraint, as far as it is shown: each part that has a `kind` has a text there."""
    parts: list[Any] = [] if value is None else [_read_object(value)]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            if "kind" in part and not isinstance(part["kind"], str):
                error = mismatch("a text", part["kind"])
                error.move(".kind")
                raise error
            parts += part.values()
        elif isinstance(part, list):
            parts += part
    return value


def _read_verdict(value: Any) -> Any:
    return None if value is None else _read_errors(value)


_read_object = reader_of(dict[str, Any])
_read_errors = object_of({}, {"errors": list[Any]}, is_open=True)
_read_setup = object_of(
    {}, {"before": str, "stream": int, "max_tokens": int | None, "filters": list[str]}, is_open=True
)


class SumCache:
    """Has room for what a trace sums up once: it is asked for by metrics, by the store, and by replies."""

    __slots__ = ("_summed",)
    _summed: tuple[TraceSummary, Sequence[str | None] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(SumCache, JsonRecord):
    """One generation: the request, each step, and sums over the steps. Renders itself in a notebook."""

    #: Other tools may add fields beside ours.
    is_open = True

    model: Annotated[str, METADATA_NEEDED] = ""
    #: The text that the model was given, chat template included.
    prompt: Annotated[str, METADATA_NEEDED] = ""
    #: The last text that a person wrote.
    asked: Annotated[str, METADATA] = ""
    #: The constraint as JSON.
    constraint: Annotated[Mapping[str, Any] | None, Json(within="metadata", read=_read_constraint)] = None
    #: The soft constraints as JSON.
    soft: Annotated[Sequence[Mapping[str, Any]], METADATA] = ()
    sampling: Annotated[Mapping[str, Any], METADATA] = field(default_factory=dict)
    strategy: Annotated[str, METADATA] = "mask"
    finish_reason: Annotated[str, METADATA]
    verdict: Annotated[Mapping[str, Any] | None, Json(within="metadata", read=_read_verdict)] = None
    #: The strategy and its options.
    decoding: Annotated[Mapping[str, Any], METADATA] = field(default_factory=dict)
    #: Whether the token limit decided how the text ends.
    closed_by_budget: Annotated[bool, METADATA] = False
    #: Tokens that were undone.
    rewinds: Annotated[tuple[Rewind, ...], METADATA] = ()
    #: What the strategy `draft` proposed, and how much of it was drawn.
    drafts: Annotated[tuple[DraftTokens, ...], Json(within="metadata", omit=True)] = ()
    #: The score of the beam.
    score: Annotated[float | None, METADATA] = None
    #: The weights of faithful sampling.
    weighing: Annotated[Mapping[str, Any] | None, METADATA] = None
    #: How much was recorded.
    level: Annotated[TraceLevel, METADATA] = "steps"
    #: The token ids of the prompt; traces of older versions have none.
    prompt_ids: Annotated[tuple[int, ...], METADATA] = ()
    #: What else a replay needs: `before` (the part of the model's turn that the prompt holds), `stream`, `max_tokens`
    #: after the context limit, and the names of the user's `filters`. Traces of older versions have none.
    setup: Annotated[Mapping[str, Any], Json(within="metadata", read=_read_setup)] = field(default_factory=dict)
    text: str
    steps: tuple[StepRecord, ...]
    #: Over steps that are not kept, at level `summary`.
    sums: Annotated[TraceSummary | None, INTERNAL] = None

    @property
    def total_tax_nats(self) -> float:
        """The sum of -ln Z over the steps, in nats: how far the constraint moved the model."""
        return self.sums.total_tax_nats if self.sums else math.fsum(s.numbers[0] for s in self.steps)

    @property
    def cumulative_tax_nats(self) -> list[float]:
        """After each step, the sum of -ln Z so far, in nats. Empty at level `summary`."""
        return cumulative([s.tax_nats for s in self.steps])

    @property
    def mean_removed_mass(self) -> float:
        return self._totals.mean_removed_mass

    @property
    def removed_by(self) -> dict[str, float] | None:
        """For each member of a composition, and each ban beside it, the mass that it is the first to refuse, averaged
        over the steps. None if nothing was measured, or if there is only one constraint."""
        return self._totals.removed_by

    def by_path(self) -> dict[str, dict[str, float]] | None:
        """Costs by JSON pointer, for a constraint that makes a JSON document. A token counts at the pointer of its
        first byte: `tokens`, `tax_nats` (sum) and `removed_mass` (mean). Keys and punctuation count at their container,
        "" is the document; text before and after it is left out. None for other constraints."""
        return self._totals.by_path

    def by_rule(self) -> dict[str, dict[str, float]] | None:
        """Costs by grammar rule; a token counts at the rule of its first byte. None if no rules are known."""
        return self._totals.by_rule

    def by_token(self) -> tuple[TokenCost, ...]:
        """One row per step: the cost of the constraint at this step, and the sum so far. Empty at level `summary`."""
        return token_costs(self.steps, self.constraint, self.text)

    @property
    def changed_steps(self) -> int:
        """The number of steps at which the model's top choice token was not allowed."""
        return self.sums.changed_steps if self.sums else sum(s.is_changed for s in self.steps)

    @property
    def _totals(self) -> TraceSummary:
        return self.sums or self.sum_up()[0]

    def sum_up(self) -> tuple[TraceSummary, Sequence[str | None] | None]:
        """The sums over the steps and the path of each step's first byte, worked out once: who asks for sums later
        waits for nothing."""
        try:
            return self._summed
        except AttributeError:
            summed = summarise_with_paths(self.steps, self.constraint, self.text, self.rewinds)
            object.__setattr__(self, "_summed", summed)
            return summed

    def safety_counts(self) -> dict[str, dict[str, dict[str, int]]]:
        """What safety filters did, by category and pattern: `refused_favourites`, the number of steps at which one
        refused the model's top choice or the drawn token; `taken_back`, how often one made the run undo text. Empty if
        none did."""
        by_kind = {"refused_favourites": self._totals.refused_favourites, "taken_back": self._totals.taken_back}
        return {name: counts for name, counts in by_kind.items() if counts}

    def summary(self) -> dict[str, Any]:
        """The sums over the run as JSON; the same at every level but `off`."""
        return self._totals.to_json()

    def to_json(self) -> dict[str, Any]:
        return {"format": "espalier-trace", "version": 1, **write_json(self), "summary": self.summary()}

    def packed(self) -> dict[str, Any]:
        """As `to_json`, with steps that are JSON only for who reads one: a store writes them as arrays."""
        data, steps = write_json(replace(self, steps=())), PackedSteps(self.steps, self.sum_up()[1])
        return {"format": "espalier-trace", "version": 1, **data, "steps": steps, "summary": self.summary()}

    @staticmethod
    def from_json(data: Any) -> Trace:
        """Raises InputError naming the field. The sums are read at level `summary`; else they are those of the
        steps."""
        trace = read_json(Trace, data)
        if trace.level != "summary":
            return trace
        if "summary" not in data:
            raise InputError("it has no 'summary'", field="summary")
        return replace(trace, sums=read_json(TraceSummary, data["summary"], "summary"))

    def save(self, path: str | os.PathLike[str], *, edge: Edge = "python") -> None:
        """Write `*.html` (a self-contained page) or `*.json`, whole or not at all. If the steps have their
        distributions (level `full`), `x.json` gets a sidecar `x.npz`; `sidecar.py` describes its layout.
        edge: whose words a page uses for remedies, an `Edge` of `wording.py`.

        Raises InputError for another suffix, OutputError naming a path that cannot be written.
        """
        writer = WRITERS.get(Path(path).suffix.lower())
        if writer is None:
            raise InputError(
                f"cannot tell from the name {os.fspath(path)!r} how to write a trace",
                hint=f"end it in {' or '.join(WRITERS)}",
            )
        rows = [(index, s.token_id, s.distribution) for index, s in enumerate(self.steps)]
        if writer is json_text and any(distribution for _, _, distribution in rows):
            # First, so that a reader who finds the JSON also finds its sidecar.
            sidecar.save(
                path, [(index, token, distribution) for index, token, distribution in rows if distribution is not None]
            )
        write_text(path, self.as_page(edge=edge) if writer is page.render else writer(self.to_json()))

    @staticmethod
    def load(path: str | os.PathLike[str]) -> Trace:
        """Read what `save` wrote as `*.json`, with the distributions of its sidecar if there is one; or the file of
        `espalier proxy`, which holds a whole trace.

        Raises InputError naming the path if the file cannot be read, is no trace, or has another trace's sidecar;
        TooLarge.
        """
        content = read_bytes(path, TRACE)
        check_shape(content, TRACE, os.fspath(path))
        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as error:  # ValueError: not JSON, or not UTF-8
            raise InputError(f"cannot read {os.fspath(path)!r}: {error}", field="trace") from error
        inner = data.get("espalier") if isinstance(data, dict) else None
        return with_sidecar(trace_of(data if inner is None else inner, os.fspath(path)), path)

    def __repr__(self) -> str:
        """A summary of one screen: the text, its verdict, what the constraint cost, and where."""
        return "\n".join(import_module(SCREEN).facts(self))

    def _repr_html_(self) -> str:
        return page.frame(self.as_page())

    def as_page(self, *, edge: Edge = "python") -> str:
        """The page of the trace, with its diagnosis. edge: as `save` takes it."""
        diagnose = import_module(DIAGNOSIS).diagnose
        return page.render(self.to_json(), findings=[finding.to_json(edge) for finding in diagnose(self)])


def trace_of(data: Any, source: str) -> Trace:
    """The trace in parsed JSON that may be anything. Raises InputError naming the source and the field."""
    try:
        return Trace.from_json(data)
    except InputError as error:
        message = f"{shortened(source)!r} is not a saved trace: {error.message}"
        raise InputError(message, hint=HINT, field="trace") from error


def with_sidecar(trace: Trace, path: str | os.PathLike[str]) -> Trace:
    """The trace with the distributions beside its JSON, if its level is `full` and they are there. Raises InputError
    for a sidecar that is damaged or another trace's, TooLarge."""
    if trace.level != "full":
        return trace
    steps = list(trace.steps)
    for index, token, distribution in sidecar.load(path, steps=len(steps)):
        if not 0 <= index < len(steps) or steps[index].token_id != token:
            raise InputError(f"{sidecar.beside(path).name!r} belongs to another trace than {os.fspath(path)!r}")
        steps[index] = replace(steps[index], distribution=distribution)
    return replace(trace, steps=tuple(steps))


DIAGNOSIS, SCREEN = "espalier.trace.report.diagnose", "espalier.trace.report.screen"
"""Given as text, for they read traces."""
WRITERS: dict[str, Callable[[Mapping[str, Any]], str]] = {".html": page.render, ".json": json_text}
"""File suffix -> writer."""
