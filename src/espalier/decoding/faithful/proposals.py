"""Draws one token of a particle, with its weight and its record. Two ways to draw it: `masked` and `adaptive`.

The increment of the log weight is ln of the target's mass on the allowed set, exact or an unbiased estimate, so that
`E[weight * 1[token]]` is the target's probability of each allowed token. It knows nothing of other particles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from espalier.constraints.base import Matcher
from espalier.decoding.faithful.awrs import Urn, sample
from espalier.decoding.faithful.target import NEG_INF, Aim, Flags, Target
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import Job
from espalier.decoding.step.allowed import permitted
from espalier.decoding.step.dead_ends import dead_end
from espalier.decoding.step.decide import decide
from espalier.decoding.step.record import RowRecords, ScoredToken, bans_of, refusals
from espalier.decoding.step.stages import favourite_of
from espalier.decoding.timed_mask import TimedMask
from espalier.errors import DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.draw import DrawnToken, RandomStream, pick
from espalier.sampling.fast.program import heated
from espalier.sampling.filters import FilterContext
from espalier.tokens.mask import Logits, Mask
from espalier.trace.measure import allowed_mass, measure
from espalier.trace.records import StepRecord
from espalier.wording import OptionText, Setting


class ParticleView(Protocol):
    """The part of a particle that a draw reads. A draw advances the stream and changes nothing else."""

    @property
    def matcher(self) -> Matcher | None: ...
    @property
    def chain(self) -> Chain: ...
    @property
    def stream(self) -> RandomStream: ...
    @property
    def tokens(self) -> Sequence[int]: ...


class Proposal(NamedTuple):
    """token: with its probability in the distribution that it was drawn from. log_mass: nats, ln of the target's mass
    on the allowed set, or an estimate of it. asked: how many tokens were proposed. record: None at level `off`.
    refused: the most probable token, if the constraint refuses it and the job's watch wants to know."""

    token: int
    prob: float
    log_mass: float
    asked: int
    record: StepRecord | None
    refused: int | None = None


Propose: TypeAlias = "Callable[[Proposer, ParticleView, Logits], Proposal]"


class Proposer:
    """Draws for the particles of one job. seconds: the time spent in matchers so far; None where it is not measured."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._target = Target(job)
        self._watches = job.watch.is_on
        self._timed, self._questions = TimedMask(job), MatcherQuestions(job.matcher)

    @property
    def seconds(self) -> float | None:
        return self._timed.seconds

    def masked(self, particle: ParticleView, raw: Logits) -> Proposal:
        """Draw from the target over the allowed set; the increment is exact. raw: `(V,) float32`. Raises DeadEnd where
        the target has no allowed token, BadLogits."""
        context = self._job.context(particle.tokens)
        favourite = favourite_of(raw, context.step)
        mask = self._timed.mask(particle.matcher)
        if not self._target.is_truncated:
            return self._masked_in_full(particle, raw, mask, context, favourite)
        aim = self._target.aim(raw, particle.chain, context, particle.stream)
        allowed = self._target.allowed(aim, mask)
        drawn, log_mass = self._from(aim, allowed, particle, mask, raw, context.step)
        record = None
        if self._watches:
            record = self._record(particle, raw, favourite, aim, mask, allowed, drawn, (), context)
        refused = self._refused(particle, favourite)
        return Proposal(drawn.token, self._chain_prob(aim, drawn), log_mass, 1, record, refused)

    def _masked_in_full(
        self, particle: ParticleView, raw: Logits, mask: Mask | None, context: FilterContext, favourite: int
    ) -> Proposal:
        """Without truncations, a step of the `mask` strategy draws from the target over the allowed set."""
        decision = decide(
            raw,
            mask,
            vocab=self._job.vocab,
            chain=particle.chain,
            stream=particle.stream,
            context=context,
            watch=replace(self._job.watch, refused=None),
            questions=self._questions.about(particle.matcher),
        )
        aim = self._target.aim(raw, particle.chain, context, particle.stream)
        allowed = self._target.allowed(aim, mask)
        log_mass = 0.0 if bool(allowed.all()) else -measure(aim.row, allowed).tax_nats
        refused = self._refused(particle, favourite)
        return Proposal(decision.token, decision.prob, log_mass, 1, decision.record, refused)

    def adaptive(self, particle: ParticleView, raw: Logits) -> Proposal:
        """Draw from the target and ask the matcher about each drawn token; the increment is an estimate. Where many
        tokens were refused, or none is left, the mask is built: no allowed token was drawn then, so the exact mass is
        an unbiased increment too. raw: `(V,) float32`. Raises DeadEnd, BadLogits."""
        matcher = particle.matcher
        if matcher is None:  # nobody to ask
            return self.masked(particle, raw)
        context = self._job.context(particle.tokens)
        favourite = favourite_of(raw, context.step)
        aim = self._target.aim(raw, particle.chain, context, particle.stream)
        found_mask: Mask | None = None
        first = aim.open & (aim.row > NEG_INF)  # (V,) bool
        first[list(aim.held)] = False  # only the mask tells whether other tokens are left
        if bool(first.any()):
            base = float(aim.row[first].max())
            # Relative to the best of them, so that weights do not underflow where bans left only improbable tokens.
            weights = np.where(first, np.exp(np.minimum(aim.row.astype(np.float64) - base, 0.0)), 0.0)  # (V,) float64
            urn = Urn(weights, particle.stream.next)
            search = sample(urn, lambda token: self._timed.timed(partial(matcher.allows, token)))
            token, refused = search.token, search.refused
        else:
            token, refused = None, ()
        if token is None:
            found_mask = self._timed.mask(particle.matcher)
            allowed = self._target.allowed(aim, found_mask)
            drawn, log_mass = self._from(aim, allowed, particle, found_mask, raw, context.step)
        else:
            total = measure(aim.row, None).log_total
            drawn = _choice(aim.row, first, token, full=self._watches)
            log_mass = base - total + math.log(search.mass)
        record = None
        if self._watches:  # the record needs the mask, the draw does not
            found_mask = self._timed.mask(particle.matcher) if found_mask is None else found_mask
            allowed = self._target.allowed(aim, found_mask)
            record = self._record(particle, raw, favourite, aim, found_mask, allowed, drawn, refused, context)
        wish = self._refused(particle, favourite)
        return Proposal(drawn.token, self._chain_prob(aim, drawn), log_mass, len(refused) + 1, record, wish)

    def _refused(self, particle: ParticleView, favourite: int) -> int | None:
        """The most probable token, if the constraint refuses it and somebody wants to know."""
        if self._job.watch.refused is None or particle.matcher is None or particle.matcher.allows(favourite):
            return None
        return favourite

    def _from(
        self, aim: Aim, allowed: Flags, particle: ParticleView, mask: Mask | None, raw: Logits, step: int
    ) -> tuple[DrawnToken, float]:
        """Draw from the target over the allowed set; the second value is ln of its mass. Raises DeadEnd, naming what
        left no token."""
        inside = np.where(allowed, aim.row, NEG_INF)  # (V,) float32
        if not bool((inside > NEG_INF).any()):
            if self._target.is_truncated and bool((allowed & (aim.free > NEG_INF)).any()):
                raise DeadEnd(
                    f"truncation left nothing that is allowed at step {step}",
                    hint=OptionText(Setting("target", "full"), " truncates nothing"),
                )
            tokens = permitted(mask, self._job.vocab, raw.shape[0])
            raise dead_end(tokens, raw, particle.chain, step, self._questions.about(particle.matcher))
        drawn = pick(inside, particle.stream.next())
        log_mass = 0.0 if bool(allowed.all()) else -measure(aim.row, allowed).tax_nats
        return DrawnToken(
            drawn.token, drawn.prob, float(inside[drawn.token]), drawn.ids, drawn.probs, inside[drawn.ids]
        ), log_mass

    def _chain_prob(self, aim: Aim, drawn: DrawnToken) -> float:
        """The probability for `Chain.on_token`: that of the target without the constraint."""
        if not self._target.is_truncated:
            return drawn.prob
        return math.exp(float(aim.row[drawn.token]) - measure(aim.row, None).log_total)

    def _record(
        self,
        particle: ParticleView,
        raw: Logits,
        favourite: int,
        aim: Aim,
        mask: Mask | None,
        allowed: Flags,
        drawn: DrawnToken,
        refused: Sequence[int],
        context: FilterContext,
    ) -> StepRecord:
        """The record of a step that `decide` did not take. mask: the constraint's. refused: the tokens that were drawn
        and refused."""
        vocab, chain, questions = self._job.vocab, particle.chain, self._questions.about(particle.matcher)
        bans = bans_of(raw, chain.bias(raw, context), chain, context)
        rejected = None
        if refused:
            row, log_total = aim.row, measure(aim.row, None).log_total
            logit = float(row[refused[0]])
            rejected = ScoredToken(refused[0], math.exp(logit - log_total), logit)
        rows = RowRecords(
            raw,
            allowed,
            drawn,
            kept=(drawn.token, *refused[:1]),
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
        return rows.record(ScoredToken(drawn.token, drawn.prob, drawn.logit))


def _choice(row: Logits, pool: Flags, token: int, *, full: bool) -> DrawnToken:
    """A token that was drawn from `pool`, `(V,) bool`, in proportion to exp(row). full: with the
    whole distribution."""
    ids = np.flatnonzero(pool) if full else np.array([token])  # (n,)
    values = row[ids]  # (n,) float32
    log_total = measure(row, pool).log_allowed
    probs = np.exp(values.astype(np.float64) - log_total)  # (n,) float64
    return DrawnToken(token, math.exp(float(row[token]) - log_total), float(row[token]), ids, probs, values)
