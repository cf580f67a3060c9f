"""Explains what a constraint cost: text, verdict, cost, findings, and what their remedies were measured to do.

`trace/report/` finds out the first, `harness/compare/remedies.py` the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from espalier.api.loaded import LoadedEngine
from espalier.api.requests import make_request
from espalier.engines.base import FinishEvent, Request, Result
from espalier.engines.capabilities import check_capabilities
from espalier.errors import InputError
from espalier.harness.compare.remedies import SEEDS, Trial, recommendation, recommended, trials_text, tried
from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.findings import ANOTHER_STRATEGY, SHOW_THE_SCHEMA, Finding, Remedy
from espalier.trace.report.screen import screen
from espalier.wording import Edge, OptionText, constraint

USUAL = (SHOW_THE_SCHEMA, ANOTHER_STRATEGY)
"""Tried where a text has a tax, and no finding names a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One generation, what is found in its trace, and the trials of the remedies that are named; None unless asked."""

    result: Result
    findings: tuple[Finding, ...]
    trials: tuple[Trial, ...] | None = None
    #: Of each trial.
    seeds: int = SEEDS

    @property
    def recommended(self) -> Trial | None:
        """The trial of the remedy that is recommended; None where nothing was tried, or nothing helps."""
        return recommended(self.trials or ())

    def __repr__(self) -> str:
        """One screen: text, verdict, cost, places, findings, remedies; then the trials, if there are any."""
        lines = screen(_require_trace(self.result), self.findings, "python")
        if self.trials is not None:
            lines += ["", *trials_text(self.trials, seeds=self.seeds, edge="python")]
        return "\n".join(lines)

    def to_json(self, edge: Edge = "python") -> dict[str, Any]:
        """edge: in whose words remedies are written."""
        explanation = explained(_require_trace(self.result), edge, seed=self.result.seed)
        return explanation if self.trials is None else explanation | trials_json(self.trials, edge)


def explain(
    prompt: Any,
    /,
    *,
    engine: LoadedEngine,
    try_remedies: bool = False,
    seeds: int = SEEDS,
    progress: Callable[[int, int], None] = lambda done, of: None,
    **options: Any,
) -> Explanation:
    """Generate once, and explain what the constraint cost, where, why, and what to do about it.

    options: the arguments of `espalier.generate`, a constraint among them. try_remedies: run each remedy that is named
    on so many seeds, paired with the run as asked, and measure tax (nats), validity (share), tokens and time (seconds).
    progress: told how many generations of how many are done. Raises as `generate` does.
    """
    options = {"presets": engine.presets, **options, "trace": "steps"}
    request = make_request(prompt, **options)
    if request.constraint is None:
        raise InputError(
            "there is no constraint to explain", hint=OptionText(constraint("JsonSchema")), field="constraint"
        )
    check_capabilities(engine.engine, request)
    result = next(event.result for event in engine.run([request]) if isinstance(event, FinishEvent))
    findings = tuple(diagnose(_require_trace(result)))
    trials = None
    if try_remedies:
        trials = try_all(
            findings, _require_trace(result), prompt, options, engine=engine, seeds=seeds, progress=progress
        )
    return Explanation(result=result, findings=findings, trials=trials, seeds=seeds)


def try_all(
    findings: Sequence[Finding],
    trace: Trace,
    prompt: Any,
    options: dict[str, Any],
    *,
    engine: LoadedEngine,
    seeds: int = SEEDS,
    progress: Callable[[int, int], None] = lambda done, of: None,
    route: str = "python",
) -> tuple[Trial, ...]:
    """A trial of each remedy that findings name. options: the arguments of `make_request` as asked."""

    def make(**own: Any) -> Request:
        request = make_request(prompt, **own)
        check_capabilities(engine.engine, request)
        return request

    return tried(
        remedies_of(findings, trace),
        options,
        make=make,
        seeds=seeds,
        progress=progress,
        run=lambda requests: engine.run(requests, route=route),
    )


def remedies_of(findings: Sequence[Finding], trace: Trace) -> list[Remedy]:
    """The remedies to try, each once, in the order of the findings."""
    named = {remedy.action: remedy for finding in reversed(findings) for remedy in reversed(finding.remedies)}
    return [*reversed(named.values())] or ([*USUAL] if trace.total_tax_nats > 0 else [])


def trials_json(trials: Sequence[Trial], edge: Edge) -> dict[str, Any]:
    """What each trial measured, and which remedy is recommended. edge: in whose words."""
    best = recommended(trials)
    return {
        "tried": [trial.to_json(edge) for trial in trials],
        "recommended": None if best is None else best.said(edge),
        "recommendation": recommendation(trials, edge),
    }


def explained(trace: Trace, edge: Edge, /, **more: Any) -> dict[str, Any]:
    """What a trace says, unshortened. edge: in whose words remedies are written.
    more: further fields, after the model's name."""
    return {
        "text": trace.text,
        "finish_reason": trace.finish_reason,
        "model": trace.model,
        **more,
        "verdict": trace.verdict,
        "cost": trace.summary(),
        "findings": [finding.to_json(edge) for finding in diagnose(trace)],
    }


def _require_trace(result: Result) -> Trace:
    if result.trace is None:
        raise AssertionError("a trace was asked for")
    return result.trace
