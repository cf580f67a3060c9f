"""The main job on the bundled model: valid JSON, equal to transformers where it must be, the same bytes each time."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import espalier  # noqa: E402
from espalier.api import make_request  # noqa: E402
from espalier.engines.base import FinishEvent  # noqa: E402
from espalier.integrations.transformers import ConstraintLogitsProcessor  # noqa: E402
from espalier.wiring import demo_model  # noqa: E402

ROOT = Path(__file__).parents[2]
SCHEMA = json.loads((ROOT / "examples/user.schema.json").read_text())
SPEC = espalier.JsonSchema(SCHEMA)
PROMPTS = [row["prompt"] for row in json.loads((demo_model() / "samples.json").read_text())]
NEW = 64


@pytest.fixture(scope="module")
def eng(demo_engine):
    return demo_engine


@pytest.fixture(scope="module")
def theirs():
    path = demo_model()
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(path)


def generate_with_transformers(theirs, prompt, constraint=None):
    model, tokenizer = theirs
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    processors = []
    if constraint is not None:
        processors = [ConstraintLogitsProcessor(constraint, tokenizer=tokenizer, width=model.config.vocab_size)]
    with torch.inference_mode():
        out = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            logits_processor=processors,
            do_sample=False,
            max_new_tokens=NEW,
            pad_token_id=tokenizer.pad_token_id,
        )
    return tuple(out[0, ids.shape[1] :].tolist())


def test_there_are_twenty_prompts():
    assert len(PROMPTS) == 20


@pytest.mark.slow
def test_unconstrained_greedy_equals_model_generate_for_20_prompts(eng, theirs):
    results = eng.generate(PROMPTS, temperature=0, repetition_penalty=1.0, max_tokens=NEW)
    assert [r.token_ids for r in results] == [generate_with_transformers(theirs, p) for p in PROMPTS]


@pytest.mark.slow
@pytest.mark.parametrize("spec", [SPEC, espalier.JsonObject()], ids=lambda s: s.kind)
def test_constrained_greedy_equals_model_generate_with_our_processor_for_20_prompts(eng, theirs, spec):
    results = eng.generate(PROMPTS, constraint=spec, temperature=0, repetition_penalty=1.0, max_tokens=NEW)
    assert [r.token_ids for r in results] == [generate_with_transformers(theirs, p, spec) for p in PROMPTS]


def test_each_prompt_alone_equals_its_row_in_a_batch(eng):
    batch = eng.generate(PROMPTS[:6], constraint=SPEC, seed=5, temperature=1.0, max_tokens=NEW)
    for prompt, row in zip(PROMPTS[:6], batch, strict=True):
        alone = eng.generate(prompt, constraint=SPEC, seed=5, temperature=1.0, max_tokens=NEW)
        assert alone.token_ids == row.token_ids


@pytest.mark.slow
def test_hundreds_of_seeds_every_finished_output_validates(eng):
    finished = 0
    wild = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "max_tokens": 120, "trace": "off", "constraint": SPEC}
    for block in range(0, 320, 40):
        requests = [
            make_request(PROMPTS[seed % len(PROMPTS)], seed=seed, temperature=0.7 + 0.8 * (seed % 3), **wild)
            for seed in range(block, block + 40)
        ]
        results = [event.result for event in eng.engine.run(requests) if isinstance(event, FinishEvent)]
        for result in results:
            if result.finish_reason == "stop":
                finished += 1
                jsonschema.validate(json.loads(result.text), SCHEMA)
                assert result.verdict.valid is True
    assert finished >= 200


def test_the_trace_shows_that_the_constraint_changed_what_the_model_wanted(eng):
    free = eng.generate("Generate user info", temperature=0)
    bound = eng.generate("Generate user info", constraint=SPEC, temperature=0)
    assert not free.text.startswith("{")
    assert bound.text.startswith("{")
    first = bound.trace.steps[0]
    assert free.text.startswith(first.pre_masking[0].text)
    assert not first.pre_masking[0].allowed
    assert 0.0 < first.removed_mass < 1.0


def run_cli(*arguments, cwd):
    done = subprocess.run(
        [sys.executable, "-m", "espalier", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_same_seed_on_the_command_line_gives_the_same_bytes(tmp_path):
    arguments = ("generate", "--schema", str(ROOT / "examples/user.schema.json"), "--seed", "1", "--json")
    first = run_cli(*arguments, "Generate user info", cwd=tmp_path)
    assert first == run_cli(*arguments, "Generate user info", cwd=tmp_path)
    code, out, err = first
    assert (code, err) == (0, "")
    jsonschema.validate(json.loads(out)["parsed"], SCHEMA)


def test_generate_on_the_default_engine_and_messages_with_a_system_text():
    result = espalier.generate([{"role": "user", "content": "Hello"}], temperature=0, max_tokens=20)
    assert result.text
    again = espalier.generate("Hello", system="Be brief.", temperature=0, max_tokens=20)
    assert again.usage.prompt_tokens > result.usage.prompt_tokens


@pytest.mark.slow
def test_a_prompt_longer_than_the_context_is_one_line(tmp_path):
    code, out, err = run_cli("generate", "word " * 3000, cwd=tmp_path)
    assert (code, out) == (2, "")
    assert "maximum context length is 1024 tokens" in err
