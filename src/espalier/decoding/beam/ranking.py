"""Ranks one row of logits for beam search: the gain of each token, the best tokens, and their records.

The gain of a token is the model's `ln p`, changed by `logit_bias`, filters and penalties as by the processors of
transformers. It is not renormalised afterwards, not even where a constraint forbids other tokens. Temperature and
truncations do not apply. The module knows no beams.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.base import Matcher
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import Job
from espalier.decoding.step.allowed import NEG_INF, allowed_bits, permitted
from espalier.decoding.step.dead_ends import dead_end
from espalier.decoding.step.record import RowRecords, ScoredToken, bans_of, refusals
from espalier.decoding.step.stages import favourite_of
from espalier.decoding.timed_mask import TimedMask
from espalier.sampling.chain import Chain
from espalier.sampling.config import SamplingConfig
from espalier.sampling.draw import DrawnToken
from espalier.sampling.fast.candidates import CandidateRow, allowed, leaders
from espalier.sampling.fast.program import heated
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask
from espalier.trace.measure import measure
from espalier.trace.records import StepRecord

PENALTIES = ("penalties", "dry")
SLACK = 1e-6
"""The relative error of a sum that is compared in float32."""


@dataclass(slots=True, kw_only=True, eq=False)
class RowRanking:
    """One ranked row; valid until the model's next pass. ids: `(n,)`, best first, of equal ones the lowest first.
    gains: `(n,) float64`, finite. is_cut: whether there are more allowed tokens.

    raw, biased: `(V,) float32`, without and with bans and biases; the same array where there are none. mask: the
    constraint's, `(W,) int32`. free, bits: `(W,) int32`, the allowed tokens before and after `min_tokens`; None for
    all. left: the allowed tokens with their gains, less `offset`.
    """

    matcher: Matcher | None
    chain: Chain
    context: FilterContext
    favourite: int
    raw: Logits
    biased: Logits
    mask: Mask | None
    free: Mask | None
    bits: Mask | None
    left: CandidateRow
    offset: float
    ids: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    gains: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    is_cut: bool = True

    @property
    def refused(self) -> int | None:
        """The most probable token, if the constraint refuses it."""
        return None if self.mask is None or masks.test(self.mask, self.favourite) else self.favourite

    def look(self, most: int, least: float = -math.inf) -> None:
        """Find the `most` best tokens. Tokens with a gain below `least` may be left out."""
        values = self.left.values
        if least > -math.inf:
            edge = least - self.offset
            places = np.flatnonzero(values >= np.float32(edge - SLACK * (1.0 + abs(edge))))
            if places.size > most:
                places = places[leaders(values[places], most)]
        else:
            places = leaders(values, most)  # may hold more, where the edge is tied
        chosen = values[places]
        self.is_cut = places.size >= most and values.size > most
        order = np.argsort(-chosen, kind="stable")[: min(most, int(np.count_nonzero(chosen > NEG_INF)))]
        self.ids = self.left.ids_of(places[order])
        self.gains = chosen[order].astype(np.float64) + self.offset


class Ranking:
    """Ranks the rows of one job. seconds: the time of all masks, None where they are not timed. has_filters: whether
    there are filters, which look at the tokens so far."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._questions, self._timed = MatcherQuestions(job.matcher), TimedMask(job)
        self.has_filters = len(job.chain.filters) > 0
        self._rooms: list[Logits] = []  # (V,) float32 for each beam

    @property
    def seconds(self) -> float | None:
        return self._timed.seconds

    def first_chain(self) -> Chain:
        """A chain with only the filters, biases and penalties of the job's chain, at the end of the prompt."""
        old = self._job.chain
        config = replace(old.config, temperature=1.0, sampler_order=_penalising(old.config))
        chain = Chain(config, old.filters, fitted=old.fitted)
        chain.start(self._job.prompt)
        return chain

    def rank(
        self, raw: Logits, matcher: Matcher | None, chain: Chain, step: int, taken: Sequence[int], place: int
    ) -> RowRanking:
        """raw: `(V,) float32`, not changed. step: the number of tokens of the beam; taken: these tokens, if there are
        filters. place: the index of the beam in this step.

        Raises BadLogits for NaN, +inf or no finite logit, DeadEnd where no token is allowed.
        """
        job = self._job
        context = FilterContext(step=step, prompt=job.prompt, generated=tuple(taken))
        favourite = favourite_of(raw, step)
        mask = self._timed.mask(matcher)
        bits = free = allowed_bits(raw, mask, job.vocab, chain)  # (W,) int32 or None
        log_total = measure(raw, None).log_total
        row, biased, offset = raw, raw, -log_total
        if chain.heating or chain.fitted.ids.size or self.has_filters:
            # Penalties divide and multiply ln p here, not the logit.
            row = raw - np.float32(log_total)  # (V,) float32
            added = chain.bias(row, context)
            biased = raw if added is row else added
            row, offset = heated(added, chain), 0.0
        room = self._room(place, raw.shape[0])
        left = None
        if step < chain.config.min_tokens:
            early = masks.from_bool(job.vocab.real_ids) if bits is None else bits.copy()
            masks.set_bits_inplace(early, chain.fitted.ends, False)
            left = _alive(allowed(row, early, room))
            bits = bits if left is None else early
        left = left or _alive(allowed(row, bits, room))
        if left is None:
            tokens = permitted(mask, job.vocab, raw.shape[0])
            raise dead_end(tokens, raw, chain, step, self._questions.about(matcher))
        return RowRanking(
            matcher=matcher,
            chain=chain,
            context=context,
            favourite=favourite,
            raw=raw,
            biased=biased,
            mask=mask,
            free=free,
            bits=bits,
            left=left,
            offset=offset,
        )

    def records(self, ranked: RowRanking, tokens: Sequence[int]) -> list[StepRecord]:
        """The records of these tokens, made before the matcher advances. They share candidate lists, which hold all of
        the tokens. `post_chain` gives each allowed token its share of the allowed mass, and its gain as the logit."""
        vocab, watch, raw, chain = self._job.vocab, self._job.watch, ranked.raw, ranked.chain
        questions = self._questions.about(ranked.matcher)
        allowed = before = _flags(ranked.bits, ranked)
        if ranked.bits is not ranked.free:
            before = _flags(ranked.free, ranked)
        bans = bans_of(raw, ranked.biased, chain, ranked.context, allowed=allowed, before=before)
        drawn = _shares(ranked, tokens, watch.top_k if watch.lists else 0)
        rows = RowRecords(
            raw,
            allowed,
            drawn,
            kept=tuple(tokens),
            step=ranked.context.step,
            favourite=ranked.favourite,
            vocab=vocab,
            watch=watch,
            questions=questions,
            bans=bans,
            min_tokens=chain.config.min_tokens,
            removed_by=refusals(
                raw, allowed, ranked.mask, vocab, questions.member_masks(), bans, can_ban=chain.can_ban
            ),
        )
        places = np.searchsorted(drawn.ids, tokens).tolist()
        return [
            rows.record(ScoredToken(token, float(drawn.probs[at]), float(drawn.logits[at])))
            for token, at in zip(tokens, places, strict=True)
        ]

    def _room(self, place: int, width: int) -> Logits:
        while len(self._rooms) <= place:
            self._rooms.append(np.empty(width, dtype=np.float32))
        return self._rooms[place]


def _penalising(config: SamplingConfig) -> tuple[str, ...]:
    """The penalties in the chain's order, without temperature and truncations."""
    return tuple(name for name in config.sampler_order if name in PENALTIES)


def _alive(left: CandidateRow) -> CandidateRow | None:
    """The argument, or None where no token with a finite gain is left."""
    return left if left.values.size and left.values.max() > NEG_INF else None


def _flags(bits: Mask | None, ranked: RowRanking) -> NDArray[np.bool_] | None:
    """`(V,) bool`: the tokens of `bits` that no filter bans; None for all."""
    flags = None if bits is None else masks.unpack(bits, ranked.raw.shape[0])
    if ranked.biased is ranked.raw:
        return flags
    finite = ranked.biased > NEG_INF  # (V,) bool
    return finite if flags is None else flags & finite


def _shares(ranked: RowRanking, tokens: Sequence[int], top_k: int) -> DrawnToken:
    """The most probable allowed tokens and `tokens`, with probabilities over all allowed tokens."""
    values = ranked.left.values
    total = measure(values, None).log_total
    mine = ranked.left.places_of(np.array(sorted(tokens), dtype=np.intp))
    places = np.union1d(leaders(values, top_k), mine) if top_k else mine
    chosen = values[places].astype(np.float64)  # (n,)
    ids, gains = ranked.left.ids_of(places), (chosen + ranked.offset).astype(np.float32)
    return DrawnToken(tokens[0], 0.0, 0.0, ids, np.exp(chosen - total), gains)
