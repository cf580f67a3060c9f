"""Our processor inside a real vLLM (its build for CPUs, first model runner): one engine with a KV cache of 20 blocks,
so that requests are preempted, prompts that are read in parts and begin alike, and requests of every kind at once.

vLLM runs in an environment of its own, which scripts/setup_vllm.sh makes; without it the tests skip by name.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import transformers

from espalier.integrations.asked import read_asked
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.wiring import build_app, demo_model
from tests.vllm.environment import run
from tests.vllm.own import SEED, texts
from tests.vllm.requests import MIXED, mixed, verdict

SECONDS = 900
pytestmark = pytest.mark.slow
ENGINE = {
    "enforce_eager": True,
    "dtype": "float32",
    "max_model_len": 512,
    "block_size": 32,
    "num_gpu_blocks_override": 20,
    "max_num_batched_tokens": 64,
    "max_num_seqs": 32,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "async_scheduling": True,
    "disable_log_stats": False,
    "max_logprobs": -1,
    "additional_config": {"espalier": {"reporter": "tests.vllm.reports:write"}},
}
REFUSED = [
    ({"min_tokens": 3}, {"grammar": 'root ::= "a"'}, "min_tokens"),
    ({"bad_words": ["x"]}, {"grammar": 'root ::= "a"'}, "bad_words"),
    ({}, {"json_schema": {"type": "nothing"}}, "type"),
    ({}, {"jsonschema": {}}, "jsonschema"),
]


def traced() -> list[dict[str, Any]]:
    requests = mixed(len(MIXED), seed=3, greedy=True)
    for number, one in enumerate(requests):
        one["asked"] |= {"report": True, "id": f"t{number}"}
        one["params"] |= {"logprobs": -1}
        one["logits"] = True
    return requests


ROUNDS: dict[str, list[dict[str, Any]]] = {
    "mixed": mixed(200, seed=1, long=True),
    "greedy": mixed(len(MIXED), seed=SEED, greedy=True),
    "traced": traced(),
    "several": [{"kind": "choice", "prompt": "a", "params": {"n": 5, "max_tokens": 60}, "asked": MIXED["choice"][0]}],
    **{
        f"refused {said}": [{"kind": None, "prompt": "a", "params": params, "asked": asked}]
        for params, asked, said in REFUSED
    },
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run of all rounds: round -> what came of it, `counters` and `steps`."""
    folder = tmp_path_factory.mktemp("vllm")
    job, answers, steps = folder / "job.json", folder / "answers.json", folder / "steps.jsonl"
    steps.touch()
    job.write_text(json.dumps({"model": str(demo_model()), "engine": ENGINE, "rounds": list(ROUNDS.values())}), "utf-8")
    more = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "STEP_REPORTS": str(steps)}
    ended = run("-m", "tests.vllm.offline", str(job), str(answers), seconds=SECONDS, **more)
    assert ended.returncode == 0, ended.stderr[-4000:] + ended.stdout[-2000:]
    told = json.loads(answers.read_text("utf-8"))
    lines = [json.loads(line) for line in steps.read_text("utf-8").splitlines()]
    return {**dict(zip(ROUNDS, told["rounds"], strict=True)), "counters": told["counters"], "steps": lines}


def outputs(ran: dict[str, Any], name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [
        (request, output)
        for request, answer in zip(ROUNDS[name], ran[name]["answers"], strict=True)
        for output in answer
    ]


@pytest.mark.parametrize("name", ["mixed", "greedy", "traced", "several"])
def test_every_answer_satisfies_its_own_constraint(ran: dict[str, Any], name: str) -> None:
    wrong = [verdict(one["kind"], output["text"], output["finish"]) for one, output in outputs(ran, name)]
    assert len(wrong) >= len(ROUNDS[name])
    assert not any(wrong), [one for one in wrong if one]


def test_requests_were_preempted_and_prompts_shared_their_beginnings(ran: dict[str, Any]) -> None:
    """Otherwise the answers above would say nothing of either."""
    assert ran["counters"]["vllm:num_preemptions"] > 0, ran["counters"]
    assert ran["counters"]["vllm:prefix_cache_hits"] > 0, ran["counters"]


def test_greedy_texts_are_those_of_our_own_engine(ran: dict[str, Any]) -> None:
    told = outputs(ran, "greedy")
    assert [output["text"] for _, output in told] == texts(str(demo_model()), [one for one, _ in told])


def test_our_own_engine_writes_the_same_with_the_transformers_that_vllm_takes() -> None:
    ended = run("-m", "tests.vllm.own", str(demo_model()), seconds=SECONDS)
    assert ended.returncode == 0, ended.stderr[-2000:]
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["transformers"] != transformers.__version__
    assert told["texts"] == texts(str(demo_model()), mixed(len(MIXED), seed=SEED, greedy=True))


def test_the_tax_of_every_step_is_that_of_the_raw_logits(ran: dict[str, Any]) -> None:
    """By float64 over all log probabilities that vLLM tells, and masks of our own matcher."""
    app = build_app()
    told = Counter(step["id"] for step in ran["steps"] if not step["left"])
    for number, (one, output) in enumerate(outputs(ran, "traced")):
        steps = np.load(output["logits"]).astype(np.float64)  # (n, V)
        vocab = Vocab.from_tokenizer(str(demo_model() / "tokenizer.json"), eos_ids=[2, 0], width=steps.shape[1])
        constraint = read_asked({"espalier": one["asked"]}, app)
        assert constraint is not None
        matcher = app.compiler(vocab).compile(constraint.spec).matcher()
        reports = [step for step in ran["steps"] if step["id"] == f"t{number}" and not step["left"]]
        assert [step["step"] for step in reports] == list(range(len(output["ids"])))
        assert told[f"t{number}"] == len(steps) == len(output["ids"])
        for step, row, token in zip(reports, steps, output["ids"], strict=True):
            allowed = masks.unpack(matcher.mask(), len(row))
            mass = np.exp(row[allowed] - np.logaddexp.reduce(row)).sum()
            assert step["allowed_count"] == int(allowed.sum())
            assert abs(step["tax_nats"] + np.log(mass)) < 1e-4
            matcher.advance(token)


@pytest.mark.parametrize("said", [said for _, _, said in REFUSED])
def test_what_cannot_be_enforced_is_refused_by_name(ran: dict[str, Any], said: str) -> None:
    assert said in ran[f"refused {said}"]["refused"]
