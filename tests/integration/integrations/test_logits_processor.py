"""`ConstraintLogitsProcessor` in plain `model.generate`: every way of generation that transformers has, each beside
transformers' own `prefix_allowed_tokens_fn`."""

import json

import jsonschema
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import espalier  # noqa: E402
from espalier.errors import InputError, TokenRefused  # noqa: E402
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


def test_a_processor_used_for_another_prompt_is_refused_and_not_silently_wrong(loaded):
    model, tokenizer = loaded
    processor = ConstraintLogitsProcessor(SPEC, tokenizer=tokenizer, width=model.config.vocab_size)
    ids = tokenizer("Generate user info", return_tensors="pt")["input_ids"]
    options = {"logits_processor": [processor], "max_new_tokens": 9, "do_sample": False}
    first = model.generate(ids, **options)
    assert torch.equal(model.generate(ids, **options), first)
    longer = torch.cat((first, tokenizer("And", return_tensors="pt")["input_ids"], ids), dim=1)
    for other in (ids[:, 1:], longer, tokenizer("Good morning", return_tensors="pt")["input_ids"]):
        with pytest.raises(InputError, match="continues none of this generation"):
            model.generate(other, **options)
    processor.reset()
    assert torch.equal(model.generate(ids, **options), first)


CHOICE = espalier.Choice(["yes", "no", "maybe"])
ONE = espalier.Choice(["perhaps"])
WAYS = {
    "greedy": {},
    "sampling": {"do_sample": True, "temperature": 1.5},
    "sampling several": {"do_sample": True, "num_return_sequences": 4},
    "beams": {"num_beams": 3},
    "beams, several": {"num_beams": 4, "num_return_sequences": 4},
    "beams with a penalty": {"num_beams": 3, "repetition_penalty": 1.3},
    "beam sampling": {"num_beams": 2, "do_sample": True},
    "beam sampling, several": {"num_beams": 5, "do_sample": True, "num_return_sequences": 3, "temperature": 1.4},
    "beam sampling, truncated": {"num_beams": 4, "do_sample": True, "top_p": 0.9, "top_k": 5},
    "beam sampling with a penalty": {"num_beams": 3, "do_sample": True, "repetition_penalty": 1.2},
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
    "prompt lookup, sampled": {"prompt_lookup_num_tokens": 6, "do_sample": True},
    "assisted": {"assistant_model": True},
    "assisted, sampled": {"assistant_model": True, "do_sample": True},
}
ALONE = [name for name in WAYS if "assisted" in name or "lookup" in name]


@pytest.fixture(scope="module")
def assistant():
    draft = demo_model().parent / "demo-draft"
    if not draft.is_dir():
        pytest.skip("there is no models/demo-draft: make demo makes it")
    return transformers.AutoModelForCausalLM.from_pretrained(draft, dtype=torch.float32).eval()


def allowed_tokens(spec, compiled, width, start):
    """The constraint as a `prefix_allowed_tokens_fn`, which goes through each text anew."""

    def allowed(_, row):
        return allowed_after(spec, compiled, width, tuple(row[start:].tolist()))

    return allowed


LOOKED_UP = {}
"""By constraint and text, what `allowed_after` found: each of thousands of tokens is asked about by itself, and one
text is come to in many ways of generation."""


def allowed_after(spec, compiled, width, tokens):
    key = json.dumps(spec.to_json()), tokens
    if key not in LOOKED_UP:
        eos = compiled.vocab.eos_ids[0]
        matcher = compiled.matcher()
        for token in tokens:
            if matcher.is_finished or not matcher.allows(token):
                break
            matcher.advance(token)
        else:
            tokens = () if matcher.is_finished else range(min(width, compiled.vocab.width))
            LOOKED_UP[key] = [token for token in tokens if matcher.allows(token)] or [eos]
        LOOKED_UP.setdefault(key, [eos])
    return LOOKED_UP[key]


@pytest.mark.slow
@pytest.mark.parametrize("spec", [SPEC, CHOICE, ONE], ids=["schema", "choice", "one text"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_generation_is_that_of_transformers_own_prefixes(loaded, request, way, spec):
    model, tokenizer = loaded
    prompts = ["Generate user info: name and age"] if way in ALONE else ["Generate user info", "Hello", "Hello"]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    processor = ConstraintLogitsProcessor(spec, tokenizer=tokenizer, width=model.config.vocab_size)
    own = allowed_tokens(spec, processor.compiled, model.config.vocab_size, inputs["input_ids"].shape[1])
    options = {"max_new_tokens": 40, "do_sample": False, **inputs, **WAYS[way]}
    if "assistant_model" in options:
        options["assistant_model"] = request.getfixturevalue("assistant")
    for seed in range(3 if options["do_sample"] else 1):
        both = []
        for more in ({"logits_processor": [processor]}, {"prefix_allowed_tokens_fn": own}):
            torch.manual_seed(seed)
            with torch.inference_mode():
                both.append(model.generate(**options, **more))
        assert torch.equal(*both)
        texts = tokenizer.batch_decode(both[0][:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        if way in ("greedy", "sampling", "beams", "beam sampling", *ALONE):
            for text in texts:
                assert processor.compiled.accepts(text), text
        processor.reset()


@pytest.mark.parametrize(("beams", "groups"), [(2, 2), (4, 2), (6, 3)])
@pytest.mark.parametrize("spec", [SPEC, CHOICE, ONE], ids=["schema", "choice", "one text"])
def test_groups_of_beams_come_one_after_the_other(loaded, spec, beams, groups):
    """As transformers-community/group-beam-search calls processors: for the rows of one group after the other."""
    model, tokenizer = loaded
    ids = tokenizer("Hello", return_tensors="pt")["input_ids"]
    processor = ConstraintLogitsProcessor(spec, tokenizer=tokenizer, width=model.config.vocab_size)
    own = allowed_tokens(spec, processor.compiled, model.config.vocab_size, ids.shape[1])
    size = beams // groups
    prefixes = transformers.PrefixConstrainedLogitsProcessor(own, size)
    both = []
    for process in (processor, prefixes):
        rows, totals = ids.repeat(beams, 1), torch.zeros(beams)
        totals[[row for row in range(beams) if row % size]] = -1e9
        for _ in range(12):
            with torch.inference_mode():
                logits = model(rows).logits[:, -1].float()
            said = []  # tokens of the groups before: what they say costs the later ones
            following = []
            for group in range(groups):
                own_rows = slice(group * size, (group + 1) * size)
                scores = process(rows[own_rows], torch.log_softmax(logits[own_rows], dim=-1))
                scores[:, said] -= 0.5
                best = (scores + totals[own_rows, None]).reshape(-1).topk(size)
                sources, tokens = best.indices // scores.shape[1], best.indices % scores.shape[1]
                following.append(torch.cat((rows[own_rows][sources], tokens[:, None]), dim=1))
                totals[own_rows] = best.values.masked_fill(tokens == processor.compiled.vocab.eos_ids[0], -1e9)
                said += tokens.tolist()
            rows = torch.cat(following)
        both.append(rows)
    assert torch.equal(*both)


def test_a_later_processor_that_unmasks_is_told_in_every_way_but_beams(loaded):
    model, tokenizer = loaded
    ids = tokenizer("Hello", return_tensors="pt")["input_ids"]

    def unmask(_, scores):
        return torch.zeros_like(scores).index_fill(1, torch.tensor([ord("!")]), 50.0)

    for way in ("greedy", "sampling", "sampling several", "prompt lookup"):
        processor = ConstraintLogitsProcessor(CHOICE, tokenizer=tokenizer, width=model.config.vocab_size)
        options = {"max_new_tokens": 9, "do_sample": False, **WAYS[way]}
        with pytest.raises(TokenRefused, match="a masked token was taken") as error:
            model.generate(ids, logits_processor=[processor, unmask], **options)
        assert "last" in error.value.hint


def test_a_spec_without_a_tokenizer_is_refused():
    with pytest.raises(InputError, match="tokenizer"):
        ConstraintLogitsProcessor(SPEC)
