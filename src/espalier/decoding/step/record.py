"""Builds the records of a step: masses, candidate lists, blame, and who removed what. The only maker of a StepRecord.

Every strategy's records come from `RowRecords`. This module knows neither how a token is drawn nor what a strategy is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.automata.reasons.blame import Blame
from espalier.decoding.matcher_questions import Answers, NamedMasks
from espalier.decoding.step.allowed import NEG_INF, permitted
from espalier.decoding.step.stages import CONSTRAINT, PADDING, Stages, banned_by, shares
from espalier.sampling.chain import Chain
from espalier.sampling.draw import DrawnToken
from espalier.sampling.fast.program import new_tuple
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.listed import StepTable
from espalier.trace.measure import OTHERS, Measures, measure
from espalier.trace.records import Candidate, StepRecord, TraceLevel
from espalier.trace.sidecar import Distribution, distribution

Flags: TypeAlias = NDArray[np.bool_]  # (V,)
Ban: TypeAlias = tuple[str, Flags]
"""The name of a ban besides the constraint, and the tokens that it bans."""

LISTED: tuple[TraceLevel, ...] = ("steps", "full")
"""Trace levels at which the candidates of each stage, and the reasons, are recorded."""


RefusedFavourites: TypeAlias = dict[int, int]
"""By step: the most probable token, where the mask refused it."""


@dataclass(frozen=True, slots=True)
class Watch:
    """How much of a step is recorded."""

    level: TraceLevel = "steps"
    #: candidates of a stage, from level `steps` on
    top_k: int = 10
    #: whether the reason why a top choice was refused is recorded at level `summary` too, because it is counted
    counts: bool = False
    #: whether records are made with their steps, because they are read as they come
    at_once: bool = False
    #: takes the refused favourites of a run of one sequence, at every level; None: none are wanted. A run of several
    #: has them in its outcomes
    refused: RefusedFavourites | None = None
    #: takes steps that one kernel lists, at level `steps`; None: each record is made of its own
    table: StepTable | None = None
    #: whether there is a record
    is_on: bool = field(init=False, compare=False)
    #: whether candidates are listed
    lists: bool = field(init=False, compare=False)
    #: whether reasons are recorded
    says_why: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Not properties: every step looks at them.
        is_on, lists = self.level != "off", self.level in LISTED
        for name, value in (("is_on", is_on), ("lists", lists), ("says_why", lists or (self.counts and is_on))):
            object.__setattr__(self, name, value)


class ScoredToken(NamedTuple):
    """A token with its probability and its logit in what it was drawn from."""

    token: int
    prob: float
    logit: float


class RowRecords:
    """The records of one row of logits: one for each token that was taken by it. Beam search can take several.

    raw: `(V,) float32`, from the model. allowed: `(V,) bool`, the tokens that the constraint and all bans leave; None
    for all. drawn: the distribution that was drawn from. kept: tokens that each candidate list holds besides its best.
    favourite: the most probable token. rejected: the token that was drawn first and refused. bans: in order of blame.
    removed_by: see `refusals`. questions: about the matcher, which has not advanced yet. z_sampled: as in StepRecord.
    numbers: of the row, where they are known.
    """

    def __init__(
        self,
        raw: Logits,
        allowed: Flags | None,
        drawn: DrawnToken,
        *,
        kept: tuple[int, ...],
        step: int,
        favourite: int,
        vocab: Vocab,
        watch: Watch,
        questions: Answers,
        rejected: ScoredToken | None = None,
        bans: Sequence[Ban] = (),
        min_tokens: int = 0,
        removed_by: tuple[tuple[str, float], ...] = (),
        z_sampled: float | None = None,
        numbers: StepNumbers | None = None,
    ) -> None:
        self._raw, self._vocab, self._questions = raw, vocab, questions
        self._step, self._rejected, self._removed_by = step, rejected, removed_by
        if numbers is None:
            count = raw.shape[0] if allowed is None else int(np.count_nonzero(allowed))
            is_changed = allowed is not None and not bool(allowed[favourite])
            numbers = StepNumbers(measure(raw, allowed, top=float(raw[favourite])), count, is_changed, z_sampled, 0.0)
        self._numbers = numbers
        self._stages = stages = Stages(raw, allowed, numbers.measures, vocab, kept, watch.top_k)
        self._lists = (stages.wanted(), stages.allowed(), stages.sampled(drawn)) if watch.lists else ((), (), ())
        self._blame = None
        if watch.says_why and (numbers.was_changed or rejected is not None):
            refused = favourite if rejected is None else rejected.token
            self._blame = questions.why_refused(refused) or banned_by(refused, bans, min_tokens)
        self._distribution = distribution(raw, allowed) if watch.level == "full" else None

    def record(self, taken: ScoredToken, *, was_forced: bool = False) -> StepRecord:
        """The record of the step at which `taken` was taken."""
        rejected, numbers = self._rejected, self._numbers
        return record_of(
            self._step,
            self._stages.candidate(*taken),
            None if rejected is None else self._stages.candidate(*rejected),
            new_tuple(StepNumbers, (*numbers[:4], float(self._raw[taken.token]) - numbers.measures.log_total)),
            vocab=self._vocab,
            questions=self._questions,
            lists=self._lists,
            blame=self._blame,
            removed_by=self._removed_by,
            distribution=self._distribution,
            was_forced=was_forced,
        )


class StepNumbers(NamedTuple):
    """The measurements of a step; the names are those of StepRecord."""

    measures: Measures
    allowed_count: int
    was_changed: bool
    z_sampled: float | None
    logprob: float


def record_of(
    step: int,
    taken: Candidate,
    rejected: Candidate | None,
    numbers: StepNumbers,
    *,
    vocab: Vocab,
    questions: Answers,
    lists: tuple[Sequence[Candidate], Sequence[Candidate], Sequence[Candidate]] = ((), (), ()),
    blame: Blame | None = None,
    removed_by: tuple[tuple[str, float], ...] = (),
    distribution: Distribution | None = None,
    was_forced: bool = False,
) -> StepRecord:
    """The record of one step. lists: the candidates before the mask, after it and after the chain."""
    measures = numbers.measures
    return StepRecord(
        step=step,
        token_id=taken.id,
        text=taken.text,
        bytes=taken.bytes,
        logprob=numbers.logprob,
        pre_masking=lists[0],
        post_grammar=lists[1],
        post_chain=lists[2],
        resampled=taken,
        allowed_count=numbers.allowed_count,
        removed_mass=measures.removed_mass,
        tax_nats=measures.tax_nats,
        z_sampled=numbers.z_sampled,
        entropy_before=measures.entropy_before,
        entropy_after=measures.entropy_after,
        was_changed=numbers.was_changed,
        was_rejected=rejected is not None,
        rejected=rejected,
        was_forced=was_forced,
        is_special=taken.id in vocab.special_texts,
        blame=blame,
        removed_by=removed_by,
        rule=questions.rule_of(taken.id),
        distribution=distribution,
    )


def bans_of(
    raw: Logits,
    biased: Logits,
    chain: Chain,
    context: FilterContext,
    *,
    allowed: Flags | None = None,
    before: Flags | None = None,
) -> list[Ban]:
    """The bans of one step, in order of blame: by fields of the config, by filters, and by `min_tokens`. Filters that
    banned anything are run again, one by one; a ban that this does not explain is named `OTHERS`.

    allowed: `(V,) bool`, without the tokens that `min_tokens` held back; before: with them. The same object where it
    held nothing back.
    """
    if not chain.can_ban:
        return []
    bans = [*chain.fitted.bans, *_bans_of_filters(raw, biased, chain, context)]
    if allowed is not None and before is not allowed:
        bans.append(("min_tokens", ~allowed if before is None else before & ~allowed))
    return bans


def _bans_of_filters(raw: Logits, biased: Logits, chain: Chain, context: FilterContext) -> list[Ban]:
    alone = chain.fitted.apply(raw)
    banned = (alone > NEG_INF) & (biased == NEG_INF)  # (V,) bool, by any filter
    if not bool(banned.any()):
        return []
    active = [logit_filter for logit_filter in chain.filters if chain.filters.is_enabled(logit_filter.name)]
    if len(active) == 1:
        return [(active[0].name, banned)]
    bans: list[Ban] = []
    row = alone.copy()
    for logit_filter in active:
        after = logit_filter.apply(row.copy(), context)
        mine = banned & (row > NEG_INF) & (after == NEG_INF)
        if bool(mine.any()):
            bans.append((logit_filter.name, mine))
        row = after
    return [*bans, (OTHERS, banned)]


def refusals(
    raw: Logits,
    allowed: Flags | None,
    mask: Mask | None,
    vocab: Vocab,
    members: NamedMasks,
    bans: Sequence[Ban],
    *,
    can_ban: bool,
) -> tuple[tuple[str, float], ...]:
    """The mass that each member and each ban is the first to refuse: `removed_by` of a StepRecord. mask: the
    constraint's, `(W,) int32`.

    can_ban: whether anything but a constraint could remove a token at any step; without that and without members there
    is nothing to share out.
    """
    if allowed is None or not (members or can_ban):
        return ()
    constrained = None if members else permitted(mask, vocab, raw.shape[0])
    return shares(raw, allowed, constrained, members, bans, name=PADDING if mask is None else CONSTRAINT)
