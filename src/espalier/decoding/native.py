"""Decodes with an engine's own sampler: its sampler chain, its random generator and its grammar.

The plan asks the sampler for each token and advances our matcher beside it. The matcher tells whether the text is
complete, why a token was refused, and what the constraint removed. This module knows no library: the sampler is a port.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.base import Matcher
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import Job, Plan, SampledToken
from espalier.decoding.ports import Append, Need
from espalier.decoding.step.record import RowRecords, ScoredToken
from espalier.decoding.step.stages import CONSTRAINT, favourite_of, shares
from espalier.decoding.text.run import EndRule, TextRun
from espalier.errors import CapabilityError, GenerationError, SamplingError
from espalier.sampling.chain import Chain
from espalier.sampling.config import FIELDS, SamplingConfig
from espalier.sampling.draw import DrawnToken
from espalier.sampling.fast.program import heated
from espalier.sampling.fields import Number
from espalier.sampling.samplers.plugged import sampler_named
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits
from espalier.trace.measure import allowed_mass
from espalier.trace.records import StepRecord
from espalier.wording import OptionText, Setting

NATIVE = Setting("sampler", "native")
SEEDS = 2**32 - 1
"""llama.cpp's seeds are below this one, which asks llama.cpp for a random seed: such a run could not be repeated."""
HOTTEST = 1e-3
"""The lowest temperature but 0: with a lower one logits leave the range of float32."""
LARGEST = 1e6
"""The largest absolute value of a sampler's field: a larger one can take logits out of the range of float32, and
llama.cpp then sorts NaNs."""

ORDERS = ("mask", "rejection")
"""Strategies that go with an engine's own sampler: `rejection` is llama.cpp's order, and `mask` is the default of a
request that names no strategy."""


class NativeChoice(NamedTuple):
    """taken: the token, and the distribution that it was drawn from, if that was asked for. rejected: the same for a
    token that was drawn first and refused by the grammar; None where none was."""

    taken: DrawnToken
    rejected: DrawnToken | None = None


class NativeSampler(Protocol):
    """An engine's own sampler for one sequence. Order of calls: `accept_prompt`, then (`sample`, `accept`)*, `close`.
    Not thread-safe."""

    def accept_prompt(self, tokens: Sequence[int]) -> None:
        """The ids of the prompt, for penalties. The grammar does not see them."""
        ...

    def sample(self, raw: Logits, *, full: bool) -> NativeChoice:
        """Draw a token. raw: `(V,) float32`, finite or -inf, not changed. full: return the distribution too. Uses the
        random generator as the engine itself does. Raises DeadEnd where no token is allowed, BadLogits."""
        ...

    def accept(self, token: int) -> None:
        """Tell the sampler that the token of `sample` was taken. Raises GenerationError for another token."""
        ...

    def close(self) -> None:
        """Free the sampler. Idempotent."""
        ...


def check_native(config: SamplingConfig, *, strategy: str, soft: int, filters: int, stream: int) -> None:
    """Raises CapabilityError for an option that an engine's own sampler does not have, SamplingError for a value out of
    its range; both name the field. soft, filters: how many there are. stream: which of the `n` outputs."""
    unsupported = {
        "strategy": strategy not in ORDERS,
        "soft": soft > 0,
        "filters": filters > 0,
        "min_tokens": config.min_tokens > 0,
        "bad_words": bool(config.bad_words),
        "allowed_ids": config.allowed_ids is not None,
    }
    for name, is_asked in unsupported.items():
        if is_asked:
            raise CapabilityError(
                f"{name} cannot be had with the engine's own sampler",
                hint=OptionText(f"leave {name} out, or ", NATIVE),
                field=name,
            )
    for sampler in (sampler_named(name) for name in config.active):
        if sampler.llama is None:
            raise CapabilityError(
                f"llama.cpp has no sampler {sampler.name}",
                hint=OptionText(f"leave {sampler.switch.name} out, or ", NATIVE),
                field=sampler.switch.name,
            )
    if config.seed is not None and config.seed + stream >= SEEDS:
        raise SamplingError(f"seed: {config.seed} must be below {SEEDS - stream} for llama.cpp", field="seed")
    if 0 < config.temperature < HOTTEST:
        raise SamplingError(
            f"temperature: {config.temperature:g} is too close to 0 for llama.cpp",
            hint="0 is greedy",
            field="temperature",
        )
    for name in (name for name, kind in FIELDS.items() if isinstance(kind, Number)):
        value = float(getattr(config, name))
        if abs(value) > LARGEST or (name == "repetition_penalty" and value < 1 / LARGEST):
            raise SamplingError(f"{name}: {value:g} is outside of what llama.cpp can compute with", field=name)


def native_plan(job: Job, sampler: NativeSampler) -> Plan:
    """One sequence, one token per forward pass. The sampler is closed when the plan ends or is closed. The job's chain
    does not run: only its config and biases are read."""
    try:
        return (yield from _steps(job, sampler))
    finally:
        sampler.close()


def _steps(job: Job, sampler: NativeSampler) -> Plan:
    matcher, run = job.matcher, TextRun(EndRule(job))
    writer = _NativeRecordWriter(job) if job.watch.is_on else None
    sampler.accept_prompt(job.prompt)
    answer = yield Need(append=(Append(branch=0, tokens=job.prompt),))
    while True:
        raw, step = answer[0][-1], len(run.tokens)  # (V,) float32
        favourite = favourite_of(raw, step)
        choice = sampler.sample(raw, full=job.watch.lists)
        token = choice.taken.token
        if matcher is not None and not matcher.allows(token):
            raise _disagree(job, matcher, token, step)
        record = None if writer is None else writer.record(step, raw, favourite, choice)
        if matcher is not None:
            matcher.advance(token)
        sampler.accept(token)
        if writer is not None:
            writer.taken(token)
        yield SampledToken(token=token, text=run.take(token), record=record)
        if run.ending is not None:
            return run.outcome(matcher)
        answer = yield Need(append=(Append(branch=0, tokens=(token,)),))


def _disagree(job: Job, matcher: Matcher, token: int, step: int) -> GenerationError:
    """The error where llama.cpp's grammar takes a token that ours refuses. Why this can be: llama.cpp reads special
    tokens as the text of their names, and invalid UTF-8 bytes as characters."""
    shown = job.vocab.text_of(token)
    blame = MatcherQuestions(matcher).why_refused(token)
    why = "" if blame is None or not blame.reason else f": {blame.reason}"
    return GenerationError(
        f"the two grammars disagree at step {step}: the engine's own took {shown!r}, and ours refuses it{why}",
        hint=OptionText(Setting("sampler", "espalier"), " keeps to the constraint"),
    )


class _NativeRecordWriter:
    """Makes the step records: what our mask removed, and what the sampler drew from."""

    def __init__(self, job: Job) -> None:
        self._job, self._questions = job, MatcherQuestions(job.matcher)
        config, fitted = job.chain.config, job.chain.fitted
        self._bans = list(fitted.bans)
        if config.ignore_eos:
            banned = np.zeros(job.vocab.width, dtype=np.bool_)  # (V,)
            banned[list(job.vocab.eos_ids)] = True
            self._bans.append(("ignore_eos", banned))
        self._heat = Chain(_heating(config), fitted=fitted)
        self._heat.start(job.prompt)
        # Unknown where llama.cpp counts other tokens than we do, and where the temperature depends on the tokens left.
        self._knows_z = not (
            config.is_greedy or config.dynatemp_range or config.frequency_penalty or config.presence_penalty
        )

    def taken(self, token: int) -> None:
        self._heat.on_token(token)

    def record(self, step: int, raw: Logits, favourite: int, choice: NativeChoice) -> StepRecord:
        """The record of `choice`; the matcher still stands before the token."""
        job, (drawn, first) = self._job, choice
        members = self._questions.member_masks()
        constrained = None if job.matcher is None else masks.unpack(job.matcher.mask(), raw.shape[0])  # (V,) bool
        allowed: NDArray[np.bool_] | None = constrained
        for _, banned in self._bans:
            allowed = ~banned if allowed is None else allowed & ~banned
        removed: tuple[tuple[str, float], ...] = ()
        if allowed is not None and (members or self._bans):
            removed = shares(raw, allowed, constrained, members, self._bans, name=CONSTRAINT)
        z_sampled = None
        if self._knows_z:
            z_sampled = (
                1.0 if allowed is None else allowed_mass(heated(self._heat.fitted.add(raw), self._heat), allowed)
            )
        rows = RowRecords(
            raw,
            allowed,
            drawn,
            kept=(drawn.token,) if first is None else (drawn.token, first.token),
            step=step,
            favourite=favourite,
            vocab=job.vocab,
            watch=job.watch,
            questions=self._questions,
            rejected=None if first is None else ScoredToken(first.token, first.prob, first.logit),
            bans=self._bans,
            removed_by=removed,
            z_sampled=z_sampled,
        )
        return rows.record(ScoredToken(drawn.token, drawn.prob, drawn.logit))


def _heating(config: SamplingConfig) -> SamplingConfig:
    """The transforms that reshape the whole distribution in llama.cpp: with mirostat, temperature alone."""
    if not config.mirostat:
        return config
    return replace(config, sampler_order=("temperature",), frequency_penalty=0.0, presence_penalty=0.0)
