"""The numbers of a common step in one kernel, and the record of a step without lists, which is made when it is read.

They cover what one kernel draws: a mask, penalties first, truncations, temperature before or after them. No row is
kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import Answers, MatcherQuestions
from espalier.decoding.step.allowed import real
from espalier.decoding.step.record import Numbers, Scored, Watch, record_of
from espalier.decoding.step.row import Decision, Row
from espalier.decoding.step.stages import candidate_of
from espalier.sampling.chain import Chain
from espalier.sampling.fast.candidates import kernels
from espalier.sampling.fast.whole import NOTHING, coded
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
    """Whether `summed` covers the chain's steps: what one kernel draws, where only a constraint can ban a token."""
    return not chain.can_ban and chain.kept(_heating) is not None


def can_sum_step(row: Row, questions: MatcherQuestions) -> bool:
    """Whether the numbers of a record without lists can be had from one kernel."""
    chain = row.chain
    if len(chain.filters) or row.context.step < chain.config.min_tokens or questions.has_members:
        return False
    return can_sum(chain)


def _heating(chain: Chain) -> _Heating | None:
    config, settings = chain.config, coded(chain)
    if settings is None:
        return None
    penalties = np.array(settings.penalties, dtype=np.float32)
    return _Heating(penalties, settings.divisor, not config.is_greedy)


def logit_of(raw: Logits, chain: Chain, token: int) -> float:
    """The logit of a token after the samplers."""
    heating = chain.kept(_heating)
    if heating is None:
        raise AssertionError("these samplers are not summed")
    past = chain.past
    found: float = kernels("steps").heated_logit(raw, token, past.tokens, past.times_said, *heating[:2])
    return found


class StepSums(NamedTuple):
    """What `sum_step` finds. sums: with w = exp(raw - top), of w and of w * (raw - top), over all and over the allowed
    tokens; then the top. z_sampled: as in StepRecord. logit: of the taken token, after the samplers."""

    sums: tuple[float, float, float, float, float]
    has_mask: bool
    allowed_count: int
    is_allowed: bool
    z_sampled: float | None
    logit: float

    def numbers(self, logit: float) -> Numbers:
        """logit: the model's, of the taken token."""
        measures = measures_of(*self.sums, has_mask=self.has_mask)
        if measures is None:
            raise AssertionError("sums that are too small were kept")
        return Numbers(measures, self.allowed_count, not self.is_allowed, self.z_sampled, logit - measures.log_total)


def sums_of(raw: Logits, bits: Mask | None, chain: Chain, token: int, favourite: int) -> StepSums | None:
    """The sums of a step that took `token`, where `can_sum`; None where float64 cannot hold one. bits: `(W,) int32`,
    all that is allowed; None for everything."""
    heating = chain.kept(_heating)
    if heating is None or not raw.flags.carray or not (bits is None or (bits.shape[0] and bits.flags.carray)):
        return None
    past = chain.past
    total, spread, inside, inside_spread, mass, count, is_allowed, logit = kernels("steps").sum_step(
        raw, NOTHING if bits is None else bits, past.tokens, past.times_said, *heating, favourite, token,
        chain.room(raw.shape[0]),
    )  # fmt: skip
    z_sampled = (1.0 if bits is None else mass) if heating.wants_mass else None
    if bits is not None and (inside < TINY or (z_sampled is not None and z_sampled < 0.0)):
        return None
    sums = total, spread, inside, inside_spread, float(raw[favourite])
    return StepSums(sums, bits is not None, count, is_allowed, z_sampled, logit)


def summed(
    row: Row,
    mask: Mask | None,
    taken: tuple[int, float],
    watch: Watch,
    questions: MatcherQuestions,
    rejected: Scored | None = None,
) -> StepRecord | None:
    """The record without lists of a step that took `taken`, a token with its probability, made when it is read, or at
    once if `watch` says so; None where it has to be made from the row. rejected: the token that was drawn first and
    refused."""
    vocab, token = row.vocab, taken[0]
    found = sums_of(row.raw, real(mask, vocab), row.chain, token, row.favourite)
    if found is None:
        return None
    refused = row.favourite if rejected is None else rejected.token
    is_asked = watch.says_why and (rejected is not None or not found.is_allowed)
    asked = questions.kept(None, token, refused if is_asked else None)
    make = partial(
        _made, found, taken, float(row.raw[token]), rejected, row.context.step, row.favourite, vocab, watch.says_why,
        asked,
    )  # fmt: skip
    return make() if watch.at_once else StepRecord.later(make)


def summed_late(
    row: Row, mask: Callable[[], Mask], allows: Callable[[int], bool], watch: Watch, questions: MatcherQuestions
) -> Decision | None:
    """`decide_late` at a level without lists; None where `summed` is, and where no kernel can draw."""
    first, rejected = row.draw(None), None
    if first is None:
        return None
    bits, taken = mask(), first
    if not allows(first[0]):
        rejected = Scored(*first, logit_of(row.raw, row.chain, first[0]))
        again = row.draw(bits)
        if again is None:
            return None
        taken = again
    record = summed(row, bits, taken, watch, questions, rejected)
    return None if record is None else Decision(*taken, record)


def _made(
    found: StepSums,
    taken: tuple[int, float],
    logit: float,
    rejected: Scored | None,
    step: int,
    favourite: int,
    vocab: Vocab,
    says_why: bool,
    questions: Answers,
) -> StepRecord:
    blame = None
    if says_why and (rejected is not None or not found.is_allowed):
        blame = questions.why_refused(favourite if rejected is None else rejected.token)
    return record_of(
        step,
        candidate_of(vocab, *taken, found.logit, allowed=True),
        None if rejected is None else candidate_of(vocab, *rejected, allowed=False),
        found.numbers(logit),
        vocab=vocab,
        questions=questions,
        blame=blame,
    )
