"""The interface of strategies: a `Job` goes in, a plan yields tokens and model requests, an `Outcome` comes out.

A plan is a generator without I/O. It yields `Need` (and is sent an `Answer`) or `SampledToken` (and is sent None), and
returns an `Outcome`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from espalier.chat.reading.thoughts import ThoughtSplitter
from espalier.constraints.base import Matcher
from espalier.decoding.drafting.kit import DraftKit
from espalier.decoding.line_limit import LineLimit
from espalier.decoding.options import Decoding, Sequences, single
from espalier.decoding.ports import Need
from espalier.decoding.step.record import RefusedFavourites, Watch
from espalier.decoding.step.row import TokenDecision
from espalier.sampling.chain import Chain
from espalier.sampling.config import SamplingConfig
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits
from espalier.tokens.vocab import Vocab
from espalier.trace.records import DraftTokens, Rewind, StepRecord

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One generation. The matcher, chain and stream belong to this job alone.

    prompt: token ids, not empty. max_tokens: the most tokens to generate, EOS included. spelled: special ids that are
    part of the text, with their spelling. clock: returns seconds; with a clock, masks are timed. line_limit: ends the
    text at a late new line. options: those of the strategy. encode: the tokenizer's ids of a text without BOS; None
    where there is no such function. kit: what drafts of this model share. owner: who asks; constraint: its key, ""
    without one: what drafts learn is kept apart by both. thoughts: makes what splits a text into thoughts and answer;
    None where all of a text is the answer.
    """

    vocab: Vocab
    prompt: tuple[int, ...]
    matcher: Matcher | None
    chain: Chain
    stream: RandomStream
    max_tokens: int
    watch: Watch
    spelled: Mapping[int, bytes] = field(default_factory=dict)
    clock: Callable[[], float] | None = None
    line_limit: LineLimit | None = None
    options: Decoding = field(default_factory=Decoding)
    encode: Callable[[str], Sequence[int]] | None = None
    kit: DraftKit = field(default_factory=DraftKit)
    owner: str = ""
    constraint: str = ""
    thoughts: Callable[[], ThoughtSplitter] | None = None

    def context(self, tokens: Sequence[int]) -> FilterContext:
        """The context of filters after these generated tokens. The tokens are copied only where there are filters,
        because a copy at every step costs time."""
        generated = tuple(tokens) if self.chain.filters.members else ()
        return FilterContext(len(tokens), self.prompt, generated)


class SampledToken(NamedTuple):
    """One sampled token. text: the text that may be shown after it."""

    token: int
    text: str
    record: StepRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """The importance weight of one text, and statistics of its run.

    log_weight: nats, relative to the target distribution given the constraint. ess: effective sample size at the end,
    in particles. particles: their number. acceptance: accepted over proposed tokens, 1.0 where none are refused. log_z:
    estimated ln of the target's probability that a text satisfies the constraint. resamplings: how often the particles
    were resampled. target: the distribution that the weights refer to, as in `Decoding`.
    """

    log_weight: float
    ess: float
    particles: int
    acceptance: float
    log_z: float
    resamplings: int = 0
    target: str = "full"

    def to_json(self) -> dict[str, Any]:
        """As a JSON object. JSON has no infinity: a weight of 0, and a run without any weight, are null, and `reason`
        says why."""
        fields = asdict(self)
        infinite = [name for name, value in fields.items() if isinstance(value, float) and not math.isfinite(value)]
        if infinite:
            fields |= dict.fromkeys(infinite)
            fields["reason"] = "the text was cut before its constraint was complete: its weight is 0"
        if "log_z" in infinite:
            fields["reason"] = "no text of this run was complete: all weights are 0"
        return fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What the drafts of one text came to. passes: forward passes, the prompt's included. tokens: taken. drafts: each
    proposal, in order."""

    passes: int
    tokens: int
    drafts: tuple[DraftTokens, ...] = ()

    @property
    def drafted(self) -> int:
        """Tokens that were proposed."""
        return sum(draft.drafted for draft in self.drafts)

    @property
    def accepted(self) -> int:
        """Proposed tokens that were drawn."""
        return sum(draft.accepted for draft in self.drafts)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object. tokens_per_pass counts the prompt's pass. acceptance: null where nothing was proposed."""
        sources: dict[str, dict[str, int]] = {}
        for draft in self.drafts:
            sums = sources.setdefault(draft.source, {"drafted": 0, "accepted": 0})
            sums["drafted"] += draft.drafted
            sums["accepted"] += draft.accepted
        drafted, accepted = self.drafted, self.accepted
        return {
            "passes": self.passes,
            "tokens_per_pass": self.tokens / self.passes,
            "drafted": drafted,
            "accepted": accepted,
            "acceptance": accepted / drafted if drafted else None,
            "sources": sources,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The end of a plan. tail: text that was held back until now. stop: the stop text or stop id that was met.

    is_complete: whether the text satisfies the constraint (True without one). mask_seconds: the time of all masks; None
    where they were not timed. closed_by_budget: whether the token limit determined the end of the text. rewinds: the
    tokens that were taken back. score: set by beam search. weighing: set by particle strategies. drafting: set by
    `draft`. others: the further texts of this run, best first; records: the steps of
    such a text, which no SampledToken has reported.
    """

    tokens: tuple[int, ...]
    text: str
    tail: str
    finish: FinishReason
    stop: str | int | None
    is_complete: bool = True
    mask_seconds: float | None = field(default=None, compare=False)
    closed_by_budget: bool = False
    rewinds: tuple[Rewind, ...] = ()
    score: float | None = None
    weighing: Weighing | None = None
    drafting: Drafting | None = None
    records: tuple[StepRecord, ...] = ()
    others: tuple[Outcome, ...] = ()
    #: Of a run of several sequences, the refused favourites of this text, if the job's watch wants them.
    refused: RefusedFavourites = field(default_factory=dict)


Plan: TypeAlias = Generator[Need | SampledToken, Any, Outcome]
"""A driver sends an `Answer` in reply to a `Need`, and None in reply to a `SampledToken`, which a type cannot say."""
MakePlan: TypeAlias = Callable[[Job], Plan]
Take: TypeAlias = Callable[[Logits, FilterContext], TokenDecision]
"""From `(V,) float32` logits, which must not be kept, and the filters' context to a decision. Does not change the
chain."""


def anything(options: Decoding, sampling: SamplingConfig) -> None:
    """The check of a strategy that accepts every sampling config."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One entry of the strategy registry.

    make_plan: the plan of a job. check: raises InputError, SamplingError or CapabilityError, naming the field, for
    options that cannot be combined. sequences: how many sequences a plan holds at once, each at least as long as the
    prompt. truncates: whether a plan needs `StepModel.truncate`. make_take: for a strategy that takes one token by one
    row of logits, what takes it, so that a replay can follow it; None for others.
    """

    make_plan: MakePlan
    check: Callable[[Decoding, SamplingConfig], None] = anything
    sequences: Sequences = single
    truncates: bool = False
    make_take: Callable[[Job], Take] | None = None


OLD_NAMES = {"Taken": SampledToken, "Drafted": DraftTokens, "Decision": TokenDecision}
"""What these classes were called when strategies of plug-ins were first written."""


def __getattr__(name: str) -> Any:
    if name not in OLD_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} is called {OLD_NAMES[name].__name__}", DeprecationWarning, stacklevel=2)
    return OLD_NAMES[name]
