"""What a strategy is given, and what it says while it runs. Strategies are generators; they do no I/O.

A plan yields `Need` (and is sent an `Answer`) or `Taken` (and is sent None), and returns an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from espalier.constraints.base import Matcher
from espalier.decoding.options import Decoding, Sequences, single
from espalier.decoding.ports import Answer, Need
from espalier.decoding.step_record import Watch
from espalier.registry import Registry
from espalier.sampling.chain import Chain
from espalier.sampling.config import SamplingConfig
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext
from espalier.tokens.vocab import Vocab
from espalier.trace.records import Rewind, StepRecord

FinishReason = Literal["stop", "length"]

STRATEGIES = Registry(
    "strategies",
    {
        "mask": "espalier.decoding.masking:MASK",
        "rejection": "espalier.decoding.rejection:REJECTION",
        "jump": "espalier.decoding.jump.strategy:JUMP",
        "beam": "espalier.decoding.beam.strategy:BEAM",
        "best_of": "espalier.decoding.faithful.strategy:BEST_OF",
        "smc": "espalier.decoding.faithful.strategy:SMC",
        "awrs": "espalier.decoding.faithful.strategy:AWRS",
    },
)
"""Names to a `Strategy` each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One sequence to generate. The matcher, chain and stream belong to this job alone.

    prompt: token ids, not empty. max_tokens: how many may be generated, the ending EOS included. spelled: special ids
    that are part of the text, and how they are spelled there. clock: seconds; with one, masks are timed. options: of
    the strategy. encode: how the tokenizer splits a text that begins nothing (no BOS), None where it cannot be asked.
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
    options: Decoding = field(default_factory=Decoding)
    encode: Callable[[str], Sequence[int]] | None = None

    def context(self, tokens: Sequence[int]) -> FilterContext:
        """What filters may look at after these generated tokens. Copying the tokens costs: only where there are filters
        are they copied."""
        generated = tuple(tokens) if len(self.chain.filters) else ()
        return FilterContext(step=len(tokens), prompt=self.prompt, generated=generated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A token was taken; `text` is what may be shown now."""

    token: int
    text: str
    record: StepRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """What faithful sampling knows of one of its texts and of the run.

    log_weight: nats, towards the target given the constraint. ess: effective sample size of the particles at the end,
    in particles. particles: how many. acceptance: accepted over proposed tokens, 1.0 where none are refused. log_z:
    estimated ln of the target's probability that a text is in the language. resamplings: how often the particles were
    drawn anew. target: what the weights refer to.
    """

    log_weight: float
    ess: float
    particles: int
    acceptance: float
    log_z: float
    resamplings: int = 0
    target: str = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended. tail: text held back until now. stop: the stop text or stop id that was met.

    is_complete: whether the constraint's text had come to an end (True where there is none). mask_seconds: what all its
    masks took, None where they were not timed. closed_by_budget: whether the token limit decided how it ends. rewinds:
    what was taken back. score: a beam's. weighing: a particle's. others: the further texts of this run, best first;
    records: their steps, which no Taken has told.
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
    records: tuple[StepRecord, ...] = ()
    others: tuple[Outcome, ...] = ()


Plan: TypeAlias = Generator[Need | Taken, Answer | None, Outcome]
MakePlan: TypeAlias = Callable[[Job], Plan]


def anything(options: Decoding, sampling: SamplingConfig) -> None:
    """The check of a strategy that goes with every sampling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """One way to decode, as the registry holds it.

    make_plan: the plan of a job. check: raises InputError, SamplingError or CapabilityError, naming the field, for
    what cannot be combined. sequences: how many it holds at once, of the prompt's length each at least. truncates:
    whether it needs `StepModel.truncate`.
    """

    make_plan: MakePlan
    check: Callable[[Decoding, SamplingConfig], None] = anything
    sequences: Sequences = single
    truncates: bool = False
