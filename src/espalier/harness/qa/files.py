"""Writes an evaluation as HalluLens' PreciseQAEval does: three files with its names and keys, spelling included."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from espalier.errors import OutputError
from espalier.harness.qa.evaluate import Evaluation
from espalier.trace.files import write_text

RESULTS, ABSTAINED, JUDGED = "eval_results.json", "abstain_eval_raw.jsonl", "halu_eval_raw.jsonl"


def results(done: Evaluation) -> dict[str, Any]:
    """The object of eval_results.json. halu_Rate is that of rows that were not refused; correct_rate is of all rows."""
    answered = [row for row in done.rows if not row.refused]
    refusals, verdicts = _raw(done)
    return {
        "model": done.model,
        "halu_Rate": sum(row.hallucinated for row in answered) / len(answered) if answered else 0,
        "refusal_rate": sum(row.refused for row in done.rows) / len(done.rows),
        "correct_rate": sum(not row.hallucinated for row in done.rows) / len(done.rows),
        "evaluator_abstantion": done.refusals_by,
        "evaluator_hallucination": done.verdicts_by,
        "abstantion": [row.refused for row in done.rows],
        "halu_test_res": [row.hallucinated for row in done.rows],
        "abstantion_raw_generation": refusals,
        "is_hallucinated_raw_generation": verdicts,
        "prompt": [row.prompt for row in done.rows],
        "generation": [row.generation for row in done.rows],
        "answer": [row.answers[0] if len(row.answers) == 1 else list(row.answers) for row in done.rows],
    }


def write(done: Evaluation, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
    """Write the three files into a folder, which is made. Returns their paths. Raises OutputError."""
    target = Path(folder).expanduser()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot make the folder {target}: {error.strerror or error}") from error
    refusals, verdicts = _raw(done)
    texts = {
        ABSTAINED: "".join(json.dumps({"eval_res": refusal}) + "\n" for refusal in refusals),
        JUDGED: "".join(json.dumps({"eval_res": verdict}) + "\n" for verdict in verdicts),
        RESULTS: json.dumps(results(done), indent=4) + "\n",
    }
    for name, text in texts.items():
        write_text(target / name, text)
    return tuple(target / name for name in texts)


def _raw(done: Evaluation) -> tuple[list[str], list[str]]:
    """What the judges said, as such files hold it."""
    return [json.dumps({"is_abstaining": row.refused}) for row in done.rows], [row.verdict for row in done.rows]
