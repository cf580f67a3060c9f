"""Steps as rows of numbers: what a kernel wrote of each, from which its record is made when somebody reads it.

The kernels of `sampling/fast/kernels/listing.py` write the rows, and `sampling/fast/codes.py` says what stands where. A
step takes 850 bytes with ten candidates in each list, and no Python object but its `StepRow`. This module knows
neither how a token is drawn nor how rows are stored (`packed_steps.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.automata.reasons.blame import Blame
from espalier.sampling.fast.codes import (
    AFTER,
    ALLOWED,
    BEFORE,
    CHAIN,
    COUNT,
    FIGURES,
    IS_BEST,
    LOG_ALLOWED,
    LOG_TOTAL,
    LOGIT,
    LOGPROB,
    NUMBERS,
    PROB,
    REMOVED,
    TAX,
    TOKEN,
    WANTED,
    Z,
)
from espalier.trace.candidates import CandidateList, CandidateRows, Spelling
from espalier.trace.steps import Candidate, StepRecord

ROWS = 64
"""Steps whose rows are one array."""
MOST_LISTED = 48
"""Candidates of a list, beyond which a step is no row: the best are kept in order while a row of logits is scanned."""


class StepAnswers(Protocol):
    """What a step's record asks about the place of the text where it was taken."""

    def why_refused(self, token: int) -> Blame | None: ...

    def rule_of(self, token: int) -> str | None: ...


class StepLines(NamedTuple):
    """The rows of some steps, and the index of one of them, as kernels take them."""

    #: `(n, N) int64`
    numbers: NDArray[np.int64]
    #: `(n, F) float64`
    figures: NDArray[np.float64]
    at: int


class StepTable:
    """Rows for the steps of one run, with `top_k` candidates and the taken token in each list."""

    def __init__(self, top_k: int) -> None:
        self.top_k = top_k
        self._at = ROWS
        self._lines: StepLines | None = None

    def lines(self) -> StepLines:
        """The next row, which stays the next one until it is taken."""
        if self._lines is None or self._at == ROWS:
            numbers, figures = row_sizes(self.top_k + 1)
            lines = np.zeros((ROWS, numbers), dtype=np.int64), np.zeros((ROWS, figures), dtype=np.float64)
            self._lines, self._at = StepLines(*lines, 0), 0
        return self._lines._replace(at=self._at) if self._at else self._lines

    def take(self) -> None:
        """The row has a step now."""
        self._at += 1


def row_sizes(width: int) -> tuple[int, int]:
    """How many whole numbers and how many figures a step has, with so many places in a list."""
    return NUMBERS + 4 * width, FIGURES + 4 * width


class StepRow:
    """One step in a row. refused: the favourite, where it was not allowed."""

    __slots__ = ("_answers", "_blame", "_has_reasons", "_refused", "_rule", "lines", "spelling", "step")

    def __init__(
        self, step: int, lines: StepLines, spelling: Spelling, answers: StepAnswers, refused: int | None
    ) -> None:
        self.step, self.lines, self.spelling = step, lines, spelling
        self._answers: StepAnswers | None = answers
        self._refused = refused
        self._rule: str | None = None
        self._blame: Blame | None = None
        self._has_reasons = False

    @property
    def token(self) -> int:
        return int(self.lines.numbers[self.lines.at, TOKEN])

    @property
    def is_changed(self) -> bool:
        """Whether the most probable token was not allowed."""
        return not self.lines.numbers[self.lines.at, IS_BEST]

    def spelled(self) -> tuple[str, bytes, bool]:
        """The text and the bytes of the taken token, and whether it stands outside the text."""
        token = self.token
        return (*self.spelling.of(token), token in self.spelling.specials)

    def measures(self) -> tuple[float, float, float, float]:
        """As `StepRecord.numbers`."""
        removed, tax, before, after = self.lines.figures[self.lines.at, : AFTER + 1].tolist()
        return tax, removed, before, after

    def reasons(self) -> tuple[str | None, Blame | None]:
        """The rule of the taken token, and why the favourite was refused; worked out once."""
        answers = self._answers
        if not self._has_reasons and answers is not None:
            self._rule = answers.rule_of(self.token)
            self._blame = None if self._refused is None else answers.why_refused(self._refused)
            self._has_reasons, self._answers = True, None
        return self._rule, self._blame

    def record(self) -> StepRecord:
        lines, token = self.lines, self.token
        text, data, is_special = self.spelled()
        rule, blame = self.reasons()
        figures = lines.figures[lines.at, :FIGURES].tolist()
        wanted, allowed, drawn = (
            CandidateList(self.spelling, partial(find, lines)) for find in (wanted_rows, allowed_rows, drawn_rows)
        )
        resampled = Candidate(id=token, text=text, bytes=data, prob=figures[PROB], logit=_finite(figures[LOGIT]))
        return StepRecord(
            step=self.step,
            token_id=token,
            text=text,
            bytes=data,
            logprob=figures[LOGPROB],
            is_special=is_special,
            pre_masking=wanted,
            post_grammar=allowed,
            post_chain=drawn,
            resampled=resampled,
            allowed_count=int(lines.numbers[lines.at, COUNT]),
            removed_mass=figures[REMOVED],
            tax_nats=figures[TAX],
            z_sampled=None if math.isnan(figures[Z]) else figures[Z],
            entropy_before=figures[BEFORE],
            entropy_after=figures[AFTER],
            blame=blame,
            was_changed=self.is_changed,
            rule=rule,
        )


def gather_lines(lines: Sequence[StepLines]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The rows of steps, `(n, N) int64` and `(n, F) float64`, in order."""
    if not lines:
        numbers, figures = row_sizes(1)
        return np.zeros((0, numbers), dtype=np.int64), np.zeros((0, figures), dtype=np.float64)
    runs = [[*run] for _, run in groupby(lines, key=lambda each: id(each.numbers))]
    places = [[each.at for each in run] for run in runs]
    gathered = [(run[0].numbers[at], run[0].figures[at]) for run, at in zip(runs, places, strict=True)]
    numbers_of, figures_of = zip(*gathered, strict=True)
    return np.concatenate(numbers_of), np.concatenate(figures_of)


def wanted_rows(lines: StepLines) -> CandidateRows:
    """The candidates before the mask."""
    (numbers, figures, at), width = lines, _width_of(lines)
    count = int(numbers[at, WANTED])
    flags = numbers[at, NUMBERS + width : NUMBERS + width + count].astype(np.bool_).tolist()
    logits = figures[at, FIGURES : FIGURES + count].tolist()
    return _weighed(numbers[at, NUMBERS : NUMBERS + count].tolist(), logits, float(figures[at, LOG_TOTAL]), flags)


def allowed_rows(lines: StepLines) -> CandidateRows:
    """The candidates after the mask."""
    (numbers, figures, at), width = lines, _width_of(lines)
    count, first, start = int(numbers[at, ALLOWED]), NUMBERS + 2 * width, FIGURES + width
    logits, log_sum = figures[at, start : start + count].tolist(), float(figures[at, LOG_ALLOWED])
    return _weighed(numbers[at, first : first + count].tolist(), logits, log_sum, None)


def drawn_rows(lines: StepLines) -> CandidateRows:
    """The candidates that the token was drawn from."""
    (numbers, figures, at), width = lines, _width_of(lines)
    count, first, start = int(numbers[at, CHAIN]), NUMBERS + 3 * width, FIGURES + 2 * width
    probs = figures[at, start + width : start + width + count].tolist()
    ids, logits = numbers[at, first : first + count].tolist(), figures[at, start : start + count].tolist()
    return CandidateRows(ids, probs, [_finite(logit) for logit in logits], None)


def _width_of(lines: StepLines) -> int:
    """The places of a list."""
    return int(lines.numbers.shape[1] - NUMBERS) // 4


def _weighed(ids: list[int], logits: list[float], log_sum: float, flags: list[bool] | None) -> CandidateRows:
    """Candidates with the probabilities of their logits."""
    probs = [math.exp(logit - log_sum) for logit in logits]
    return CandidateRows(ids, probs, [_finite(logit) for logit in logits], flags)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
