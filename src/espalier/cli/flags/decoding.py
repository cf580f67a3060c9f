"""How to decode, from flags, and where what happens is written down. What values mean is Decoding's to say."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args

import typer

from espalier.cli import output
from espalier.decoding.options import FAITHFUL, USUAL_BEAMS, USUAL_PARTICLES, OnBudget, Target
from espalier.decoding.plan import STRATEGIES
from espalier.engines.base import Result
from espalier.errors import InputError
from espalier.trace.recorders.protocol import Recorder
from espalier.trace.records import LEVELS, TraceLevel

Strategy = Annotated[str | None, typer.Option(help="mask (the default), rejection, jump, beam, ...", metavar="NAME")]
NumBeams = Annotated[int | None, typer.Option(help=f"Of beam. Default: {USUAL_BEAMS}.", metavar="N")]
LengthPenalty = Annotated[float | None, typer.Option(help="Of beam: above 1, longer texts win.", metavar="X")]
EarlyStopping = Annotated[str | None, typer.Option(help="Of beam: true, false (the default), never.", metavar="WHAT")]
NumReturnSequences = Annotated[int | None, typer.Option(help="So many texts of one run, the best first.", metavar="N")]
Particles = Annotated[
    int | None, typer.Option(help=f"Of best_of, smc and awrs. Default: {USUAL_PARTICLES}.", metavar="N")
]
EssThreshold = Annotated[float | None, typer.Option(help="Of smc and awrs: resample below it.", metavar="X")]
TargetFlag = Annotated[str | None, typer.Option("--target", help="Of these three: full, or truncated.", metavar="WHAT")]
OnBudgetFlag = Annotated[
    str | None, typer.Option("--on-budget", help="At --max-tokens: close, truncate, error.", metavar="WHAT")
]
MaxRewinds = Annotated[int | None, typer.Option(help="Text is taken back so often. Default: 100.", metavar="N")]
RejectionLogFlag = Annotated[
    str | None, typer.Option("--rejection-log", help="Log every refused token, as llama.cpp.", metavar="FILE")
]
RecordFlag = Annotated[str | None, typer.Option("--record", help="Append each step as JSON lines.", metavar="FILE")]
TraceLevelFlag = Annotated[
    str | None, typer.Option("--trace-level", help="off, summary, steps, full.", metavar="LEVEL")
]

STOPPING: Mapping[str, Any] = {"true": True, "false": False, "never": "never"}
CHOICES = {"on_budget": get_args(OnBudget), "target": get_args(Target), "early_stopping": tuple(STOPPING)}
LOGGED = "rejection"
"""The strategy that refuses what it has drawn: only with it, or with an engine's own sampler, is there a log."""
WHOLE = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
"""Truncations off: faithful sampling aims at the whole distribution."""


@dataclass(frozen=True, kw_only=True)
class DecodingFlags:
    """As they were given; None is not given."""

    strategy: str | None = None
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: str | None = None
    num_return_sequences: int | None = None
    particles: int | None = None
    ess_threshold: float | None = None
    target: str | None = None
    on_budget: str | None = None
    max_rewinds: int | None = None

    def options(self) -> dict[str, Any]:
        """Of `make_request`. Raises InputError and UnknownName naming the flag."""
        for name, known in CHOICES.items():
            given = getattr(self, name)
            if given is not None and given not in known:
                flag = f"--{name.replace('_', '-')}"
                raise InputError(f"{flag} {given}: there is no such choice", hint=", ".join(known), field=name)
        if self.strategy is not None:
            STRATEGIES.target(self.strategy)
        found = {name: value for name, value in vars(self).items() if value is not None}
        if self.early_stopping is not None:
            found["early_stopping"] = STOPPING[self.early_stopping]
        return found

    def sampling(self, given: Mapping[str, Any], *, preset: str | None) -> dict[str, Any]:
        """The sampling that was given; for faithful sampling, with no truncation that was not asked for."""
        if self.strategy not in FAITHFUL or self.target == "truncated" or preset is not None:
            return dict(given)
        return {**WHOLE, **given}

    def for_log(self, *, sampler: str) -> DecodingFlags:
        """With a strategy that fills a rejection log, where none was named. Raises InputError where it stays empty."""
        if sampler != "espalier":
            return self
        if self.strategy is None:
            output.note(f"--rejection-log: the strategy is {LOGGED}")
            return replace(self, strategy=LOGGED)
        if self.strategy != LOGGED:
            raise InputError(
                f"--rejection-log: the strategy {self.strategy} draws among what is allowed, so nothing is rejected",
                hint=f"--strategy {LOGGED}, or with llama.cpp --sampler native",
                field="rejection_log",
            )
        return self


def read_level(level: str | None, *, trace: str | None) -> TraceLevel:
    """How much of each step is kept: what was asked for, or what the trace needs. Raises InputError."""
    if level is None:
        return "steps" if trace else "summary"
    for one in LEVELS:
        if one == level:
            if trace and one in ("off", "summary"):
                raise InputError(
                    f"--trace shows every step, and --trace-level {level} keeps none", hint="steps, or full",
                    field="trace_level",
                )  # fmt: skip
            return one
    raise InputError(f"--trace-level {level}: there is no such level", hint=", ".join(LEVELS), field="trace_level")


def open_recorders(stack: ExitStack, *, rejection_log: str | None, record: str | None) -> list[Recorder]:
    """Files that are written while it runs, and closed with the stack. Raises OutputError."""
    from espalier.trace.recorders.memory import JsonLinesRecorder  # noqa: PLC0415  # only where they are asked for
    from espalier.trace.recorders.rejection_log import RejectionLog  # noqa: PLC0415

    found: list[Recorder] = []
    if rejection_log is not None:
        log = stack.enter_context(RejectionLog(rejection_log))
        stack.callback(lambda: output.note(f"rejection log: {rejection_log}, {events_of(log.events)} written"))
        found.append(log)
    if record is not None:
        found.append(stack.enter_context(JsonLinesRecorder(record)))
    return found


def events_of(count: int) -> str:
    return f"{count} event{'' if count == 1 else 's'}"


def told(result: Result) -> list[str]:
    """What a strategy has to say of a result, a line each."""
    lines = []
    if result.closed_by_budget:
        lines.append(f"closed after {result.usage.completion_tokens} tokens, to end within the limit")
    rewinds = () if result.trace is None else result.trace.rewinds
    if rewinds:
        count = sum(len(one.tokens) for one in rewinds)
        lines.append(f"taken back {len(rewinds)} time{'' if len(rewinds) == 1 else 's'}, {count} tokens in all")
    if result.trace is not None:
        for name, counts in result.trace.safety_counts().items():
            rules = (f"{category}/{pattern} {n}" for category, found in counts.items() for pattern, n in found.items())
            lines.append(f"safety: {name.replace('_', ' ')}: {', '.join(rules)}")
    weighing = result.weighing
    if weighing is not None:
        lines.append(
            f"{weighing.particles} particles: effective sample size {weighing.ess:.2f},"
            f" acceptance {weighing.acceptance:.3f}, log weight {weighing.log_weight:.2f}"
        )
        if weighing.target != "full":
            lines.append(f"the weights are those of the {weighing.target} distribution")
    if result.score is not None:
        lines.append(f"score {result.score:.4f}")
    return lines
