"""What a strategy is given, and what it says while it runs. Strategies are generators; they do no I/O.

A plan yields `Need` (and is sent an `Answer`) or `Taken` (and is sent None), and returns an `Outcome`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from espalier.constraints.base import Matcher
from espalier.decoding.ports import Answer, Need
from espalier.decoding.step import Watch
from espalier.registry import Registry
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.tokens.vocab import Vocab
from espalier.trace.records import StepRecord

FinishReason = Literal["stop", "length"]

STRATEGIES = Registry("strategies", {"mask": "espalier.decoding.masking:mask_plan"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One sequence to generate. The matcher, chain and stream belong to this job alone.

    prompt: token ids, not empty. max_tokens: how many may be generated, the ending EOS included. spelled: special ids
    that are part of the text, and how they are spelled there. clock: seconds; with one, masks are timed.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A token was taken; `text` is what may be shown now."""

    token: int
    text: str
    record: StepRecord | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How it ended. tail: text held back until now. stop: the stop text or stop id that was met.

    is_complete: whether the constraint's text had come to an end (True where there is none). mask_seconds: what all its
    masks took, None where they were not timed.
    """

    tokens: tuple[int, ...]
    text: str
    tail: str
    finish: FinishReason
    stop: str | int | None
    is_complete: bool = True
    mask_seconds: float | None = field(default=None, compare=False)


Plan: TypeAlias = Generator[Need | Taken, Answer | None, Outcome]
MakePlan: TypeAlias = Callable[[Job], Plan]
