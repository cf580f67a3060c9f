"""`echo` with `logprobs`: log probabilities of the prompt's tokens are those of transformers, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("transformers")

import torch
import transformers
from starlette.testclient import TestClient

import espalier
from tests.server_app import make_app, settings

DEMO = Path(__file__).parents[3] / "models" / "demo"
ROUTE = "/v1/completions"
TEXT = 'Ada Lovelace wrote {"name": "Ada"} and, later, a note on numbers. ' * 3
EXACT = {"kv_type": "f32", "flash_attention": "off"}


@pytest.fixture(scope="module", params=["transformers", "llamacpp"])
def engine(request: pytest.FixtureRequest, demo_engine: espalier.LoadedEngine) -> Iterator[espalier.LoadedEngine]:
    if request.param == "transformers":
        yield demo_engine
        return
    pytest.importorskip("llama_cpp")
    with espalier.load(str(DEMO / "demo.gguf"), **EXACT) as found:
        yield found


@pytest.fixture(scope="module")
def api(engine: espalier.LoadedEngine) -> Iterator[TestClient]:
    with TestClient(make_app(engine=engine, config=settings()), raise_server_exceptions=False) as found:
        yield found


@pytest.fixture(scope="module")
def truth() -> Any:
    """From token ids to `(T, V)` log probabilities, by transformers alone."""
    model = transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32).eval()

    def of(ids: list[int]) -> Any:
        with torch.no_grad():
            return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1).numpy()

    return of


def asked(api: TestClient, prompt: Any, **more: Any) -> dict[str, Any]:
    body = {"prompt": prompt, "echo": True, "logprobs": 3, "temperature": 0, "max_tokens": 1} | more
    reply = api.post(ROUTE, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("max_tokens", [0, 1, 3])
def test_the_prompt_has_the_model_s_own_log_probabilities(
    api: TestClient, engine: espalier.LoadedEngine, truth: Any, max_tokens: int
) -> None:
    ids = engine.engine.encode(TEXT, add_special=True)
    found = asked(api, ids, max_tokens=max_tokens)
    told = found["choices"][0]["logprobs"]
    assert len(told["tokens"]) == len(ids) + found["usage"]["completion_tokens"]
    assert found["usage"]["completion_tokens"] == max_tokens or found["choices"][0]["finish_reason"] == "stop"
    expected = truth(ids)
    assert told["token_logprobs"][0] is None
    for place in range(1, len(ids)):
        own = float(expected[place - 1][ids[place]])
        assert told["token_logprobs"][place] == pytest.approx(own, abs=2e-4)
        best = float(expected[place - 1].max())
        assert max(told["top_logprobs"][place].values()) == pytest.approx(best, abs=2e-4)
    texts = "".join(told["tokens"])
    assert found["choices"][0]["text"].startswith(TEXT[:40])
    assert texts.replace(engine.engine.vocab.text_of(ids[0]), "", 1).find("Ada Lovelace wrote") >= 0


def test_what_lm_eval_sums_is_the_log_probability_of_the_continuation(
    api: TestClient, engine: espalier.LoadedEngine, truth: Any
) -> None:
    """Its `parse_logprobs`: `token_logprobs[ctxlen:-1]`, greedy where each is the most probable of its place."""
    context = engine.engine.encode(TEXT, add_special=True)
    whole = [*context, *engine.engine.encode(" Ada Lovelace", add_special=False)]
    for prompt in (whole, whole[: len(context) + 1]):
        found = asked(api, [prompt], logprobs=1, seed=1234)["choices"][0]["logprobs"]
        expected = truth(prompt)
        rest = range(len(context), len(prompt))
        assert sum(found["token_logprobs"][len(context) : -1]) == pytest.approx(
            sum(float(expected[place - 1][prompt[place]]) for place in rest), abs=1e-3
        )
        greedy = all(int(expected[place - 1].argmax()) == prompt[place] for place in rest)
        tokens, tops = found["tokens"], found["top_logprobs"]
        assert greedy == all(
            max(tops[place], key=tops[place].get) == tokens[place] for place in range(len(context), len(tokens) - 1)
        )


def test_many_prompts_and_a_constraint_are_measured_beside_others(api: TestClient, engine: Any, truth: Any) -> None:
    prompts = [engine.engine.encode(TEXT[:size], add_special=True) for size in (20, 60, 9)]
    found = asked(api, prompts, structured_outputs={"choice": ["yes", "no"]}, max_tokens=4)
    for choice, ids in zip(found["choices"], prompts, strict=True):
        expected = truth(ids)
        told = choice["logprobs"]["token_logprobs"]
        for place in range(1, len(ids)):
            assert told[place] == pytest.approx(float(expected[place - 1][ids[place]]), abs=2e-4)
        assert choice["text"].endswith(("yes", "no"))


def test_no_tokens_are_generated_where_none_are_asked_for(api: TestClient) -> None:
    found = asked(api, TEXT, max_tokens=0)
    assert found["choices"][0]["text"] == TEXT
    assert found["usage"]["completion_tokens"] == 0
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}
    reply = api.post("/v1/chat/completions", json=chat).json()
    assert (reply["choices"][0]["message"]["content"], reply["choices"][0]["finish_reason"]) == ("", "length")
    streamed = api.post("/v1/chat/completions", json=chat | {"stream": True})
    assert streamed.status_code == 200
    assert streamed.text.rstrip().endswith("data: [DONE]")
