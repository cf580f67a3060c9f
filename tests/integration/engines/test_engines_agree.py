"""transformers and llama.cpp on the bundled model: the same logits, and the same texts under every kind of constraint.

llama.cpp runs in its parity setting: keys and values in float32, no flash attention, one thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import espalier  # noqa: E402
from espalier.chat.tools import read_tools  # noqa: E402
from espalier.constraints.after.spec import After  # noqa: E402
from espalier.constraints.after.thinking import Thinking  # noqa: E402
from espalier.constraints.ban import Ban  # noqa: E402
from espalier.constraints.compose.all_of import AllOf  # noqa: E402
from espalier.constraints.compose.any_of import AnyOf  # noqa: E402
from espalier.constraints.free import Free, Region  # noqa: E402
from espalier.constraints.kinds import KINDS  # noqa: E402
from espalier.constraints.tools.spec import ToolCalls  # noqa: E402
from espalier.constraints.words.spec import Wordlist  # noqa: E402
from espalier.decoding.ports import Extend, Rows, StepModel  # noqa: E402
from espalier.wiring import demo_model  # noqa: E402
from tests.prompts import PROMPTS  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

PARITY = {"kv_type": "f32", "flash_attention": "off", "threads": 1}
TOLERANCE = 1e-4
TOKENS = 40
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "tags": {"type": "array", "items": {"enum": ["a", "b", "c"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
LINES = 'root ::= line+\nline ::= "- " [a-zA-Z ]{1,12} "\\n"'
TOOLS = read_tools(json.loads((demo_model().parents[1] / "examples" / "tools.json").read_text(encoding="utf-8")))
CONSTRAINTS: dict[str, espalier.Spec] = {
    "json_schema": espalier.JsonSchema(PERSON),
    "json_object": espalier.JsonObject(),
    "regex": espalier.Regex(r"[A-Z][a-zñáéíóú]+( [a-z]+){2,5}[.!]"),
    "choice": espalier.Choice(["yes", "no", "sí", "I do not know", "twelve"]),
    "gbnf": espalier.Gbnf(LINES),
    "wordlist": Wordlist(lang="es", top=3000, digits=True),
    "ban": Ban(["Sure", "The ", "name", "a", "12"]),
    "safety": espalier.Safety("minimal", patterns=["name", {"regex": "[0-9]{2}"}]),
    "all_of": AllOf(espalier.JsonObject(), Ban(['"name"', "1"])),
    "any_of": AnyOf(espalier.JsonSchema(PERSON), espalier.Regex("[a-z]+ [a-z]+")),
    "after": After("JSON:", espalier.JsonObject(), max_before=12),
    "free": Free({"{": Region(espalier.Regex(r'"[a-z]+": "[A-Z][a-z]+"'), end="}")}),
    "thinking": Thinking(espalier.JsonObject(), max_tokens=12),
    "channels": espalier.Channels(espalier.Choice(["yes", "no"]), max_tokens=4),
    "tool_calls": ToolCalls(TOOLS, choice="required"),
}


@pytest.fixture(scope="module")
def torch_engine(demo_engine: espalier.LoadedEngine) -> Any:
    return demo_engine


@pytest.fixture(scope="module")
def llama_engine() -> Iterator[Any]:
    with espalier.load(str(demo_model() / "demo.gguf"), **PARITY) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def texts(torch_engine: Any) -> list[tuple[int, ...]]:
    """Every prompt as the model sees it and what it says to it, as ids."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(demo_model())
    results = torch_engine.generate(PROMPTS, temperature=0, max_tokens=TOKENS, trace="off")
    asked = [torch_engine.engine.prompt_text(espalier.api.make_request(p)) for p in PROMPTS]
    ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in asked]
    return [(*prompt, *result.token_ids) for prompt, result in zip(ids, results, strict=True)]


def close(got: Rows, wanted: Rows) -> None:
    """No raw logit further off than the tolerance."""
    assert got.shape == wanted.shape
    assert np.abs(got - wanted).max() <= TOLERANCE


def rows_of(model: StepModel, tokens: tuple[int, ...]) -> Rows:
    """Logits after each of the tokens, `(n, V)` float32, from one pass over an empty sequence."""
    sequence = model.new()
    found = model.extend([Extend(sequence=sequence, tokens=tokens, logits="all")])[0].copy()
    model.free(sequence)
    return found


def test_they_read_one_vocabulary(torch_engine, llama_engine):
    one, two = torch_engine.vocab, llama_engine.vocab
    assert [two.bytes_of(i) for i in range(one.width)] == [one.bytes_of(i) for i in range(one.width)]
    assert (two.width, two.special_texts) == (one.width, one.special_texts)
    assert set(two.eos_ids) == set(one.eos_ids)


def test_they_are_asked_in_the_same_words(torch_engine, llama_engine):
    requests = [
        espalier.api.make_request("Hi", tools=TOOLS),
        espalier.api.make_request([{"role": "system", "content": "Short."}, {"role": "user", "content": "¡Hola!"}]),
        espalier.api.make_request("Once", raw=True),
    ]
    for request in requests:
        assert llama_engine.engine.prompt_text(request) == torch_engine.engine.prompt_text(request)


def test_raw_logits_agree_over_prompts_and_generations(torch_engine, llama_engine, texts):
    assert len(texts) == 20
    for tokens in texts:
        close(rows_of(llama_engine.engine.model, tokens), rows_of(torch_engine.engine.model, tokens))


def test_raw_logits_agree_token_by_token(torch_engine, llama_engine, texts):
    model = llama_engine.engine.model
    for tokens in texts[:4]:
        sequence = model.new()
        steps = [model.extend([Extend(sequence=sequence, tokens=(token,))])[0].copy() for token in tokens]
        model.free(sequence)
        close(np.concatenate(steps), rows_of(torch_engine.engine.model, tokens))


def same_outputs(torch_engine: Any, llama_engine: Any, **options: Any) -> list[Any]:
    """Both engines' greedy outputs over all prompts, found equal; llama.cpp's."""
    usual = {"temperature": 0, "max_tokens": TOKENS, "trace": "off", "seed": 1}
    wanted = torch_engine.generate(PROMPTS, **usual | options)
    got = llama_engine.generate(PROMPTS, **usual | options)
    for prompt, one, two in zip(PROMPTS, wanted, got, strict=True):
        assert two.token_ids == one.token_ids, (prompt, one.text, two.text)
        assert (two.text, two.finish_reason, two.usage) == (one.text, one.finish_reason, one.usage)
        assert two.verdict == one.verdict
    return got


@pytest.mark.parametrize("penalty", [1.0, 1.1])
def test_greedy_outputs_are_identical_without_a_constraint(torch_engine, llama_engine, penalty):
    same_outputs(torch_engine, llama_engine, repetition_penalty=penalty)


def test_every_kind_of_constraint_is_compared():
    assert set(CONSTRAINTS) == set(KINDS)
    assert all(spec.kind == kind for kind, spec in CONSTRAINTS.items())


@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_greedy_outputs_are_identical_under(torch_engine, llama_engine, kind):
    results = same_outputs(torch_engine, llama_engine, constraint=CONSTRAINTS[kind])
    finished = [result for result in results if result.finish_reason != "length"]
    assert len(finished) >= 15  # cut texts are not all that is compared
    assert all(result.verdict.valid is not False for result in finished)


@pytest.mark.slow
def test_greedy_outputs_are_identical_with_tools_and_reasoning(torch_engine, llama_engine):
    results = same_outputs(torch_engine, llama_engine, tools=TOOLS, tool_choice="auto", max_tokens=60)
    assert any(result.tool_calls for result in results)
    same_outputs(torch_engine, llama_engine, reasoning="think", max_reasoning=8, constraint=espalier.JsonObject())


def test_sampled_outputs_and_their_traces_agree(torch_engine, llama_engine):
    options = {"constraint": CONSTRAINTS["json_schema"], "seed": 5, "max_tokens": TOKENS}
    wanted = torch_engine.generate(PROMPTS[:4], **options)
    for one, two in zip(wanted, llama_engine.generate(PROMPTS[:4], **options), strict=True):
        assert two.token_ids == one.token_ids
        for a, b in zip(one.trace.steps, two.trace.steps, strict=True):
            assert b.removed_mass == pytest.approx(a.removed_mass, abs=1e-4)
            assert b.tax_nats == pytest.approx(a.tax_nats, abs=1e-3)
            assert b.allowed_count == a.allowed_count
            assert b.blame == a.blame


def test_eight_at_once_are_each_as_alone(llama_engine):
    options = {"constraint": CONSTRAINTS["json_schema"], "max_tokens": TOKENS, "trace": "off"}
    asked = [espalier.api.make_request(prompt, seed=seed, **options) for seed, prompt in enumerate(PROMPTS[:8])]

    def results(requests: list[Any]) -> dict[int, Any]:
        return {e.index: e.result for e in llama_engine.engine.run(requests) if hasattr(e, "result")}

    together = results(asked)
    for index, request in enumerate(asked):
        assert together[index].token_ids == results([request])[0].token_ids


Texts = list[tuple[int, ...]]
Said = list[tuple[tuple[int, ...], Rows]]


def eight_at_once(model: StepModel, texts: Texts) -> Said:
    """Prompts of different lengths in one pass, then a token each, five times."""
    sequences = [model.new() for _ in range(8)]
    said: Said = []
    for start, end in pairwise([0, -6, -5, -4, -3, -2]):
        work = [
            Extend(sequence=sequence, tokens=tokens[start:end], logits="all")
            for sequence, tokens in zip(sequences, texts, strict=False)
        ]
        for tokens, rows in zip(texts, model.extend(work), strict=False):
            said.append((tokens[:end], rows.copy()))
    for sequence in sequences:
        model.free(sequence)
    return said


def late_join(model: StepModel, texts: Texts) -> Said:
    """A sequence that comes when another is under way; the first leaves, a third joins."""
    one, two, three = texts[0], texts[1], texts[2]
    first, second = model.new(), model.new()
    model.extend([Extend(sequence=first, tokens=one[:10], logits="none")])
    both = model.extend([Extend(sequence=first, tokens=one[10:11]), Extend(sequence=second, tokens=two[:9])])
    said: Said = [(one[:11], both[0].copy()), (two[:9], both[1].copy())]
    model.free(first)
    third = model.new()
    both = model.extend([Extend(sequence=third, tokens=three[:7]), Extend(sequence=second, tokens=two[9:12])])
    said += [(three[:7], both[0].copy()), (two[:12], both[1].copy())]
    model.free(second)
    model.free(third)
    return said


def fork(model: StepModel, texts: Texts) -> Said:
    """Two sequences with a common beginning that go on side by side; one goes on when the other is gone."""
    one, two = texts[0], texts[0][:12] + texts[3][-9:]
    first = model.new()
    model.extend([Extend(sequence=first, tokens=one[:12], logits="none")])
    second = model.fork(first)
    both = model.extend(
        [Extend(sequence=second, tokens=two[12:15], logits="all"), Extend(sequence=first, tokens=one[12:18])]
    )
    said: Said = [(two[:15], both[0].copy()), (one[:18], both[1].copy())]
    model.free(first)
    said.append((two, model.extend([Extend(sequence=second, tokens=two[15:], logits="all")])[0].copy()))
    model.free(second)
    return said


def rollback(model: StepModel, texts: Texts) -> Said:
    """A sequence is cut and goes on in another way, beside one that is left alone; then the cut is undone."""
    one, two = texts[4], texts[4][:14] + texts[5][-8:]
    sequence, other = model.new(), model.new()
    model.extend([Extend(sequence=sequence, tokens=one), Extend(sequence=other, tokens=texts[6][:-1])])
    said: Said = []
    for tokens in (two, one):
        model.truncate(sequence, 14)
        said.append((tokens, model.extend([Extend(sequence=sequence, tokens=tokens[14:], logits="all")])[0].copy()))
    said.append((texts[6], model.extend([Extend(sequence=other, tokens=texts[6][-1:])])[0].copy()))
    model.free(sequence)
    model.free(other)
    return said


@pytest.mark.parametrize("course", [eight_at_once, late_join, fork, rollback])
def test_a_course_gives_the_same_logits_on_both_and_those_of_each_text_alone(
    torch_engine: Any, llama_engine: Any, texts: Texts, course: Callable[[StepModel, Texts], Said]
) -> None:
    llama, other = llama_engine.engine.model, torch_engine.engine.model
    said, wanted = course(llama, texts), course(other, texts)
    assert [tokens for tokens, _ in said] == [tokens for tokens, _ in wanted]
    for (tokens, rows), (_, theirs) in zip(said, wanted, strict=True):
        close(rows, theirs)
        close(rows, rows_of(llama, tokens)[-len(rows) :])
        close(rows, rows_of(other, tokens)[-len(rows) :])
