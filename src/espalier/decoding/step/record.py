"""Builds the records of a step: masses, candidate lists, blame, and who removed what. The only maker of a StepRecord.

Every strategy's records come from `RowRecords`. This module knows neither how a token is drawn nor what a strategy is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import MatcherQuestions, NamedMasks
from espalier.decoding.step.stages import CONSTRAINT, NEG_INF, PADDING, Stages, banned_by, permitted, shares
from espalier.sampling.chain import Chain
from espalier.sampling.fast.draw_fast import DrawnToken
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import OTHERS, measure
from espalier.trace.records import StepRecord, TraceLevel
from espalier.trace.sidecar import distribution

Flags: TypeAlias = NDArray[np.bool_]  # (V,)
Ban: TypeAlias = tuple[str, Flags]
"""The name of a ban besides the constraint, and the tokens that it bans."""

LISTED: tuple[TraceLevel, ...] = ("steps", "full")
"""Trace levels at which the candidates of each stage, and the reasons, are recorded."""


class Watch(NamedTuple):
    """How much of a step is recorded. top_k: candidates per stage from level `steps` on. counts: whether the reason why
    a top choice was refused is recorded at level `summary` too, because it is counted."""

    level: TraceLevel = "steps"
    top_k: int = 10
    counts: bool = False

    @property
    def is_on(self) -> bool:
        return self.level != "off"

    @property
    def lists(self) -> bool:
        """Whether candidates are listed."""
        return self.level in LISTED

    @property
    def says_why(self) -> bool:
        return self.lists or (self.counts and self.is_on)


class Scored(NamedTuple):
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
        questions: MatcherQuestions,
        rejected: Scored | None = None,
        bans: Sequence[Ban] = (),
        min_tokens: int = 0,
        removed_by: tuple[tuple[str, float], ...] = (),
        z_sampled: float | None = None,
    ) -> None:
        self._raw, self._vocab, self._questions = raw, vocab, questions
        self._step, self._rejected, self._removed_by, self._z_sampled = step, rejected, removed_by, z_sampled
        self._numbers = numbers = measure(raw, allowed, top=float(raw[favourite]))
        self._stages = stages = Stages(raw, allowed, numbers, vocab, kept, watch.top_k)
        self._lists = (stages.wanted(), stages.allowed(), stages.sampled(drawn)) if watch.lists else ((), (), ())
        self._count = raw.shape[0] if allowed is None else int(np.count_nonzero(allowed))
        self._is_changed = allowed is not None and not bool(allowed[favourite])
        self._blame = None
        if watch.says_why and (self._is_changed or rejected is not None):
            refused = favourite if rejected is None else rejected.token
            self._blame = questions.why_refused(refused) or banned_by(refused, bans, min_tokens)
        self._distribution = distribution(raw, allowed) if watch.level == "full" else None

    def record(self, taken: Scored, *, was_forced: bool = False) -> StepRecord:
        """The record of the step at which `taken` was taken."""
        token, vocab, numbers, rejected = taken.token, self._vocab, self._numbers, self._rejected
        return StepRecord(
            step=self._step,
            token_id=token,
            text=vocab.text_of(token),
            bytes=vocab.bytes_of(token),
            logprob=float(self._raw[token]) - numbers.log_total,
            pre_masking=self._lists[0],
            post_grammar=self._lists[1],
            post_chain=self._lists[2],
            resampled=self._stages.candidate(*taken),
            allowed_count=self._count,
            removed_mass=numbers.removed_mass,
            tax_nats=numbers.tax_nats,
            z_sampled=self._z_sampled,
            entropy_before=numbers.entropy_before,
            entropy_after=numbers.entropy_after,
            was_changed=self._is_changed,
            was_rejected=rejected is not None,
            rejected=None if rejected is None else self._stages.candidate(*rejected),
            was_forced=was_forced,
            is_special=token in vocab.special_texts,
            blame=self._blame,
            removed_by=self._removed_by,
            rule=self._questions.rule_of(token),
            distribution=self._distribution,
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
    found = [*chain.fitted.bans, *_bans_of_filters(raw, biased, chain, context)]
    if allowed is not None and before is not allowed:
        found.append(("min_tokens", ~allowed if before is None else before & ~allowed))
    return found


def _bans_of_filters(raw: Logits, biased: Logits, chain: Chain, context: FilterContext) -> list[Ban]:
    alone = chain.fitted.apply(raw)
    banned = (alone > NEG_INF) & (biased == NEG_INF)  # (V,) bool, by any filter
    if not bool(banned.any()):
        return []
    active = [one for one in chain.filters if chain.filters.is_enabled(one.name)]
    if len(active) == 1:
        return [(active[0].name, banned)]
    found: list[Ban] = []
    row = alone.copy()
    for one in active:
        after = one.apply(row.copy(), context)
        mine = banned & (row > NEG_INF) & (after == NEG_INF)
        if bool(mine.any()):
            found.append((one.name, mine))
        row = after
    return [*found, (OTHERS, banned)]


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
