"""Estimates what another constraint would have cost, from kept steps and without the model.

At each step of a kept answer the record holds the model's own probabilities of its best tokens. Which of them the other
constraint allows is asked byte by byte, so that no vocabulary is needed. That is exact for each step's distribution as
far as the record has it; of the mass that it does not hold, only the bounds are known. Where the other constraint
refuses the token that came, the answer would have gone on differently, and nothing is known from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from espalier.constraints.base import Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.tokens.vocab import Vocab
from espalier.trace.records import StepRecord, Trace

LISTED = ("steps", "full")
"""Levels of traces whose steps hold candidates."""
ROUNDING = 1e-5
"""Nats of a step that are no difference: probabilities of a record come from logits of single precision."""


class KnownToken(NamedTuple):
    """A token of a step's record. prob: of the model's own distribution."""

    data: bytes
    prob: float
    was_allowed: bool


class StepEstimate(NamedTuple):
    """The tax of a step in nats: as it was, and as it would be. The estimate takes every token that the record does not
    hold to be allowed as it was; low and high are the bounds without that."""

    was: float
    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaxEstimate:
    """What a constraint would have cost over kept answers. steps: that are estimated, of `all_steps`. was, estimate,
    low, high: their tax in nats, summed over the answers."""

    answers: int
    steps: int
    all_steps: int
    was: float
    estimate: float
    low: float
    high: float

    @property
    def is_lower(self) -> bool:
        """Whether it costs less whatever the records do not hold."""
        return self.was - self.high > ROUNDING * self.steps

    def to_json(self) -> dict[str, Any]:
        sums = {"was": self.was, "estimate": self.estimate, "low": self.low, "high": self.high}
        taxes = {name: value / self.answers if self.answers else None for name, value in sums.items()}
        return {
            "answers": self.answers,
            "steps": self.steps,
            "all_steps": self.all_steps,
            "tax_per_answer": taxes,
            "is_lower": self.is_lower,
        }


def has_steps(trace: Trace) -> bool:
    """Whether an estimate can be made from a trace."""
    return trace.level in LISTED and any(step.pre_masking for step in trace.steps)


def estimated(traces: Iterable[Trace], asked: Spec, other: Spec) -> TaxEstimate:
    """What `other` would have cost where `asked` was the constraint. Raises what compiling them raises."""
    compiler = Compiler(Vocab.bytes())
    constraints = [compiler.compile(spec) for spec in (asked, other)]
    kept = [trace for trace in traces if has_steps(trace)]
    rows = []
    for trace in kept:
        before = str(trace.setup.get("before", ""))
        own, changed = (constraint.matcher(before=before) for constraint in constraints)
        rows += list(_steps(trace, own, changed))
    sums = [math.fsum(column) for column in zip(*rows, strict=True)] if rows else [0.0] * 4
    return TaxEstimate(
        answers=len(kept),
        steps=len(rows),
        all_steps=sum(len(trace.steps) for trace in kept),
        **dict(zip(StepEstimate._fields, sums, strict=True)),
    )


def _steps(trace: Trace, own: Matcher, changed: Matcher) -> Iterator[StepEstimate]:
    """The steps up to the first whose token is refused, or whose record the constraint itself does not explain."""
    last = trace.steps[-1] if trace.steps else None
    ends = {last.token_id} if last is not None and last.is_special and trace.finish_reason == "stop" else set[int]()
    for step in trace.steps:
        tokens = _known(step)
        own_reads = {token: _reads(own, known.data, is_end=token in ends) for token, known in tokens.items()}
        if any(known.was_allowed and own_reads[token] is False for token, known in tokens.items()):
            return  # the token limit, or a member that is not of this constraint, had a say
        allowed = {}
        for token, known in tokens.items():
            reads = _reads(changed, known.data, is_end=token in ends)
            # What something else refused, a ban or a filter, stays refused.
            is_banned = own_reads[token] is True and not known.was_allowed
            allowed[token] = None if reads is None else reads and not is_banned
        if not allowed.get(step.token_id):
            return
        yield _estimate(step, tokens, allowed)
        for matcher in (own, changed):
            for byte in step.bytes:
                matcher.advance(byte)


def _known(step: StepRecord) -> dict[int, KnownToken]:
    """The tokens of a record by id."""
    allowed_mass = math.exp(-step.tax_nats)
    tokens = {each.id: KnownToken(each.bytes, each.prob, each.allowed) for each in step.pre_masking}
    for each in step.post_grammar:
        tokens.setdefault(each.id, KnownToken(each.bytes, each.prob * allowed_mass, each.allowed))
    tokens.setdefault(step.token_id, KnownToken(step.bytes, math.exp(step.logprob), True))
    return tokens


def _estimate(step: StepRecord, tokens: dict[int, KnownToken], allowed: dict[int, bool | None]) -> StepEstimate:
    """allowed: None where it is not known."""
    listed = math.fsum(known.prob for token, known in tokens.items() if allowed[token])
    unsure = [known for token, known in tokens.items() if allowed[token] is None]
    rest = max(0.0, 1.0 - math.fsum(known.prob for known in tokens.values()))
    was_allowed = math.fsum(known.prob for known in tokens.values() if known.was_allowed)
    rest_allowed = min(rest, max(0.0, math.exp(-step.tax_nats) - was_allowed))
    as_it_was = math.fsum(known.prob for known in unsure if known.was_allowed)
    most = listed + rest + math.fsum(known.prob for known in unsure)
    return StepEstimate(step.tax_nats, _tax(listed + rest_allowed + as_it_was), _tax(most), _tax(listed))


def _tax(mass: float) -> float:
    return max(0.0, -math.log(mass)) if mass > 0.0 else 0.0


def _reads(matcher: Matcher, data: bytes, *, is_end: bool) -> bool | None:
    """Whether a matcher over bytes allows a token; None for a token without bytes that is not known to end texts."""
    if not data:
        return matcher.is_accepting if is_end else None
    read = 0
    for byte in data:
        if not matcher.allows(byte):
            break
        matcher.advance(byte)
        read += 1
    matcher.rollback(read)
    return read == len(data)


def estimate_lines(estimates: Sequence[tuple[str, TaxEstimate]]) -> Iterator[str]:
    """For a terminal. estimates: what each changes, in words."""
    answers = max((estimate.answers for _, estimate in estimates), default=0)
    if not answers:
        yield "No estimate: no kept answer has its steps (serve with --trace steps)."
        return
    yield f"Estimated from {answers} kept answers, without the model; nats an answer:"
    for said, estimate in estimates:
        yield f"  {said}"
        if not estimate.steps:
            yield "    nothing is known: it refuses the first token of every answer"
            continue
        was, likely, low, high = (
            sums / estimate.answers for sums in (estimate.was, estimate.estimate, estimate.low, estimate.high)
        )
        share = estimate.steps / estimate.all_steps
        yield f"    {was:.1f} -> {likely:.1f} ({low:.1f} to {high:.1f}), of {share:.0%} of the tokens"
    yield "Each step for itself, up to the first token that a change refuses."
