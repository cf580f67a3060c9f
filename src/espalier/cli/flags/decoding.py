"""Decoding flags: `--strategy` and its options, and what a strategy reports on stderr."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from espalier.cli import output
from espalier.cli.flags.groups import OptionFlags, info_of
from espalier.decoding.options import OPTIONS
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import Result
from espalier.errors import InputError

SEVERAL = OPTIONS["num_return_sequences"]
NumReturnSequences = Annotated[int | None, info_of(SEVERAL)]
FLAGGED = tuple(option for option in OPTIONS.values() if option is not SEVERAL)
LOGGED = "rejection"
"""The strategy that draws freely and refuses afterwards: without it, or an engine's own sampler, a log stays empty."""


@dataclass(frozen=True, kw_only=True)
class DecodingFlags:
    """Flags that choose how a constraint is applied; `Decoding` checks the values."""

    #: The options that are given, by name.
    options_given: Annotated[Mapping[str, Any], OptionFlags(FLAGGED)] = field(default_factory=dict)

    @property
    def strategy(self) -> str | None:
        return self.options_given.get("strategy")

    def options(self) -> dict[str, Any]:
        """Options of `make_request`. Raises InputError and UnknownName naming the option."""
        for name, value in self.options_given.items():
            OPTIONS[name].check(value)
        if self.strategy is not None:
            STRATEGIES.require(self.strategy)
        return dict(self.options_given)

    def for_log(self, *, sampler: str) -> DecodingFlags:
        """The flags of a run with a rejection log, whose strategy is LOGGED. Raises InputError for another strategy:
        it would leave the log empty."""
        if sampler != "espalier":
            return self
        if self.strategy is None:
            output.note(f"--rejection-log: the strategy is {LOGGED}")
            return DecodingFlags(options_given={**self.options_given, "strategy": LOGGED})
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
