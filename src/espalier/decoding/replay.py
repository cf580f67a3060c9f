"""Replays a generation: at each step, compares the token that would be taken now with the stored one.

The replay is teacher-forced: whatever is drawn, it goes on with the stored token, to the end or to a token that the
constraint refuses. The logits come from a model (`replay_plan`) or from the distributions in the trace (`replay_rows`).
Stored distributions have half precision, which alone can change a draw. Such a difference counts as rounding where
logits that round to the stored ones draw the stored token with the same random numbers. The module knows no engine; it
takes a token as the strategy does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from espalier.automata.reasons.blame import Blame
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import Job, Outcome, Plan, Take
from espalier.decoding.ports import Append, Need
from espalier.decoding.step.row import TokenDecision
from espalier.errors import DeadEnd
from espalier.json_record import Json, JsonRecord
from espalier.sampling.filters import FilterContext
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits
from espalier.trace.sidecar import Distribution
from espalier.trace.steps import StepRecord

HALF = 2.0**-11
"""The relative rounding error of a float16: half a unit in the last place."""
SINGLE = 2.0**-22
"""The relative rounding error of two float32 operations."""
TINY = 2.0**-24
"""The smallest positive float16."""
HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A step at which the stored token was not taken. token, drawn: ids; drawn is the token taken instead, None where
    none could be taken, and reason says why. is_refused: whether the constraint refuses the stored token; blame:
    why."""

    step: int
    token: int
    text: str
    drawn: int | None
    drawn_text: str | None
    is_refused: bool = False
    blame: Blame | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "token": {"id": self.token, "text": self.text},
            "drawn": None if self.drawn is None else {"id": self.drawn, "text": self.drawn_text},
            "is_refused": self.is_refused,
            "blame": None if self.blame is None else self.blame.to_json(),
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedStep(JsonRecord):
    """One replayed step. token: the stored one, with which the replay goes on; drawn: the one that would be taken now.
    stored_tax, tax: nats, then and now. is_rounding: whether the two tokens differ because of half precision alone."""

    step: int
    token: int
    drawn: int
    stored_tax: Annotated[float, Json("stored_tax_nats")]
    tax: Annotated[float, Json("tax_nats")]
    is_rounding: bool = False

    @property
    def is_same(self) -> bool:
        return self.drawn == self.token or self.is_rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """The result of a replay. steps: the replayed ones, up to the stored end or to a refused token. records: those of
    the same steps, with the stored token as the taken one and the drawn token as `resampled`. first: the first
    divergence, None where there is none. stored: the number of stored steps. end: the divergence that ended the replay,
    if any; it may also be the first."""

    steps: tuple[ReplayedStep, ...]
    records: tuple[StepRecord, ...]
    first: Divergence | None
    stored: int
    end: Divergence | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the replay reached the stored end."""
        return len(self.steps) == self.stored

    @property
    def is_same(self) -> bool:
        """Whether every step took the stored token, apart from rounding to half precision."""
        return self.first is None and self.is_whole

    @property
    def is_exact(self) -> bool:
        """Whether every step took the stored token, with exactly the stored tax."""
        return self.is_same and all(step.drawn == step.token and step.tax == step.stored_tax for step in self.steps)

    @property
    def roundings(self) -> int:
        """The number of steps that differ because of half precision alone."""
        return sum(step.is_rounding for step in self.steps)

    @property
    def changes(self) -> int:
        """The number of steps that took another token."""
        return sum(not step.is_same for step in self.steps)

    @property
    def stored_tax(self) -> float:
        """The stored tax of the replayed steps, in nats."""
        return math.fsum(step.stored_tax for step in self.steps)

    @property
    def tax(self) -> float:
        """The tax of the replayed steps now, in nats."""
        return math.fsum(step.tax for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "stored_steps": self.stored,
            "replayed_steps": len(self.steps),
            "same": self.is_same,
            "exact": self.is_exact,
            "within_rounding": self.roundings,
            "changed_draws": self.changes,
            "first_divergence": None if self.first is None else self.first.to_json(),
            "end": None if self.end is None else self.end.to_json(),
            "stored_tax_nats": self.stored_tax,
            "tax_nats": self.tax,
            "steps": [step.to_json() for step in self.steps],
        }


class SequenceReplay:
    """One running replay of one sequence.

    job: not started, with the constraint, chain and stream to replay with, at trace level `steps` or `full`. steps: the
    stored ones. take: takes a token as the strategy does. is_own: whether the job is the one that made them: mirostat
    then learns from the stored probabilities. is_rounded: whether the logits went through half precision.
    """

    def __init__(
        self, job: Job, steps: Sequence[StepRecord], *, take: Take, is_own: bool = False, is_rounded: bool = False
    ) -> None:
        self._job, self._stored = job, steps
        self._take = take
        self._questions = MatcherQuestions(job.matcher)
        self._is_own, self._is_rounded = is_own, is_rounded
        self._steps: list[ReplayedStep] = []
        self._records: list[StepRecord] = []
        self._first: Divergence | None = None
        self._end: Divergence | None = None
        self._ids: list[int] = []
        job.chain.start(job.prompt)

    def step(self, raw: Logits) -> bool:
        """Replay one step by `(V,) float32` logits. False where that was the last."""
        job, at = self._job, len(self._steps)
        stored = self._stored[at]
        token = stored.token_id
        context = job.context(self._ids)
        is_refused = job.matcher is not None and not job.matcher.allows(token)
        place = job.stream.count
        try:
            decision = self._take(raw, context)
        except DeadEnd as error:
            self._diverge(at, None, is_refused=is_refused, reason=error.message)
            return False
        if is_refused:
            self._diverge(at, decision.token, is_refused=True)
            return False
        is_rounding = decision.token != token and self._is_rounded and self._rounds(raw, context, place, decision.token)
        if decision.token != token and not is_rounding:
            self._diverge(at, decision.token)
        record = decision.record
        if record is None:
            raise AssertionError("a replay records its steps")
        prob = self._prob(raw, context, stored, decision)
        if decision.token != token:
            record = self._as_stored(record, raw, stored)
        tax = record.tax_nats
        self._steps.append(
            ReplayedStep(
                step=at, token=token, drawn=decision.token, stored_tax=stored.tax_nats, tax=tax, is_rounding=is_rounding
            )
        )
        self._records.append(record)
        if job.matcher is not None:
            job.matcher.advance(token)
        job.chain.on_token(token, prob)
        self._ids.append(token)
        return len(self._steps) < len(self._stored)

    def found(self) -> ReplayResult:
        """The result so far."""
        return ReplayResult(
            steps=tuple(self._steps),
            records=tuple(self._records),
            first=self._first,
            stored=len(self._stored),
            end=self._end,
        )

    @property
    def job(self) -> Job:
        return self._job

    @property
    def ids(self) -> Sequence[int]:
        """The stored tokens that were replayed."""
        return self._ids

    def _diverge(self, at: int, drawn: int | None, *, is_refused: bool = False, reason: str | None = None) -> None:
        if self._first is not None and not is_refused and reason is None:
            return
        stored, vocab = self._stored[at], self._job.vocab
        divergence = Divergence(
            step=at,
            token=stored.token_id,
            text=stored.text,
            drawn=drawn,
            drawn_text=None if drawn is None else vocab.text_of(drawn),
            is_refused=is_refused,
            blame=self._questions.why_refused(stored.token_id) if is_refused else None,
            reason=reason,
        )
        self._first = self._first or divergence
        self._end = divergence if is_refused or reason is not None else None

    def _as_stored(self, record: StepRecord, raw: Logits, stored: StepRecord) -> StepRecord:
        """The record with the stored token as the taken one; `resampled` stays the drawn one."""
        log_total = float(raw[record.token_id]) - record.logprob
        return replace(
            record,
            token_id=stored.token_id,
            text=stored.text,
            bytes=stored.bytes,
            is_special=stored.is_special,
            logprob=float(raw[stored.token_id]) - log_total,
            rule=self._questions.rule_of(stored.token_id),
        )

    def _prob(self, raw: Logits, context: FilterContext, stored: StepRecord, decision: TokenDecision) -> float | None:
        """The probability of the token, for `Chain.on_token`. Only mirostat uses it."""
        job = self._job
        if not job.chain.config.mirostat or self._is_own:
            return stored.resampled.prob
        if decision.token == stored.token_id:
            return decision.prob
        row = job.chain.bias(raw, context).astype(np.float32)  # (V,), a copy
        if job.matcher is not None:
            row[~masks.unpack(job.matcher.mask(), row.shape[0])] = -np.inf
        shaped = job.chain.shape(row).astype(np.float64)
        top = float(shaped.max())
        if shaped[stored.token_id] == -np.inf:
            return None  # it could not have been drawn, and mirostat learns nothing
        return float(np.exp(shaped[stored.token_id] - top) / np.exp(shaped - top).sum())

    def _rounds(self, raw: Logits, context: FilterContext, place: int, drawn: int) -> bool:
        """Whether logits that half precision cannot tell from `raw` draw the stored token with the same random numbers.
        If so, the stream stands where that draw leaves it."""
        stream, token, left = self._job.stream, self._stored[context.step].token_id, self._job.stream.count
        error = rounding_error(raw)
        ids = np.arange(raw.shape[0])
        # A draw goes through the ids in order. Less mass on one side of the token and more on the other moves its share
        # of the range of random numbers. Where the share moves too far, a smaller amount is tried.
        side = np.where(ids < token, -1.0, 1.0) if drawn < token else np.where(ids < token, 1.0, -1.0)
        for sign in (np.full(raw.shape[0], -1.0), side):
            sign[token] = 1.0
            low, high = 0.0, 1.0
            for _ in range(HALVINGS):
                amount = high if high == 1.0 and low == 0.0 else (low + high) / 2
                again = self._retake(raw, sign * error * amount, context, place)
                if again == token:
                    return True
                is_over = again is not None and again != drawn and (again > token) == (drawn < token)
                if amount == 1.0:
                    if not is_over:
                        break
                    high = np.nextafter(1.0, 0.0)
                elif is_over:
                    high = amount
                else:
                    low = amount
        stream.count = left
        return False

    def _retake(self, raw: Logits, moved: NDArray[np.float64], context: FilterContext, place: int) -> int | None:
        self._job.stream.count = place
        try:
            return self._take((raw + moved).astype(np.float32), context).token
        except DeadEnd:
            return None


def rounding_error(raw: Logits) -> NDArray[np.float64]:
    """The largest distance of each logit of a stored distribution, `(V,)`, from the model's own; 0 for -inf. See
    `trace/sidecar.py`."""
    top = float(raw.max())
    below = top - raw.astype(np.float64)
    error = below * HALF + (below + abs(top)) * SINGLE + TINY
    return np.where(np.isfinite(below), error, 0.0)


def restored(found: Distribution) -> Logits:
    """The model's logits, `(V,) float32`, as exact as half precision is."""
    return (found.logits.astype(np.float32) + np.float32(found.top)).astype(np.float32)


def replay_plan(run: SequenceReplay) -> Plan:
    """Replay through a model, one token per forward pass, as in the generation: passes of other lengths round
    differently."""
    following: tuple[int, ...] = run.job.prompt
    while True:
        answer = yield Need(append=(Append(branch=0, tokens=following),))
        if not run.step(answer[0][-1]):
            return Outcome(tokens=tuple(run.ids), text="", tail="", finish="length", stop=None)
        following = (run.ids[-1],)


def replay_rows(run: SequenceReplay, rows: Iterable[Distribution]) -> None:
    """Replay through the stored distributions, one for each step, without a model."""
    for row in rows:
        if not run.step(restored(row)):
            return
