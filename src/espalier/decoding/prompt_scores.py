"""Log probabilities of the prompt's own tokens, measured while the prompt is read, and runs that only read a prompt.

A plan is put in front of a strategy's: it appends the prompt in pieces, asks for all rows, and hands the last one on.
It knows no reply.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from espalier.decoding.plan import Job, MakePlan, Outcome, Plan
from espalier.decoding.ports import Append, Need, Rows
from espalier.errors import CapabilityError
from espalier.tokens.vocab import Vocab

MOST_LOGITS = 1 << 22
"""Logits of one forward pass that are measured at once: beyond it a long prompt would fill the memory."""


@dataclass(frozen=True, slots=True)
class NamedToken:
    """A token, its log probability in nats, and its rank, the best has 1; None for both of the first token of a prompt,
    before which there is nothing."""

    token_id: int
    text: str
    bytes: bytes
    logprob: float | None
    rank: int | None


@dataclass(frozen=True, slots=True)
class PromptToken:
    """A token of a prompt. top: the most probable tokens at its place, best first."""

    token: NamedToken
    top: tuple[NamedToken, ...] = ()


@dataclass(slots=True)
class PromptScores:
    """Measures of a prompt: the `top` most probable tokens at each place beside the token itself. tokens: in
    order, complete once the prompt is read."""

    top: int
    vocab: Vocab
    tokens: list[PromptToken] = field(default_factory=list)

    def begin(self, token: int) -> None:
        """The first token, which nothing comes before."""
        self.tokens.append(PromptToken(self._name_token(token, None, None)))

    def read(self, rows: Rows, following: Sequence[int]) -> None:
        """rows: (n, V) float32 logits. following: the n tokens that the prompt has after each."""
        for row, token in zip(rows, following, strict=True):
            values = row.astype(np.float64)  # (V,)
            best = float(values.max())
            total = best + float(np.log(np.exp(values - best).sum()))
            best_tokens = tuple(
                self._name_token(candidate, float(values[candidate]) - total, place)
                for place, candidate in enumerate(_best(row, self.top), 1)
            )
            rank = 1 + int((row > row[token]).sum())
            self.tokens.append(PromptToken(self._name_token(token, float(values[token]) - total, rank), best_tokens))

    def _name_token(self, token: int, logprob: float | None, rank: int | None) -> NamedToken:
        return NamedToken(token, self.vocab.text_of(token), self.vocab.bytes_of(token), logprob, rank)


def reading(make_plan: MakePlan, scores: PromptScores | None, *, generates: bool) -> Callable[[Job], Plan]:
    """The strategy's plan, with the prompt measured before it. scores: None measures nothing. generates: without it the
    run ends when the prompt is read, with no token."""

    def plan(job: Job) -> Plan:
        return _plan(job, make_plan, scores, generates=generates)

    return plan


def _plan(job: Job, make_plan: MakePlan, scores: PromptScores | None, *, generates: bool) -> Plan:
    prompt = job.prompt
    inner = make_plan(job) if generates else None
    need = Need(append=(Append(branch=0, tokens=prompt),)) if inner is None else next(inner)
    is_plain = isinstance(need, Need) and len(need.append) == 1 and not (need.fork or need.truncate or need.free)
    if not is_plain or not isinstance(need, Need) or need.append[0].tokens != prompt:
        raise CapabilityError(
            "this strategy does not read the prompt alone", hint='"strategy": "mask"', field="prompt_top"
        )
    if scores is None:
        answer = yield need
    else:
        scores.begin(prompt[0])
        size = max(1, MOST_LOGITS // job.vocab.width)
        for start in range(0, len(prompt), size):
            piece = prompt[start : start + size]
            answer = yield Need(append=(Append(branch=need.append[0].branch, tokens=piece, logits="all"),))
            rows = answer[need.append[0].branch]
            following = prompt[start + 1 : start + size + 1]
            scores.read(rows[: len(following)], following)
            answer = {need.append[0].branch: rows[-1:]}
    if inner is None:
        return Outcome(tokens=(), text="", tail="", finish="length", stop=None, is_complete=job.matcher is None)
    try:
        while True:
            answer = yield inner.send(answer)
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
    finally:
        inner.close()


def _best(row: Rows, count: int) -> list[int]:
    """The `count` most probable ids of a row (V,), best first, of equal ones the lowest."""
    if count < 1:
        return []
    count = min(count, len(row))
    least = np.partition(row, -count)[-count]
    ids = np.flatnonzero(row >= least)
    return [int(token) for token in ids[np.argsort(-row[ids], kind="stable")][:count]]
