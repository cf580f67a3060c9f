"""Our processor under the sampler of vLLM's second model runner: its buffers, its loader, its kernels (interpreted, on
a CPU) and its whole sampler, with slots that are used again, prompts in parts and requests that are preempted.

vLLM runs in an environment of its own, which scripts/setup_vllm.sh makes; without it the tests skip by name.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from espalier.wiring import demo_model
from tests.vllm.environment import run
from tests.vllm.requests import mixed, verdict

SECONDS = 580
pytestmark = pytest.mark.slow
SAMPLING: tuple[dict[str, Any], ...] = (
    {},
    {"frequency_penalty": 0.3},
    {"min_p": 0.02},
    {"presence_penalty": 0.4},
    {"repetition_penalty": 1.1},
    {"logit_bias": {"70": 2.0}},
)
"""Beside a constraint: the stages of the sampler that run before our processor and after it. Its kernel for top_k and
top_p does not run in Triton's interpreter."""


def requests() -> list[dict[str, Any]]:
    found = mixed(200, seed=7)
    for number, one in enumerate(found):
        one["params"] |= SAMPLING[number % len(SAMPLING)]
    return found


LOADING = """
from vllm.v1.worker.gpu.sample.logits_processor.loader import _load_v2_logitsprocs
from vllm.v1.sample.logits_processor import _load_custom_logitsprocs
name = ["espalier.integrations.vllm:ConstraintProcessor"]
print(_load_v2_logitsprocs(name)[0].__name__, _load_custom_logitsprocs(name)[0].__name__)
"""


def test_the_loaders_of_both_model_runners_take_the_class() -> None:
    ended = run("-c", LOADING, seconds=SECONDS)
    assert ended.stdout.split()[-2:] == ["ConstraintProcessor"] * 2, ended.stderr[-2000:]


def test_200_requests_of_every_kind_are_held_by_the_second_runners_sampler(tmp_path: Any) -> None:
    job, answers = tmp_path / "job.json", tmp_path / "answers.json"
    asked = requests()
    job.write_text(json.dumps({"model": str(demo_model()), "rounds": [asked]}), "utf-8")
    ended = run("-m", "tests.vllm.interpreted", str(job), str(answers), seconds=SECONDS)
    assert ended.returncode == 0, ended.stderr[-4000:]
    told = json.loads(answers.read_text("utf-8"))
    (found,) = (one["answers"] for one in told["rounds"])
    wrong = [
        verdict(one["kind"], output["text"], output["finish"]) for one, (output,) in zip(asked, found, strict=True)
    ]
    assert len(wrong) == 200
    assert not any(wrong), [one for one in wrong if one]
    assert told["counters"]["preempted"] > 0
    assert told["counters"]["parts"] > 0
