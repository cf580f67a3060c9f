"""Runs requests through vLLM's own `LLM`, in vLLM's environment: `python -m tests.vllm.offline JOB ANSWERS`.

JOB is JSON: `model`, `engine` (arguments of LLM), `rounds` (lists of requests, one generate each). ANSWERS gets the
outputs of each request, the counters of the engine, and what each refused request was told. With `logits` the raw log
probabilities of each step are saved beside it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from vllm.exceptions import VLLMValidationError

from vllm import LLM, SamplingParams

PROCESSOR = "espalier.integrations.vllm:ConstraintProcessor"


def params_of(request: dict[str, Any]) -> SamplingParams:
    asked, given = request.get("asked"), dict(request["params"])
    if "logit_bias" in given:  # JSON's keys are texts
        given["logit_bias"] = {int(token): bias for token, bias in given["logit_bias"].items()}
    return SamplingParams(**given, extra_args=None if asked is None else {"espalier": asked})


def steps_of(listed: Any) -> np.ndarray:
    """`(n, V) float32`: the log probability of every token at every step."""
    rows = []
    for step in listed:
        row = np.full(max(step) + 1, -np.inf, dtype=np.float32)
        row[list(step)] = [one.logprob for one in step.values()]
        rows.append(row)
    return np.stack(rows)


def main(job: Path, answers: Path) -> None:
    asked = json.loads(job.read_text("utf-8"))
    llm = LLM(asked["model"], logits_processors=[PROCESSOR], **asked["engine"])
    rounds, saved = [], 0
    for requests in asked["rounds"]:
        try:
            outputs = llm.generate(
                [one["prompt"] for one in requests], [params_of(one) for one in requests], use_tqdm=False
            )
        except (ValueError, VLLMValidationError) as error:
            rounds.append({"refused": str(error)})
            continue
        found = []
        for request, output in zip(requests, outputs, strict=True):
            told = []
            for one in output.outputs:
                told.append({"text": one.text, "ids": list(one.token_ids), "finish": one.finish_reason})
                if request.get("logits"):
                    saved += 1
                    np.save(answers.with_suffix(f".{saved}.npy"), steps_of(one.logprobs))
                    told[-1]["logits"] = str(answers.with_suffix(f".{saved}.npy"))
            found.append(told)
        rounds.append({"answers": found})
    counters = {
        one.name: one.value for one in llm.get_metrics() if isinstance(getattr(one, "value", None), int | float)
    }
    answers.write_text(json.dumps({"rounds": rounds, "counters": counters}), "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
