"""One token of one particle: drawn, weighed and written down. Two ways to draw it, `masked` and `adaptive`.

The increment of the log weight is ln of the target's mass of the allowed set, exact or estimated without bias, so that
`E[weight * 1[token]]` is the target's probability of each allowed token. It knows nothing of other particles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from espalier.constraints.base import Matcher
from espalier.decoding.faithful.awrs import Urn, sample
from espalier.decoding.faithful.target import NEG_INF, Aim, Flags, Target
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import Job
from espalier.decoding.stages import favourite_of, permitted
from espalier.decoding.step import dead_end, decide
from espalier.decoding.step_record import RowRecords, Scored, bans_of, refusals
from espalier.decoding.timed_mask import TimedMask
from espalier.errors import DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream, pick
from espalier.sampling.fast.draw_fast import Choice, heated
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits, Mask
from espalier.trace.measure import allowed_mass, measure
from espalier.trace.records import StepRecord


class Walker(Protocol):
    """What is looked at of a particle. `draw` changes its stream, and nothing else of it."""

    @property
    def matcher(self) -> Matcher | None: ...
    @property
    def chain(self) -> Chain: ...
    @property
    def stream(self) -> RandomStream: ...
    @property
    def tokens(self) -> Sequence[int]: ...


class Proposal(NamedTuple):
    """token, and its probability in what it was drawn from. log_mass: nats, ln of the target's mass of the allowed set
    or an estimate of it. asked: how many tokens were proposed. record: None at level `off`."""

    token: int
    prob: float
    log_mass: float
    asked: int
    record: StepRecord | None


Propose: TypeAlias = "Callable[[Proposer, Walker, Logits], Proposal]"


class Proposer:
    """Draws for the particles of one job. seconds: what asking the constraint took so far, where that is timed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._target = Target(job)
        self._watches = job.watch.is_on
        self._timed, self._questions = TimedMask(job), MatcherQuestions(job.matcher)

    @property
    def seconds(self) -> float | None:
        return self._timed.seconds

    def masked(self, walker: Walker, raw: Logits) -> Proposal:
        """From the target over the allowed set; the increment is exact. raw: `(V,) float32`. Raises DeadEnd where the
        target has nothing that is allowed, BadLogits."""
        context = self._job.context(walker.tokens)
        favourite = favourite_of(raw, context.step)
        mask = self._timed.mask(walker.matcher)
        if not self._target.is_truncated:
            return self._masked_in_full(walker, raw, mask, context)
        aim = self._target.aim(raw, walker.chain, context, walker.stream)
        allowed = self._target.allowed(aim, mask)
        taken, log_mass = self._from(aim, allowed, walker, mask, raw, context.step)
        record = None
        if self._watches:
            record = self._written(walker, raw, favourite, aim, mask, allowed, taken, (), context)
        return Proposal(taken.token, self._told(aim, taken), log_mass, 1, record)

    def _masked_in_full(self, walker: Walker, raw: Logits, mask: Mask | None, context: FilterContext) -> Proposal:
        """With nothing truncated the step of `mask` draws from just that, and writes it down."""
        decision = decide(
            raw, mask, vocab=self._job.vocab, chain=walker.chain, stream=walker.stream, context=context,
            watch=self._job.watch, questions=self._questions.about(walker.matcher),
        )  # fmt: skip
        aim = self._target.aim(raw, walker.chain, context, walker.stream)
        allowed = self._target.allowed(aim, mask)
        log_mass = 0.0 if bool(allowed.all()) else -measure(aim.row, allowed).tax_nats
        return Proposal(decision.token, decision.prob, log_mass, 1, decision.record)

    def adaptive(self, walker: Walker, raw: Logits) -> Proposal:
        """From the target, asking for each token that comes; the increment is an estimate. Where many were refused, and
        where nothing is left, the mask is built: what it allows has then not been drawn, so that its exact mass is an
        unbiased increment too. raw: `(V,) float32`. Raises DeadEnd, BadLogits."""
        matcher = walker.matcher
        if matcher is None:  # nobody to ask
            return self.masked(walker, raw)
        context = self._job.context(walker.tokens)
        favourite = favourite_of(raw, context.step)
        aim = self._target.aim(raw, walker.chain, context, walker.stream)
        found_mask: Mask | None = None
        first = aim.open & (aim.row > NEG_INF)  # (V,) bool
        first[list(aim.held)] = False  # only the mask knows whether they are all that is left
        if bool(first.any()):
            base = float(aim.row[first].max())
            # Relative to the best of them, so that nothing is lost where bans left only what is improbable.
            weights = np.where(first, np.exp(np.minimum(aim.row.astype(np.float64) - base, 0.0)), 0.0)  # (V,) float64
            urn = Urn(weights, walker.stream.next)
            found = sample(urn, lambda token: self._timed.timed(partial(matcher.allows, token)))
            token, refused = found.token, found.refused
        else:
            token, refused = None, ()
        if token is None:
            found_mask = self._timed.mask(walker.matcher)
            allowed = self._target.allowed(aim, found_mask)
            taken, log_mass = self._from(aim, allowed, walker, found_mask, raw, context.step)
        else:
            total = measure(aim.row, None).log_total
            taken = _choice(aim.row, first, token, full=self._watches)
            log_mass = base - total + math.log(found.mass)
        record = None
        if self._watches:  # what is written down needs the mask, what is drawn does not
            found_mask = self._timed.mask(walker.matcher) if found_mask is None else found_mask
            allowed = self._target.allowed(aim, found_mask)
            record = self._written(walker, raw, favourite, aim, found_mask, allowed, taken, refused, context)
        return Proposal(taken.token, self._told(aim, taken), log_mass, len(refused) + 1, record)

    def _from(
        self, aim: Aim, allowed: Flags, walker: Walker, mask: Mask | None, raw: Logits, step: int
    ) -> tuple[Choice, float]:
        """Drawn from the target over the allowed set, with ln of its mass. Raises DeadEnd, saying who left nothing."""
        inside = np.where(allowed, aim.row, NEG_INF)  # (V,) float32
        if not bool((inside > NEG_INF).any()):
            if self._target.is_truncated and bool((allowed & (aim.free > NEG_INF)).any()):
                raise DeadEnd(
                    f"truncation left nothing that is allowed at step {step}", hint='target="full" truncates nothing'
                )
            raise DeadEnd(dead_end(permitted(mask, self._job.vocab, raw.shape[0]), raw, walker.chain, step))
        one = pick(inside, walker.stream.next())
        log_mass = 0.0 if bool(allowed.all()) else -measure(aim.row, allowed).tax_nats
        return Choice(one.token, one.prob, float(inside[one.token]), one.ids, one.probs, inside[one.ids]), log_mass

    def _told(self, aim: Aim, taken: Choice) -> float:
        """What the chain learns from: the free chain's probability, as the target is the chain's law left alone."""
        if not self._target.is_truncated:
            return taken.prob
        return math.exp(float(aim.row[taken.token]) - measure(aim.row, None).log_total)

    def _written(
        self,
        walker: Walker,
        raw: Logits,
        favourite: int,
        aim: Aim,
        mask: Mask | None,
        allowed: Flags,
        taken: Choice,
        refused: Sequence[int],
        context: FilterContext,
    ) -> StepRecord:
        """The record of a step that did not begin with a mask. mask: all the same. refused: what was drawn before."""
        vocab, chain, questions = self._job.vocab, walker.chain, self._questions.about(walker.matcher)
        bans = bans_of(raw, chain.bias(raw, context), chain, context)
        rejected = None
        if refused:
            row, log_total = aim.row, measure(aim.row, None).log_total
            logit = float(row[refused[0]])
            rejected = Scored(refused[0], math.exp(logit - log_total), logit)
        rows = RowRecords(
            raw,
            allowed,
            taken,
            kept=(taken.token, *refused[:1]),
            step=context.step,
            favourite=favourite,
            vocab=vocab,
            watch=self._job.watch,
            questions=questions,
            rejected=rejected,
            bans=bans,
            min_tokens=chain.config.min_tokens,
            removed_by=refusals(raw, allowed, mask, vocab, questions.member_masks(), bans, can_ban=chain.can_ban),
            z_sampled=allowed_mass(heated(aim.free, chain), allowed),
        )
        return rows.record(Scored(taken.token, taken.prob, taken.logit))


def _choice(row: Logits, pool: Flags, token: int, *, full: bool) -> Choice:
    """A token of a pool `(V,) bool` that was drawn from in proportion to exp of a row; what else there was if asked."""
    ids = np.flatnonzero(pool) if full else np.array([token])  # (n,)
    values = row[ids]  # (n,) float32
    log_total = measure(row, pool).log_allowed
    probs = np.exp(values.astype(np.float64) - log_total)  # (n,) float64
    return Choice(token, math.exp(float(row[token]) - log_total), float(row[token]), ids, probs, values)
