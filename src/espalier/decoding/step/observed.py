"""The record of a step that was drawn: made with the step, or when it is read.

A record is made later where that needs little memory: of a step without lists its numbers are computed at once, and no
row is kept; of a short row with lists, the row, the mask and the counts that penalties look at are copied. Whatever may
have changed until then (filters, plug-ins, DRY's history) has its record made at once.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.matcher_questions import Answers, MatcherQuestions
from espalier.decoding.step.allowed import NEG_INF, real
from espalier.decoding.step.record import RowRecords, ScoredToken, StepNumbers, Watch, bans_of, record_of, refusals
from espalier.decoding.step.row import Draw, LogitRow
from espalier.decoding.step.stages import SHORT, candidate_of
from espalier.sampling.chain import Chain
from espalier.sampling.draw import DrawnToken
from espalier.sampling.fast.candidates import kernels
from espalier.sampling.fast.program import NOTHING, RowInputs, heated, list_inputs, new_tuple
from espalier.sampling.samplers.context import TransformContext
from espalier.tokens.mask import Logits, Mask
from espalier.tokens.vocab import Vocab
from espalier.trace.candidates import spelling_of
from espalier.trace.listed import StepLines, StepRow, StepTable
from espalier.trace.measure import TINY, allowed_mass, measures_of
from espalier.trace.records import StepRecord

MANY = 256
"""The counts of more tokens are not copied at every step."""


def lists_at_once(row: LogitRow, watch: Watch) -> bool:
    """Whether the candidates of a draw are listed with the draw, at a level that lists them."""
    chain, program = row.chain, row.program
    if watch.at_once or row.is_changed or row.raw.shape[0] > SHORT:
        return True
    if program is None or program.has_dry:
        return True
    return program.has_penalties and chain.past.tokens.shape[0] > MANY


def lines_of(row: LogitRow, table: StepTable, questions: MatcherQuestions) -> StepLines | None:
    """Where a kernel writes the step; None where a record needs more than it writes."""
    is_listed = row.is_common and row.raw.shape[0] <= SHORT and not (questions.has_members or row.chain.can_ban)
    return table.lines() if is_listed else None


def observe(
    row: LogitRow,
    mask: Mask | None,
    draw: Draw,
    rejected: Draw | None,
    watch: Watch,
    questions: MatcherQuestions,
    lines: StepLines | None = None,
) -> StepRecord:
    """The record of a draw. mask: the constraint's, `(W,) int32`. rejected: what was drawn first and refused.
    questions: about the matcher, which has not advanced yet. lines: where the draw has listed its candidates."""
    if lines is not None and watch.table is not None and draw.inputs is not None:
        listed = _list_step(row, mask, draw.token, draw.inputs, watch.table, lines, questions)
        if listed is not None:
            return listed.record().made_of(listed) if watch.at_once else StepRecord.later(listed.record, listed)
    first = None if rejected is None else ScoredToken(rejected.token, rejected.prob, rejected.logit)
    refused = row.favourite if first is None else first.token
    inputs = draw.inputs
    lists = watch.lists
    if not lists and inputs is not None and row.is_common and not questions.has_members:
        sums = _sum(row, mask, inputs)
        if sums is not None:
            why = refused if watch.says_why and (first is not None or not sums.is_best) else None
            answers = questions.kept(None, draw.token, why)
            top, logit = float(row.raw[row.favourite]), float(row.raw[draw.token])
            make = partial(_record_sums, row.context.step, row.vocab, draw[:3], first, sums, top, logit, why, answers)
            return make() if watch.at_once else StepRecord.later(make)
    if lists and inputs is not None and draw.drawn is None:
        copied, bits = inputs.copied(), None if mask is None else mask.copy()
        answers = questions.kept(bits, draw.token, refused)
        later = new_tuple(Draw, (*draw[:3], copied, None))
        return StepRecord.later(partial(record_row, row._replace(raw=copied.row), bits, later, first, watch, answers))
    return record_row(row, mask, draw, first, watch, questions)


def _list_step(
    row: LogitRow,
    mask: Mask | None,
    token: int,
    inputs: RowInputs,
    table: StepTable,
    lines: StepLines,
    questions: MatcherQuestions,
) -> StepRow | None:
    """The step of a common row in its table; None where float64 cannot hold a sum."""
    bits, program = real(None, row.vocab) if mask is None else mask, row.program
    if program is None or (bits is not None and not (bits.shape[0] and bits.flags.carray)):
        return None
    raw, _, tokens, said, losses, _, room, *_ = inputs
    is_best = kernels("listing").list_step(
        raw,
        NOTHING if bits is None else bits,
        tokens,
        said,
        losses,
        program.summing,
        room if room.shape[0] else np.empty_like(raw),
        row.favourite,
        not row.chain.config.is_greedy,
        table.top_k,
        *lines,
    )
    if is_best < 0:
        return None
    table.take()
    refused = None if is_best else row.favourite
    answers = questions.kept(None, token, refused)
    return StepRow(row.context.step, lines, spelling_of(row.vocab), answers, refused)


def record_row(
    row: LogitRow,
    mask: Mask | None,
    draw: Draw,
    rejected: ScoredToken | None,
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
    if row.is_common and draw.inputs is not None:
        sums = _sum(row, mask, draw.inputs)
        numbers = None if sums is None else sums.numbers(float(raw[row.favourite]), float(raw[token]))
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
    return rows.record(ScoredToken(token, draw.prob, draw.logit), was_forced=was_forced)


class StepSums(NamedTuple):
    """What `sum_step` finds. sums: with w = exp(raw - top), of w and of w * (raw - top), over all and over the allowed
    tokens."""

    sums: tuple[float, float, float, float]
    has_mask: bool
    allowed_count: int
    #: whether the most probable token is allowed
    is_best: bool
    #: as in StepRecord
    z_sampled: float | None

    def numbers(self, top: float, logit: float) -> StepNumbers:
        """top: the largest logit of the model; logit: that of the taken token."""
        measures = measures_of(*self.sums, top, has_mask=self.has_mask)
        if measures is None:
            raise AssertionError("sums that are too small were kept")
        return StepNumbers(measures, self.allowed_count, not self.is_best, self.z_sampled, logit - measures.log_total)


def _sum(row: LogitRow, mask: Mask | None, inputs: RowInputs) -> StepSums | None:
    """The sums of a common step; None where float64 cannot hold one."""
    chain, program = row.chain, row.program
    bits = real(None, row.vocab) if mask is None else mask
    if program is None or (bits is not None and not (bits.shape[0] and bits.flags.carray)):
        return None
    has_mask, is_greedy, favourite = bits is not None, chain.config.is_greedy, row.favourite
    raw, _, tokens, said, losses, _, room, *_ = inputs
    total, spread, inside, inside_spread, share, count, is_best = kernels("steps").sum_step(
        raw,
        bits if has_mask else NOTHING,
        tokens,
        said,
        losses,
        program.summing,
        room if room.shape[0] else np.empty_like(raw),
        favourite,
        not is_greedy,
    )
    if has_mask and (inside < TINY or (share < 0.0 and not is_greedy)):
        return None
    sums = (total, spread, inside, inside_spread), has_mask, count, is_best, None if is_greedy else share
    return new_tuple(StepSums, sums)


def _record_sums(
    step: int,
    vocab: Vocab,
    taken: tuple[int, float, float],
    rejected: ScoredToken | None,
    sums: StepSums,
    top: float,
    logit: float,
    refused: int | None,
    questions: Answers,
) -> StepRecord:
    """The record of a step without lists. refused: the token of which is told why the constraint refuses it."""
    return record_of(
        step,
        candidate_of(vocab, *taken, allowed=True),
        None if rejected is None else candidate_of(vocab, *rejected, allowed=False),
        sums.numbers(top, logit),
        vocab=vocab,
        questions=questions,
        blame=None if refused is None else questions.why_refused(refused),
    )


def _listed(row: LogitRow, mask: Mask | None, draw: Draw, watch: Watch) -> DrawnToken:
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


def _z_sampled(row: LogitRow, allowed: NDArray[np.bool_] | None, draw: Draw, forced: int | None) -> float | None:
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
