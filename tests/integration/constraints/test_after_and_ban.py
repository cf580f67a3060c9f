"""`After` and `Ban` on the demo model: what it wants to say is bent, and only where it must be."""

import json

import jsonschema
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

from espalier.constraints.after.spec import After
from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.spec import JsonSchema, Regex

USER = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
PROMPT = "Generate user info"
END = "</think>"


@pytest.fixture(scope="module")
def eng(demo_engine):
    return demo_engine


def test_thinking_then_json(eng):
    spec = After(END, JsonSchema(USER), max_before=30)
    for seed in range(3):
        result = eng.generate(PROMPT, constraint=spec, seed=seed, max_tokens=150)
        _, marker, answer = result.text.partition(END)
        assert marker
        jsonschema.validate(json.loads(answer), USER)
        assert result.parsed == json.loads(answer)
        assert result.verdict.valid is True
        assert result.finish_reason == "stop"


def test_the_budget_closes_the_thinking_early(eng):
    spec = After(END, JsonSchema(USER), max_before=5)
    result = eng.generate(PROMPT, constraint=spec, temperature=0, max_tokens=150)
    before, _, answer = result.text.partition(END)
    taken = 0
    while not eng.vocab.decode(result.token_ids[:taken]).decode("utf-8", "replace").startswith(before):
        taken += 1
    assert taken == 5
    jsonschema.validate(json.loads(answer), USER)
    free = eng.generate(PROMPT, temperature=0, max_tokens=150)
    assert free.text.startswith(before), "the thinking was the model's own"
    none = eng.generate(PROMPT, constraint=After(END, JsonSchema(USER), max_before=0), temperature=0, max_tokens=150)
    assert none.text.startswith(END)
    assert any(step.blame is not None and "at most 5 tokens" in step.blame.reason for step in result.trace.steps)


def test_the_marker_in_the_prompt_leaves_the_answer_alone(eng):
    prompt = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n<think>\n\n{END}\n\n"
    result = eng.generate(prompt, raw=True, constraint=After(END, JsonSchema(USER)), temperature=0, max_tokens=150)
    jsonschema.validate(json.loads(result.text), USER)
    assert result.parsed == json.loads(result.text)
    begun = eng.generate(
        prompt + '{"name": "Ada', raw=True, constraint=After(END, JsonSchema(USER)), temperature=0, max_tokens=150
    )
    assert begun.parsed["name"].startswith("Ada")
    assert begun.verdict.valid is True


def test_what_is_banned_never_appears_though_the_model_wants_it(eng):
    phrase = "example.com"
    assert phrase in eng.generate(PROMPT, temperature=0, max_tokens=80).text
    blamed = []
    for seed in range(6):
        result = eng.generate(PROMPT, constraint=Ban([phrase]), seed=seed, max_tokens=80)
        assert phrase not in result.text
        blamed += [step.blame.reason for step in result.trace.steps if step.blame is not None]
    assert any(reason.endswith(' would complete the banned "example.com"') for reason in blamed)


def test_a_ban_holds_within_the_answer(eng):
    inner = AllOf(Regex(r"[a-z.]{1,12}@[a-z]{1,12}\.[a-z]{2,4}"), Ban(["example"]))
    result = eng.generate(PROMPT, constraint=After(END, inner, max_before=3), temperature=0, max_tokens=60)
    assert "example" not in result.parsed
    assert "@" in result.parsed
