"""Decoding flags: `--strategy` and its options, and what a strategy reports on stderr."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, get_args

import typer

from espalier.cli import output
from espalier.decoding.drafts.source import USUAL
from espalier.decoding.options import USUAL_BEAMS, USUAL_PARTICLES, OnBudget, Target
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import Result
from espalier.errors import InputError

NumReturnSequences = Annotated[int | None, typer.Option(help="Print the N best texts of one run.", metavar="N")]

STOPPING: Mapping[str, Any] = {"true": True, "false": False, "never": "never"}
CHOICES = {"on_budget": get_args(OnBudget), "target": get_args(Target), "early_stopping": tuple(STOPPING)}
LOGGED = "rejection"
"""The strategy that draws freely and refuses afterwards: without it, or an engine's own sampler, a log stays empty."""


@dataclass(frozen=True, kw_only=True)
class DecodingFlags:
    """Flags that choose how a constraint is applied. None is not given; `Decoding` checks the values."""

    strategy: Annotated[
        str | None,
        typer.Option(help="mask (the default), draft, rejection, jump, beam, ..., a plug-in's", metavar="NAME"),
    ] = None
    num_beams: Annotated[
        int | None, typer.Option(help=f"beam: number of beams. Default: {USUAL_BEAMS}.", metavar="N")
    ] = None
    length_penalty: Annotated[float | None, typer.Option(help="beam: above 1, longer texts win.", metavar="X")] = None
    early_stopping: Annotated[
        str | None, typer.Option(help="beam: true, false (the default), never.", metavar="WHAT")
    ] = None
    particles: Annotated[
        int | None,
        typer.Option(help=f"best_of, smc, awrs: number of particles. Default: {USUAL_PARTICLES}.", metavar="N"),
    ] = None
    ess_threshold: Annotated[
        float | None, typer.Option(help="smc, awrs: resample below this share of particles.", metavar="X")
    ] = None
    target: Annotated[str | None, typer.Option(help="best_of, smc, awrs: full, or truncated.", metavar="WHAT")] = None
    on_budget: Annotated[
        str | None, typer.Option(help="At --max-tokens: close, truncate or error.", metavar="WHAT")
    ] = None
    draft: Annotated[
        str | None,
        typer.Option(
            help=f"draft: sources of proposed tokens. Default: {','.join(USUAL)}, and model with --draft-model.",
            metavar="NAME,NAME",
        ),
    ] = None
    max_rewinds: Annotated[int | None, typer.Option(help="At most N rewinds. Default: 100.", metavar="N")] = None

    def options(self) -> dict[str, Any]:
        """Options of `make_request`. Raises InputError and UnknownName naming the flag."""
        for name, known in CHOICES.items():
            given = getattr(self, name)
            if given is not None and given not in known:
                flag = f"--{name.replace('_', '-')}"
                raise InputError(f"{flag} {given}: there is no such choice", hint=", ".join(known), field=name)
        if self.strategy is not None:
            STRATEGIES.require(self.strategy)
        options = {name: value for name, value in vars(self).items() if value is not None}
        if (given := options.pop("draft", None)) is not None:
            options["drafts"] = tuple(source.strip() for source in given.split(","))
        if self.early_stopping is not None:
            options["early_stopping"] = STOPPING[self.early_stopping]
        return options

    def for_log(self, *, sampler: str) -> DecodingFlags:
        """The flags of a run with a rejection log, whose strategy is LOGGED. Raises InputError for another strategy:
        it would leave the log empty."""
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


def strategy_lines(result: Result) -> list[str]:
    """Lines that report what a strategy did: rewinds, safety, weights, score."""
    lines = []
    if result.closed_by_budget:
        lines.append(f"closed after {result.usage.completion_tokens} tokens, to end within the limit")
    rewinds = () if result.trace is None else result.trace.rewinds
    if rewinds:
        count = sum(len(rewind.tokens) for rewind in rewinds)
        lines.append(f"taken back {len(rewinds)} time{'' if len(rewinds) == 1 else 's'}, {count} tokens in all")
    if result.trace is not None:
        for name, counts in result.trace.safety_counts().items():
            rules = (f"{category}/{pattern} {n}" for category, count in counts.items() for pattern, n in count.items())
            lines.append(f"safety: {name.replace('_', ' ')}: {', '.join(rules)}")
    weighing = result.weighing
    if weighing is not None:
        lines.append(
            f"{weighing.particles} particles: effective sample size {weighing.ess:.2f},"
            f" acceptance {weighing.acceptance:.3f}, log weight {weighing.log_weight:.2f}"
        )
        if weighing.target != "full":
            lines.append(f"the weights are those of the {weighing.target} distribution")
    drafting = result.drafting
    if drafting is not None:
        told = "nothing was drafted"
        if drafting.drafted:
            told = f"{drafting.accepted / drafting.drafted:.0%} of {drafting.drafted} drafted tokens taken"
        lines.append(f"{drafting.passes} forward passes, {drafting.tokens / drafting.passes:.2f} tokens each, {told}")
    if result.score is not None:
        lines.append(f"score {result.score:.4f}")
    return lines
