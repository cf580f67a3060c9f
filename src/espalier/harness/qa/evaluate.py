"""Evaluates a file of generations: reads it row by row, judges, and sums up."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from espalier.activations.reconstruct.qa_file import read_rows
from espalier.errors import InputError
from espalier.harness.qa import metrics
from espalier.harness.qa.intervals import Mean, bootstrap
from espalier.harness.qa.judge import ModelJudge

BATCH = 64
BY_PHRASES = "espalier: phrases of a refusal"
BY_CONTAINS = "espalier: the answer's words are contained"


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """A judged row. answers: the known ones. hallucinated: whether the verdict is not `correct`."""

    prompt: str
    generation: str
    answers: tuple[str, ...]
    exact: float
    f1: float
    contains: float
    refused: bool
    verdict: str

    @property
    def hallucinated(self) -> bool:
        return self.verdict != "correct"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """rows: judged, in the order of the file. model: as the file names it, the part after the last `/`. refusals_by,
    verdicts_by: who judged."""

    rows: tuple[JudgedRow, ...]
    model: str
    refusals_by: str
    verdicts_by: str
    resamples: int = 2000
    seed: int = 0
    means: dict[str, Mean] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The means with their intervals, and who judged."""
        return {
            "model": self.model,
            "rows": len(self.rows),
            "refusals_by": self.refusals_by,
            "verdicts_by": self.verdicts_by,
            "interval": "95 %, percentile bootstrap",
            "resamples": self.resamples,
            "seed": self.seed,
            "metrics": {
                name: {"mean": mean.mean, "low": mean.low, "high": mean.high, "rows": mean.count}
                for name, mean in self.means.items()
            },
        }


def evaluate(
    path: str | os.PathLike[str],
    *,
    judge: ModelJudge | None = None,
    resamples: int = 2000,
    seed: int = 0,
    step: Callable[[int], None] = lambda _: None,
) -> Evaluation:
    """Judge each row of a JSON Lines file with `prompt`, `generation` and `answer` (a text, a number, or a list of
    them). Without a judge, a refusal is known by its phrases, and an answer is correct if it contains a known one.
    step: called with how many rows are judged.

    Raises InputError naming the line and field, TooLarge, and what the judge raises.
    """
    read = _read(path)
    rows: list[JudgedRow] = []
    models: list[str] = []
    while batch := [*islice(read, BATCH)]:
        declined = None if judge is None else judge.declines([(row.prompt, row.generation) for row in batch])
        verdicts = None
        if judge is not None:
            verdicts = judge.verdicts([(row.prompt, " or ".join(row.answers), row.generation) for row in batch])
        for index, row in enumerate(batch):
            models.append(row.model)
            is_contained = metrics.contains(row.generation, row.answers)
            rows.append(
                JudgedRow(
                    row.prompt,
                    row.generation,
                    row.answers,
                    exact=metrics.exact_match(row.generation, row.answers),
                    f1=metrics.f1(row.generation, row.answers),
                    contains=is_contained,
                    refused=metrics.is_refusal(row.generation) if declined is None else declined[index],
                    verdict=("correct" if is_contained else "incorrect") if verdicts is None else verdicts[index],
                )
            )
        step(len(rows))
    if not rows:
        raise InputError(f"{os.fspath(path)} has no rows", field="file")
    answered = [row for row in rows if not row.refused]
    columns = {
        "exact match": [row.exact for row in rows],
        "F1": [row.f1 for row in rows],
        "contains": [row.contains for row in rows],
        "refused": [float(row.refused) for row in rows],
        "correct": [float(not row.hallucinated) for row in rows],
        "hallucinated, of those answered": [float(row.hallucinated) for row in answered],
    }
    means = {name: bootstrap(values, resamples=resamples, seed=seed) for name, values in columns.items()}
    named = sorted({name.rpartition("/")[2] for name in models if name})
    return Evaluation(
        tuple(rows),
        ", ".join(named),
        BY_PHRASES if judge is None else judge.name,
        BY_CONTAINS if judge is None else judge.name,
        resamples,
        seed,
        means,
    )


@dataclass(frozen=True, slots=True)
class _InputRow:
    prompt: str
    generation: str
    answers: tuple[str, ...]
    model: str


def _read(path: str | os.PathLike[str]) -> Iterator[_InputRow]:
    for line, row in read_rows(path):
        model = row.get("model")
        answer = row.get("answer")
        answers = answer if isinstance(answer, list) else [answer]
        yield _InputRow(
            _text(row.get("prompt"), "prompt", line, row),
            _text(row.get("generation"), "generation", line, row),
            tuple(_text(part, "answer", line, row) for part in answers),
            model if isinstance(model, str) else "",
        )


def _text(value: Any, name: str, line: int, row: dict[str, Any]) -> str:
    """A field's text; a number or a truth value as JSON writes it. Raises InputError."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return json.dumps(value)
    raise InputError(f"line {line} has no text {name!r}", hint=f"its fields: {', '.join(row) or 'none'}", field=name)
