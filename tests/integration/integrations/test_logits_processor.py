"""`ConstraintLogitsProcessor` in plain `model.generate`: greedy, sampled, batches, beams."""

import json

import jsonschema
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import espalier  # noqa: E402
from espalier.errors import InputError  # noqa: E402
from espalier.integrations.transformers import ConstraintLogitsProcessor  # noqa: E402
from espalier.wiring import demo_model  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SPEC = espalier.JsonSchema(SCHEMA)


@pytest.fixture(scope="module")
def loaded():
    path = demo_model()
    model = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    return model, transformers.AutoTokenizer.from_pretrained(path, padding_side="left")


def generate(loaded, prompts, constraint=SPEC, **options):
    model, tokenizer = loaded
    chats = [[{"role": "user", "content": p}] for p in prompts]
    texts = [tokenizer.apply_chat_template(c, tokenize=False, add_generation_prompt=True) for c in chats]
    inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
    inputs.pop("token_type_ids", None)
    processor = ConstraintLogitsProcessor(constraint, tokenizer=tokenizer, width=model.config.vocab_size)
    with torch.inference_mode():
        out = model.generate(**inputs, logits_processor=[processor], max_new_tokens=80, **options)
    return [tokenizer.decode(row[inputs["input_ids"].shape[1] :], skip_special_tokens=True) for row in out]


def check(text):
    jsonschema.validate(json.loads(text), SCHEMA)


def test_a_batch_of_different_lengths_is_valid_row_by_row(loaded):
    for text in generate(loaded, ["Generate user info", "Hello", "What is the capital of France?"], do_sample=False):
        check(text)


@pytest.mark.parametrize("beams", [2, 4])
def test_every_beam_is_valid(loaded, beams):
    texts = generate(
        loaded, ["Generate user info", "Hello"], do_sample=False, num_beams=beams, num_return_sequences=beams
    )
    assert len(texts) == 2 * beams
    for text in texts:
        check(text)


def test_sampling_is_valid(loaded):
    torch.manual_seed(0)
    for text in generate(loaded, ["Generate user info"] * 8, do_sample=True, temperature=1.2):
        check(text)


def test_a_processor_used_twice_is_refused_and_not_silently_wrong(loaded):
    model, tokenizer = loaded
    processor = ConstraintLogitsProcessor(SPEC, tokenizer=tokenizer, width=model.config.vocab_size)
    ids = tokenizer("Hello", return_tensors="pt")["input_ids"]
    model.generate(ids, logits_processor=[processor], max_new_tokens=5, do_sample=False)
    with pytest.raises(InputError, match="another generation"):
        model.generate(ids, logits_processor=[processor], max_new_tokens=5, do_sample=False)


def test_a_spec_without_a_tokenizer_is_refused():
    with pytest.raises(InputError, match="tokenizer"):
        ConstraintLogitsProcessor(SPEC)
