"""The particles of one run: weighted texts that grow in parallel and are resampled when their weights differ too much.

It does not know how a token is drawn (`proposals.py`). It decides which sequences the model holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from espalier.constraints.base import Matcher
from espalier.decoding.faithful import weights
from espalier.decoding.faithful.proposals import Proposal
from espalier.decoding.plan import Job, Outcome, Weighing
from espalier.decoding.ports import Append, Need
from espalier.decoding.text.run import EndRule, TextRun
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.trace.records import StepRecord

STREAMS = 256
"""Random streams per output: more than the most particles, and than the most outputs of one prompt."""


class ParticleToken(NamedTuple):
    """One taken token, shared by all particles that go on from it."""

    token: int
    record: StepRecord | None
    #: The most probable token, if the constraint refused it.
    refused: int | None


@dataclass(slots=True, eq=False, kw_only=True)
class Particle:
    """One weighted text. log_weight: nats; -inf is a weight of 0. branch: the model's sequence that holds the text
    without its last token; None once the text has ended. is_dead: no allowed token was left."""

    matcher: Matcher | None
    chain: Chain
    stream: RandomStream
    text: TextRun
    branch: int | None = 0
    steps: list[ParticleToken] = field(default_factory=list)
    log_weight: float = 0.0
    is_dead: bool = False

    @property
    def tokens(self) -> list[int]:
        return self.text.tokens

    @property
    def is_live(self) -> bool:
        """Whether it takes more tokens."""
        return not self.is_dead and self.text.ending is None

    @property
    def is_cut(self) -> bool:
        """Whether the token limit ended it."""
        return self.text.ending is not None and self.text.ending.finish == "length"

    def copy(self, stream: RandomStream) -> Particle:
        """An independent copy with another random stream."""
        return Particle(
            matcher=None if self.matcher is None else self.matcher.fork(),
            chain=self.chain.fork(),
            stream=stream,
            text=self.text.fork(),
            branch=self.branch,
            steps=self.steps.copy(),
            log_weight=self.log_weight,
            is_dead=self.is_dead,
        )


class ParticleSet:
    """All particles of a job. The job's own stream resamples and draws the result. Particle i has the stream
    `(stream of the job + 1) * STREAMS + i`, also after it was resampled from another particle."""

    def __init__(self, job: Job, *, is_private: bool) -> None:
        """is_private: whether the record of a step depends on more than the text and the token. Such a step is streamed
        only once all particles share the step itself."""
        self._job = job
        self._is_private = is_private or job.chain.needs_chance
        rule = EndRule(job)
        job.chain.start(job.prompt)
        first = Particle(matcher=job.matcher, chain=job.chain, stream=self._stream(0), text=TextRun(rule))
        more = [first.copy(self._stream(place)) for place in range(1, job.options.count)]
        self.particles = [first, *more]
        self._held = {0}  # branches
        self._told = TextRun(rule)  # the beginning that all agree on
        self.resamplings = self.asked = self.accepted = 0

    @property
    def live(self) -> list[tuple[int, Particle]]:
        return [(place, particle) for place, particle in enumerate(self.particles) if particle.is_live]

    @property
    def log_weights(self) -> list[float]:
        return [particle.log_weight for particle in self.particles]

    def take(self, particle: Particle, proposal: Proposal) -> None:
        """One more token of a live particle."""
        token = proposal.token
        self.asked += proposal.asked
        self.accepted += 1
        if particle.matcher is not None:
            particle.matcher.advance(token)
        particle.chain.on_token(token, proposal.prob)
        particle.log_weight += proposal.log_mass
        particle.steps.append(ParticleToken(token, proposal.record, proposal.refused))
        particle.text.take(token)
        if particle.is_cut and particle.matcher is not None:
            particle.log_weight = weights.NOTHING
        if not particle.is_live:
            particle.branch = None

    def drop(self, particle: Particle, asked: int = 0) -> None:
        """Give up a particle that has no allowed token left. asked: how many tokens were proposed."""
        self.asked += asked
        particle.is_dead, particle.log_weight, particle.branch = True, weights.NOTHING, None

    def resample(self, threshold: float) -> None:
        """Resample in proportion to the weights, if the effective sample size is below this share of the particles and
        any of them is live. Ended particles take part. Each gets the mean weight."""
        log_weights = self.log_weights
        size = weights.effective_size(log_weights)
        if not self.live or size == 0.0 or size >= threshold * len(log_weights):
            return
        mean = weights.log_mean(log_weights)
        parents = weights.systematic(log_weights, self._job.stream.next())
        old = self.particles
        self.particles = [
            old[parent] if parent == place else old[parent].copy(old[place].stream)
            for place, parent in enumerate(parents)
        ]
        for particle in self.particles:
            particle.log_weight = mean
        self.resamplings += 1

    def need(self) -> Need:
        """The request of the live particles: their last tokens, and forks where a particle goes on from another's
        sequence. Unused sequences are freed first, so that there are never more sequences than particles."""
        live = self.live
        branches = {place for place, particle in live if particle.branch == place}
        forks = tuple(
            (particle.branch, place)
            for place, particle in live
            if particle.branch is not None and particle.branch != place
        )
        free = tuple(sorted(self._held - branches))
        for place, particle in live:
            particle.branch = place
        self._held = {place for place, _ in live}
        return Need(
            free=free,
            fork=forks,
            append=tuple(Append(branch=place, tokens=(particle.tokens[-1],)) for place, particle in live),
        )

    def agreed(self) -> Iterator[tuple[ParticleToken, str]]:
        """The steps that all particles with a weight share and that were not streamed yet, each with its text."""
        alive = [particle.steps for particle in self.particles if particle.log_weight > weights.NOTHING]
        shortest = min(map(len, alive), default=0)
        for place in range(len(self._told.tokens), shortest):
            step, *others = [steps[place] for steps in alive]
            if not all(other is step or (not self._is_private and other.token == step.token) for other in others):
                return
            yield self._tell(step)

    def rest(self, chosen: Particle) -> Iterator[tuple[ParticleToken, str]]:
        """The steps of the result that were not streamed yet, each with its text."""
        for step in chosen.steps[len(self._told.tokens) :]:
            yield self._tell(step)

    def choose(self) -> list[Particle]:
        """Draw `num_return_sequences` particles in proportion to the weights, with replacement, so that each has the
        same law. Where all weights are 0, all are the first particle that the token limit cut."""
        count, log_weights = self._job.options.num_return_sequences, self.log_weights
        if max(log_weights) == weights.NOTHING:
            return [next(particle for particle in self.particles if particle.is_cut)] * count
        return [self.particles[weights.drawn(log_weights, self._job.stream.next())] for _ in range(count)]

    def outcome(self, chosen: Sequence[Particle], seconds: float | None) -> Outcome:
        """The outcome of the run. chosen: the result, which was streamed, and further texts."""
        # Forked: the same particle may be returned more than once.
        others = tuple(self._outcome(particle, particle.text.fork()) for particle in chosen[1:])
        first = self._outcome(chosen[0], self._told)
        return replace(first, records=(), mask_seconds=seconds, others=others)

    def _outcome(self, particle: Particle, text: TextRun) -> Outcome:
        log_weights = self.log_weights
        ended = text.outcome(particle.matcher)
        weighing = Weighing(
            log_weight=particle.log_weight,
            ess=weights.effective_size(log_weights),
            particles=len(log_weights),
            acceptance=self.accepted / self.asked if self.asked else 1.0,
            log_z=weights.log_mean(log_weights),
            resamplings=self.resamplings,
            target=self._job.options.target,
        )
        records = tuple(step.record for step in particle.steps if step.record is not None)
        refused = {place: step.refused for place, step in enumerate(particle.steps) if step.refused is not None}
        return replace(ended, weighing=weighing, records=records, refused=refused)

    def _tell(self, step: ParticleToken) -> tuple[ParticleToken, str]:
        return step, self._told.take(step.token)

    def _stream(self, place: int) -> RandomStream:
        own = self._job.stream
        return RandomStream(own.seed, (own.stream + 1) * STREAMS + place)
