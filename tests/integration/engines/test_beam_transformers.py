"""Beam search on the bundled model against `model.generate`: the same sequences with the same scores, constrained or
not, and the same on llama.cpp."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import espalier  # noqa: E402
from espalier.api import make_request  # noqa: E402
from espalier.constraints.words.spec import Wordlist  # noqa: E402
from espalier.integrations.transformers import ConstraintLogitsProcessor  # noqa: E402
from espalier.wiring import demo_model  # noqa: E402
from tests.prompts import PROMPTS  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")

BEAMS = 4
TOKENS = 24
TOLERANCE = 1e-4  # of a score, or of its size where that is more than 1
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
CONSTRAINTS = {
    "none": None,
    "json_schema": espalier.JsonSchema(PERSON),
    "regex": espalier.Regex(r"[A-Z][a-zñáéíóú]+( [a-z]+){2,5}[.!]"),
    "wordlist": Wordlist(lang="es", top=3000),
}
WAYS = [
    {"length_penalty": 0.0, "num_return_sequences": 4},
    {"length_penalty": 2.0, "early_stopping": "never", "num_return_sequences": 3},
    {"length_penalty": -0.5, "early_stopping": True},
    {"early_stopping": True, "num_return_sequences": 2},
    {"early_stopping": "never"},
]


@pytest.fixture(scope="module")
def engine(demo_engine: espalier.LoadedEngine) -> Any:
    return demo_engine


@pytest.fixture(scope="module")
def model() -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(demo_model(), dtype=torch.float32).eval()


def theirs(model: Any, engine: Any, prompt: str, constraint: Any = None, **options: Any) -> list[Any]:
    """Tokens up to EOS and score of each returned sequence."""
    ids = torch.tensor([engine.engine.prompt_ids(make_request(prompt))])
    eos = list(engine.vocab.eos_ids)
    processors = []
    if constraint is not None:
        processors.append(ConstraintLogitsProcessor(engine.engine.compiler.compile(constraint)))
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            eos_token_id=eos,
            pad_token_id=eos[0],
            logits_processor=processors,
            return_dict_in_generate=True,
            output_scores=True,
            **({"num_beams": BEAMS, "max_new_tokens": TOKENS} | options),
        )
    found = []
    for row, score in zip(out.sequences[:, ids.shape[1] :].tolist(), out.sequences_scores.tolist(), strict=True):
        ends = [at for at, token in enumerate(row) if token in eos]
        found.append((tuple(row[: ends[0] + 1] if ends else row), score))
    return found


def ours(engine: Any, prompt: str, constraint: Any = None, **options: Any) -> list[Any]:
    usual = {"num_beams": BEAMS, "max_tokens": TOKENS, "repetition_penalty": 1.0, "trace": "off", "seed": 1}
    result = engine.generate(prompt, strategy="beam", constraint=constraint, **(usual | options))
    return [(one.token_ids, one.score) for one in (result, *result.others)]


def equal(got: list[Any], wanted: list[Any], prompt: str) -> None:
    assert [tokens for tokens, _ in got] == [tokens for tokens, _ in wanted], prompt
    for (_, one), (_, two) in zip(got, wanted, strict=True):
        assert one == pytest.approx(two, abs=TOLERANCE, rel=TOLERANCE / 10), prompt


@pytest.mark.slow
@pytest.mark.parametrize("kind", CONSTRAINTS)
def test_twenty_prompts_give_the_same_sequences_and_scores(engine, model, kind):
    assert len(PROMPTS) == 20
    for prompt in PROMPTS:
        wanted = theirs(model, engine, prompt, CONSTRAINTS[kind])
        equal(ours(engine, prompt, CONSTRAINTS[kind]), wanted, prompt)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "json_schema"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
def test_every_way_to_score_and_to_stop_is_theirs(engine, model, way, kind):
    for prompt in PROMPTS[:4]:
        wanted = theirs(model, engine, prompt, CONSTRAINTS[kind], **way)
        equal(ours(engine, prompt, CONSTRAINTS[kind], **way), wanted, prompt)


@pytest.mark.parametrize("beams", [1, 2, 10])
def test_few_beams_and_many(engine, model, beams):
    for prompt in PROMPTS[:4]:
        found = ours(engine, prompt, num_beams=beams)
        if beams > 1:
            equal(found, theirs(model, engine, prompt, num_beams=beams), prompt)
        else:
            greedy = engine.generate(prompt, temperature=0, repetition_penalty=1.0, max_tokens=TOKENS, trace="off")
            assert found[0][0] == greedy.token_ids


@pytest.mark.slow
def test_penalties_and_biases_are_their_processors(engine, model):
    """A repetition penalty over the whole text and a bias: theirs, in their order, on ln p."""
    word = engine.engine.encode(" the", add_special=False)[0]
    for prompt in PROMPTS[:6]:
        wanted = theirs(
            model,
            engine,
            prompt,
            repetition_penalty=1.3,
            sequence_bias={(word,): 2.5, (30,): -4.0},
            min_new_tokens=8,
            bad_words_ids=[[262]],
        )
        got = ours(
            engine,
            prompt,
            repetition_penalty=1.3,
            repetition_window=-1,
            min_tokens=8,
            logit_bias={word: 2.5, 30: -4.0, 262: float("-inf")},
        )
        equal(got, wanted, prompt)


@pytest.mark.slow
def test_a_stop_text_ends_a_hypothesis_where_theirs_does(engine, model):
    tokenizer = transformers.AutoTokenizer.from_pretrained(demo_model())
    for prompt in PROMPTS[:8]:
        wanted = theirs(model, engine, prompt, stop_strings=["a"], tokenizer=tokenizer)
        equal(ours(engine, prompt, stop=("a",)), wanted, prompt)


def test_many_searches_at_once_are_each_as_alone(engine):
    options = {"strategy": "beam", "num_beams": 3, "num_return_sequences": 2, "max_tokens": 12, "seed": 1}
    constraint = CONSTRAINTS["json_schema"]
    alone = [engine.generate(prompt, constraint=constraint, **options) for prompt in PROMPTS[:5]]
    together = engine.generate(PROMPTS[:5], constraint=constraint, **options)
    service = engine.serve()
    served = engine.generate(PROMPTS[:5], constraint=constraint, **options)
    service.close()
    for one, *same in zip(alone, together, served, strict=True):
        for other in same:
            assert (other.token_ids, other.text) == (one.token_ids, one.text)
            assert other.score == pytest.approx(one.score, abs=TOLERANCE)
            assert [o.token_ids for o in other.others] == [o.token_ids for o in one.others]


@pytest.mark.slow
def test_llama_cpp_finds_the_same(engine):
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    parity = {"kv_type": "f32", "flash_attention": "off", "threads": 1}
    with espalier.load(str(demo_model() / "demo.gguf"), **parity) as llama:
        for kind in ("none", "json_schema"):
            for prompt in PROMPTS[:8]:
                wanted = ours(engine, prompt, CONSTRAINTS[kind], num_return_sequences=2)
                equal(ours(llama, prompt, CONSTRAINTS[kind], num_return_sequences=2), wanted, prompt)
        prompt = PROMPTS[1]
        greedy = llama.generate(prompt, temperature=0, repetition_penalty=1.0, max_tokens=TOKENS, trace="off")
        assert ours(llama, prompt, num_beams=1)[0][0] == greedy.token_ids
