"""What one engine of vLLM does under a schema: without a constraint, by our processor, by one of vLLM's own backends.
Runs in vLLM's environment: `python -m benchmarks.vllm.inside JOB`, and prints JSON on its last line.

JOB is JSON: `model`, `backend`, `sizes` (requests at once), `rounds`. The three ways take turns within one process. A
cold turn has a schema of its own in each request, which nobody has met; a warm one has schemas that were met before.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from statistics import median
from types import MappingProxyType
from typing import Any

from vllm.sampling_params import StructuredOutputsParams

from vllm import LLM, SamplingParams

PROCESSOR = "espalier.integrations.vllm:ConstraintProcessor"
MAX_TOKENS = 64


def schema_of(number: int) -> dict[str, Any]:
    """An object of three properties, whose names differ with the number, so that no cache knows it. Every text of it is
    short."""
    properties = {
        f"name{number}": {"type": "string", "maxLength": 12},
        f"age{number}": {"type": "integer", "minimum": 0, "maximum": 120},
        f"kind{number}": {"enum": ["red", "green", "blue"]},
    }
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _free(schema: dict[str, Any]) -> SamplingParams:
    return SamplingParams(max_tokens=MAX_TOKENS // 2, ignore_eos=True)


def _ours(schema: dict[str, Any]) -> SamplingParams:
    return SamplingParams(max_tokens=MAX_TOKENS, extra_args={"espalier": {"json_schema": schema}})


def _theirs(schema: dict[str, Any]) -> SamplingParams:
    return SamplingParams(max_tokens=MAX_TOKENS, structured_outputs=StructuredOutputsParams(json=schema))


WAYS: Mapping[str, Callable[[dict[str, Any]], SamplingParams]] = MappingProxyType(
    {"free": _free, "ours": _ours, "theirs": _theirs}
)


def turn(llm: LLM, way: str, schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """One generate: tokens a second of the wall and of the process's CPU, ms to the first token (the median), and how
    many texts satisfy their schema."""
    params = [WAYS[way](schema) for schema in schemas]
    prompts = [f"Generate user info {number}" for number in range(len(schemas))]
    wall, cpu = time.perf_counter(), time.process_time()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    tokens = sum(len(one.outputs[0].token_ids) for one in outputs)
    return {
        "wall": tokens / wall,
        "cpu": tokens / cpu,
        "first": median(1e3 * one.metrics.first_token_latency for one in outputs),
        "valid": sum(_is_valid(schema, one.outputs[0].text) for schema, one in zip(schemas, outputs, strict=True)),
    }


def _is_valid(schema: dict[str, Any], text: str) -> bool:
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and list(found) == schema["required"]


def main(job: dict[str, Any]) -> list[dict[str, Any]]:
    llm = LLM(
        job["model"],
        enforce_eager=True,
        dtype="float32",
        max_model_len=512,
        block_size=32,
        max_num_seqs=128,
        logits_processors=[PROCESSOR],
        structured_outputs_config={"backend": job["backend"]},
        disable_log_stats=False,
    )
    fresh = iter(range(1, 1_000_000))
    known = [schema_of(0)] * max(job["sizes"])
    for way in WAYS:  # kernels that are compiled once
        turn(llm, way, known[:2])
    rows = []
    for number in range(job["rounds"]):
        order = [*WAYS][number % 3 :] + [*WAYS][: number % 3]
        for size in job["sizes"]:
            new = [schema_of(next(fresh)) for _ in range(size)]
            # Warm comes after cold, over the same schemas: each way has met them once.
            turns = [(state, way) for state in ("cold", "warm") for way in order]
            rows += [{"size": size, "state": state, "way": way, **turn(llm, way, new)} for state, way in turns]
    return rows


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
