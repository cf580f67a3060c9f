"""The numbers of a common step in one kernel, and the record of a step without lists, which is made when it is read.

They cover what one kernel draws: a mask, penalties first, truncations, temperature before or after them. No row is
kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import Answers, MatcherQuestions
from espalier.decoding.step.allowed import real
from espalier.decoding.step.record import Numbers, Scored, Watch, record_of
from espalier.decoding.step.row import Decision, Row
from espalier.decoding.step.stages import candidate_of
from espalier.sampling.chain import Chain
from espalier.sampling.fast.candidates import kernels
from espalier.sampling.fast.whole import NOTHING, arguments, coded
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import TINY, measures_of
from espalier.trace.records import StepRecord


class _Heating(NamedTuple):
    """penalties: `(4,) float32`, `(0,)` where they are off. wants_mass: whether p' is defined."""

    penalties: NDArray[np.float32]
    heat: np.float32
    wants_mass: bool


def can_sum(chain: Chain) -> bool:
    """Whether one kernel covers the chain's steps: it can draw them, and only a constraint can ban a token."""
    return not chain.can_ban and chain.kept(_heating) is not None


def _heating(chain: Chain) -> _Heating | None:
    config, settings = chain.config, coded(chain)
    if settings is None:
        return None
    penalties = np.array(settings.penalties, dtype=np.float32)
    return _Heating(penalties, settings.divisor, not config.is_greedy)


class StepSums(NamedTuple):
    """What `sum_step` finds. sums: with w = exp(raw - top), of w and of w * (raw - top), over all and over the allowed
    tokens; then the top. z_sampled: as in StepRecord."""

    sums: tuple[float, float, float, float, float]
    has_mask: bool
    allowed_count: int
    is_allowed: bool
    z_sampled: float | None

    def numbers(self, logit: float) -> Numbers:
        """logit: the model's, of the taken token."""
        measures = measures_of(*self.sums, has_mask=self.has_mask)
        if measures is None:
            raise AssertionError("sums that are too small were kept")
        return Numbers(measures, self.allowed_count, not self.is_allowed, self.z_sampled, logit - measures.log_total)


def sums_of(raw: Logits, bits: Mask | None, chain: Chain, favourite: int) -> StepSums | None:
    """The sums of a step where `can_sum`; None where float64 cannot hold one. bits: `(W,) int32`,
    all that is allowed; None for everything."""
    heating = chain.kept(_heating)
    if heating is None or not raw.flags.carray or not (bits is None or (bits.shape[0] and bits.flags.carray)):
        return None
    past, words = chain.past, kernels("masked").words_of(raw.shape[0], NOTHING if bits is None else bits, NOTHING)
    total, spread, inside, inside_spread, mass, count, is_allowed = kernels("steps").sum_step(
        raw, words, past.tokens, past.times_said, *heating, favourite, chain.room(raw.shape[0])
    )
    z_sampled = (1.0 if bits is None else mass) if heating.wants_mass else None
    if bits is not None and (inside < TINY or (z_sampled is not None and z_sampled < 0.0)):
        return None
    sums = total, spread, inside, inside_spread, float(raw[favourite])
    return StepSums(sums, bits is not None, count, is_allowed, z_sampled)


Found: TypeAlias = tuple[int, float, bool, float, float, float, float, float, float, float, float, int, bool]
"""What `draw_and_sum` finds."""


def decide_summed(row: Row, mask: Mask | None, watch: Watch, questions: MatcherQuestions) -> Decision | None:
    """`decide` at a level without lists; None where no kernel can draw, or float64 cannot hold the sums."""
    if not _is_common(row, questions):
        return None
    bits = real(mask, row.vocab)
    draw = _found(row, bits, bits)
    return None if draw is None else _decision(row, draw, bits is not None, None, watch, questions)


def decide_late_summed(
    row: Row, mask: Callable[[], Mask], watch: Watch, questions: MatcherQuestions
) -> Decision | None:
    """`decide_late` at a level without lists; None as `decide_summed`."""
    if not _is_common(row, questions):
        return None
    bits, rejected = mask(), None
    draw = _found(row, real(None, row.vocab), bits)
    if draw is not None and not draw[2]:
        rejected = Scored(draw[0], draw[1], draw[4])
        draw = _found(row, bits, bits)
    return None if draw is None else _decision(row, draw, True, rejected, watch, questions)


def _is_common(row: Row, questions: MatcherQuestions) -> bool:
    chain = row.chain
    return not (row.context.step < chain.config.min_tokens or questions.has_members) and can_sum(chain)


def _found(row: Row, bits: Mask | None, allowed: Mask | None) -> Found | None:
    """Draw from the tokens of `bits`, and sum over those of `allowed`, `(W,) int32`; None for all."""
    raw, _, chain, stream, _, favourite = row
    settings = chain.kept(coded)
    inputs = None if settings is None else arguments(raw, bits, chain, settings, settings.drawing, favourite)
    if inputs is None or not (allowed is bits or (allowed is not None and allowed.shape[0] and allowed.flags.carray)):
        return None
    draw: Found = kernels("steps").draw_and_sum(*inputs, stream.next(), NOTHING if allowed is None else allowed)
    inside, mass = draw[8], draw[10]
    is_lost = draw[2] and allowed is not None and (inside < TINY or (mass < 0.0 and not chain.config.is_greedy))
    return None if draw[0] < 0 or is_lost else draw


def _decision(
    row: Row, draw: Found, has_mask: bool, rejected: Scored | None, watch: Watch, questions: MatcherQuestions
) -> Decision:
    """The record is made when it is read, or at once if `watch` says so. rejected: the token that was drawn first and
    refused."""
    token, prob, refused = draw[0], draw[1], None
    if (rejected is not None or not draw[12]) and watch.says_why:
        refused = row.favourite if rejected is None else rejected.token
    answers = questions.kept(None, token, refused)
    is_greedy = row.chain.config.is_greedy
    make = partial(_build_record, draw, has_mask, is_greedy, rejected, row.context.step, row.vocab, refused, answers)
    return Decision(token, prob, make() if watch.at_once else StepRecord.later(make))


def _build_record(
    draw: Found,
    has_mask: bool,
    is_greedy: bool,
    rejected: Scored | None,
    step: int,
    vocab: Vocab,
    refused: int | None,
    questions: Answers,
) -> StepRecord:
    """refused: the token of which is told why the constraint refuses it."""
    token, prob, _, logit, hot, top, total, spread, inside, inside_spread, mass, count, is_best = draw
    z_sampled = None if is_greedy else mass if has_mask else 1.0
    sums = StepSums((total, spread, inside, inside_spread, top), has_mask, count, is_best, z_sampled)
    return record_of(
        step,
        candidate_of(vocab, token, prob, hot, allowed=True),
        None if rejected is None else candidate_of(vocab, *rejected, allowed=False),
        sums.numbers(logit),
        vocab=vocab,
        questions=questions,
        blame=None if refused is None else questions.why_refused(refused),
    )
