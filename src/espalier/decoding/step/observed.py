"""The record of a step that was drawn: made with the step, or when it is read.

A record is made later where that needs little memory: of a step without lists its numbers are computed at once, and no
row is kept; of a short row with lists, the row, the mask and the counts that penalties look at are copied. Whatever may
have changed until then (filters, plug-ins, DRY's history) has its record made at once.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import Answers, MatcherQuestions
from espalier.decoding.step.allowed import NEG_INF, real
from espalier.decoding.step.record import Numbers, RowRecords, Scored, Watch, bans_of, record_of, refusals
from espalier.decoding.step.row import Draw, Row
from espalier.decoding.step.stages import SHORT, candidate_of
from espalier.sampling.chain import Chain
from espalier.sampling.draw import DrawnToken
from espalier.sampling.fast.candidates import kernels
from espalier.sampling.fast.program import RowInputs, heated, list_inputs, program_of
from espalier.sampling.samplers.context import TransformContext
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.measure import allowed_mass, measures_of
from espalier.trace.records import StepRecord

MANY = 256
"""The counts of more tokens are not copied at every step."""


def lists_at_once(row: Row, watch: Watch) -> bool:
    """Whether the candidates of a draw are listed with the draw."""
    return watch.lists and not _can_wait(row, watch)


def observe(
    row: Row, mask: Mask | None, draw: Draw, rejected: Draw | None, watch: Watch, questions: MatcherQuestions
) -> StepRecord:
    """The record of a draw. mask: the constraint's, `(W,) int32`. rejected: what was drawn first and refused.
    questions: about the matcher, which has not advanced yet."""
    first = None if rejected is None else Scored(rejected.token, rejected.prob, rejected.logit)
    refused = row.favourite if first is None else first.token
    if not watch.lists and _is_common(row.chain) and not (row.is_early or questions.has_members):
        inputs = draw.inputs
        numbers = None if inputs is None else _numbers(row, mask, inputs, float(row.raw[draw.token]))
        if numbers is not None:
            tells = watch.says_why and (first is not None or numbers.was_changed)
            answers = questions.kept(None, draw.token, refused if tells else None)
            scored = Scored(draw.token, draw.prob, draw.logit)
            why = refused if tells else None
            make = partial(_record_numbers, row.context.step, row.vocab, scored, first, numbers, why, answers)
            return make() if watch.at_once else StepRecord.later(make)
    if draw.inputs is not None and draw.drawn is None and watch.lists:
        inputs, bits = draw.inputs.copied(), None if mask is None else mask.copy()
        kept_draw, answers = draw._replace(inputs=inputs), questions.kept(bits, draw.token, refused)
        return StepRecord.later(partial(record_row, row.copied(inputs.row), bits, kept_draw, first, watch, answers))
    return record_row(row, mask, draw, first, watch, questions)


def record_row(
    row: Row,
    mask: Mask | None,
    draw: Draw,
    rejected: Scored | None,
    watch: Watch,
    questions: Answers,
    *,
    was_forced: bool = False,
) -> StepRecord:
    """The record of a row whose token was drawn, or forced. Raises AssertionError if listing its candidates draws
    another token."""
    raw, chain, vocab, token = row.raw, row.chain, row.vocab, draw.token
    allowed = row.allowed(mask)
    flags, numbers = allowed.flags, None
    bans = bans_of(raw, row.biased, chain, row.context, allowed=flags, before=allowed.before)
    if not (was_forced or row.is_early) and _is_common(chain) and draw.inputs is not None:
        numbers = _numbers(row, mask, draw.inputs, float(raw[token]))
    rows = RowRecords(
        raw,
        flags,
        _listed(row, mask, draw, watch),
        kept=(token,) if rejected is None else (token, rejected.token),
        step=row.context.step,
        favourite=row.favourite,
        vocab=vocab,
        watch=watch,
        questions=questions,
        rejected=rejected,
        bans=bans,
        min_tokens=chain.config.min_tokens,
        removed_by=refusals(raw, flags, mask, vocab, questions.member_masks(), bans, can_ban=chain.can_ban),
        z_sampled=_z_sampled(row, flags, draw, token if was_forced else None) if numbers is None else numbers.z_sampled,
        numbers=numbers,
    )
    return rows.record(Scored(token, draw.prob, draw.logit), was_forced=was_forced)


def _is_common(chain: Chain) -> bool:
    """Whether one kernel sums up a step: only a constraint bans tokens, and no logit is changed for good."""
    return not chain.can_ban and not chain.fitted.ids.size and chain.kept(_can_sum)


def _can_sum(chain: Chain) -> bool:
    program = program_of(chain)
    return program is not None and program.heating is not None


def _can_wait(row: Row, watch: Watch) -> bool:
    """Whether a record with lists can be made later."""
    chain = row.chain
    if not watch.lists or watch.at_once or row.has_filters or row.is_early or row.raw.shape[0] > SHORT:
        return False
    program = chain.kept(program_of)
    if program is None or program.has_dry:
        return False
    return not program.has_penalties or chain.past.tokens.shape[0] <= MANY


def _numbers(row: Row, mask: Mask | None, inputs: RowInputs, logit: float) -> Numbers | None:
    """The numbers of a common step; None where float64 cannot hold one. logit: the model's, of the taken token."""
    chain, bits = row.chain, real(mask, row.vocab)
    program, is_greedy = chain.kept(program_of), chain.config.is_greedy
    if program is None or (bits is not None and not (bits.shape[0] and bits.flags.carray)):
        return None
    row_bits = inputs.bits[:0] if bits is None else bits
    room = inputs.room if inputs.room.shape[0] else np.empty_like(inputs.row)
    *sums, share, count, is_best = kernels("steps").sum_step(
        inputs.row, row_bits, *inputs[2:6], program.summing, room, row.favourite, not is_greedy
    )
    has_mask = bits is not None
    measures = measures_of(*sums, float(row.raw[row.favourite]), has_mask=has_mask)
    if measures is None or (share < 0.0 and not is_greedy):
        return None
    return Numbers(measures, count, not is_best, None if is_greedy else share, logit - measures.log_total)


def _record_numbers(
    step: int,
    vocab: Vocab,
    taken: Scored,
    rejected: Scored | None,
    numbers: Numbers,
    refused: int | None,
    questions: Answers,
) -> StepRecord:
    """The record of a step without lists. refused: the token of which is told why the constraint refuses it."""
    return record_of(
        step,
        candidate_of(vocab, *taken, allowed=True),
        None if rejected is None else candidate_of(vocab, *rejected, allowed=False),
        numbers,
        vocab=vocab,
        questions=questions,
        blame=None if refused is None else questions.why_refused(refused),
    )


def _listed(row: Row, mask: Mask | None, draw: Draw, watch: Watch) -> DrawnToken:
    """The candidates that a token was drawn from; the token alone where nothing is listed."""
    if draw.drawn is not None:
        return draw.drawn
    inputs = draw.inputs
    if inputs is None or not watch.lists:
        token = np.array([draw.token])
        return DrawnToken(draw.token, draw.prob, draw.logit, token, np.array([draw.prob]), row.raw[token])
    drawn = list_inputs(inputs, max(1, watch.top_k))
    if drawn is None:
        bits = inputs.bits if inputs.bits.shape[0] else None
        drawn = row.draw_plainly(bits, inputs.chance, inputs.uniform, _context(row.chain, inputs))
    if drawn.token != draw.token:
        raise AssertionError(f"token {draw.token} was taken, and deciding again takes {drawn.token}")
    return drawn


def _context(chain: Chain, inputs: RowInputs) -> TransformContext:
    """What the plain functions of a chain without DRY read, as it was at the step."""
    pairs = dict(zip(inputs.tokens.tolist(), inputs.said.tolist(), strict=True))
    produced = {token: count for token, count in pairs.items() if count}
    seen = dict.fromkeys(pairs, 1)
    return TransformContext(config=chain.config, seen=seen, produced=produced, chance=inputs.chance)


def _z_sampled(row: Row, allowed: NDArray[np.bool_] | None, draw: Draw, forced: int | None) -> float | None:
    """The probability of the allowed tokens, or of a forced one alone, after penalties, bias and temperature; None
    where no such distribution is defined."""
    chain, raw = row.chain, row.raw
    if chain.config.is_greedy or chain.config.dynatemp_range:
        return None
    if forced is not None:
        allowed = np.zeros(raw.shape[0], dtype=np.bool_)  # (V,)
        allowed[forced] = True
    if allowed is None:
        return 1.0
    free = _undo_bans(raw, row.biased, chain)
    if draw.inputs is not None and not draw.inputs.room.shape[0]:  # a copy: the chain has gone on
        return allowed_mass(chain.heat(free, _context(chain, draw.inputs)), allowed)
    return allowed_mass(heated(free, chain), allowed)


def _undo_bans(raw: Logits, biased: Logits, chain: Chain) -> Logits:
    """`(V,) float32`, the biased logits with banned tokens as they were: p' is a distribution over all tokens."""
    if biased is raw:
        return raw
    added = chain.fitted.add(raw)
    return added if not len(chain.filters) and not chain.fitted.bans else np.where(biased > NEG_INF, biased, added)
