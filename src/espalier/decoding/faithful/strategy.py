"""`best_of`, `smc`, `awrs`: sample from the model's distribution conditioned on the constraint, by weighted particles.

Masking samples from another distribution: it renormalises at each step, and so favours beginnings whose continuations
the constraint mostly refuses. Here several texts are drawn, each is weighted by the mass that its steps lost
(docs/strategies.md), and one is drawn in proportion to the weights. `best_of` draws all texts to the end (importance
resampling, Rubin 1987); `smc` resamples on the way where the weights differ (sequential Monte Carlo: Lew et al. 2023,
Loula et al. 2025); `awrs` is `smc` without masks (`awrs.py`). This module does not know how weights, particles and
proposals work.
"""

from __future__ import annotations

from espalier.decoding.faithful.particles import ParticleSet
from espalier.decoding.faithful.proposals import Propose, Proposer
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Job, Plan, SampledToken, Strategy
from espalier.decoding.ports import Append, Need
from espalier.errors import DeadEnd, InputError, SamplingError
from espalier.sampling.config import SamplingConfig
from espalier.sampling.samplers.plugged import sampler_named
from espalier.wording import OptionText, Setting


def best_of(job: Job) -> Plan:
    """Draw all particles to the end by masking, then one of them in proportion to the weights."""
    return _plan(job, Proposer.masked, threshold=0.0)


def smc(job: Job) -> Plan:
    """As `best_of`, with resampling on the way."""
    return _plan(job, Proposer.masked, threshold=job.options.ess_threshold)


def awrs(job: Job) -> Plan:
    """As `smc`, each token drawn by adaptive weighted rejection."""
    return _plan(job, Proposer.adaptive, threshold=job.options.ess_threshold)


def _plan(job: Job, propose: Propose, *, threshold: float) -> Plan:
    """Each forward pass adds one token to every particle. A token is streamed once all particles with a weight share
    it, the rest at the end. Raises DeadEnd where no particle has an allowed token left."""
    particles, proposer = ParticleSet(job, is_private=propose is not Proposer.masked), Proposer(job)
    answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
    is_first = True
    fault: DeadEnd | None = None
    while True:
        rows = answer
        for place, particle in particles.live:
            try:
                # Every particle draws its first token from the one sequence that holds the prompt.
                proposal = propose(proposer, particle, rows[0 if is_first else place][-1])  # (V,) float32
            except DeadEnd as dead:
                fault = fault or dead
                particles.drop(particle)
            else:
                particles.take(particle, proposal)
        is_first = False
        if fault is not None and all(particle.is_dead for particle in particles.particles):
            raise fault
        particles.resample(threshold)
        for step, text in particles.agreed():
            yield SampledToken(token=step.token, text=text, record=step.record)
        if not particles.live:
            break
        answer = yield particles.need()
    chosen = particles.choose()
    for step, text in particles.rest(chosen[0]):
        yield SampledToken(token=step.token, text=text, record=step.record)
    return particles.outcome(chosen, proposer.seconds)


def check(options: Decoding, sampling: SamplingConfig) -> None:
    """Raises InputError and SamplingError, naming the field, for options without a distribution to weight towards."""
    if options.num_return_sequences > options.count:
        raise InputError(
            f"num_return_sequences: {options.num_return_sequences} are more than the {options.count} particles",
            field="num_return_sequences",
        )
    name = options.strategy
    if sampling.dynatemp_range:
        raise SamplingError(
            f"{name} weighs by a distribution, which a temperature that varies with what is allowed does not give",
            hint="set dynatemp_range to 0",
            field="dynatemp_range",
        )
    if sampling.is_greedy:
        raise SamplingError(
            f"{name} draws; with temperature 0 nothing is drawn",
            hint="a temperature above 0, or the strategy beam",
            field="temperature",
        )
    if options.target == "truncated":
        return
    if sampling.mirostat:
        raise SamplingError(
            f"{name} aims at the whole distribution, and mirostat truncates it",
            hint=OptionText("leave it out, or ", TRUNCATED),
            field="mirostat",
        )
    for sampler in (sampler_named(name) for name in sampling.active):
        if sampler.truncates:
            field = sampler.switch.name
            raise SamplingError(
                f"{name} aims at the whole distribution, and {field} truncates it",
                hint=OptionText(f"set {field} to {sampler.switch.off:g}, or ", TRUNCATED),
                field=field,
            )


def sequences(options: Decoding) -> int:
    """One for each particle."""
    return options.count


TRUNCATED = Setting("target", "truncated")
BEST_OF = Strategy(make_plan=best_of, check=check, sequences=sequences)
SMC = Strategy(make_plan=smc, check=check, sequences=sequences)
AWRS = Strategy(make_plan=awrs, check=check, sequences=sequences)
