"""`espalier.load` takes a model that is loaded already, and leaves it to its owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import espalier
from espalier.errors import InputError

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"
ASK: dict[str, Any] = {"constraint": {"type": "array", "items": {"type": "integer"}}, "seed": 4, "max_tokens": 20}


@pytest.fixture(scope="module")
def parts() -> tuple[Any, Any]:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(DEMO, dtype="float32")
    return model, transformers.AutoTokenizer.from_pretrained(DEMO)


def test_a_model_of_transformers_answers_as_its_folder_does(parts: tuple[Any, Any]) -> None:
    model, tokenizer = parts
    with espalier.load(model, tokenizer) as mine, espalier.load(DEMO) as folders:
        assert (mine.name, mine.kind) == (folders.name, "transformers")
        results = [eng.generate("Generate three numbers.", **ASK) for eng in (mine, folders)]
    assert results[0] == results[1]
    output = model.generate(**tokenizer("hello", return_tensors="pt"), max_new_tokens=2, do_sample=False)
    assert output.shape[0] == 1  # closing the engine left the model to its owner


def test_a_llama_answers_as_its_file_does() -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    file = DEMO / "demo.gguf"
    llama = llama_cpp.Llama(str(file), n_ctx=256, verbose=False)
    with espalier.load(llama) as mine, espalier.load(file, context=256) as files:
        assert mine.kind == "llamacpp"
        assert mine.capabilities.max_context == 256
        results = [eng.generate("Generate three numbers.", **ASK) for eng in (mine, files)]
    assert results[0] == results[1]
    assert llama("hello", max_tokens=2)["choices"]
    llama.close()
    with pytest.raises(InputError, match="closed"):
        espalier.load(llama)


def test_what_cannot_be_loaded_is_named(parts: tuple[Any, Any]) -> None:
    model, tokenizer = parts
    wrong: list[tuple[tuple[Any, ...], dict[str, Any], str, str]] = [
        ((model,), {}, "needs its tokenizer", "tokenizer"),
        ((str(DEMO), tokenizer), {}, "goes with a model that is loaded already", "tokenizer"),
        ((5,), {}, "a llama_cpp.Llama, not int", "model"),
        ((model, tokenizer), {"device": "cpu"}, "takes no device", "device"),
    ]
    for arguments, options, message, field in wrong:
        with pytest.raises(InputError) as refused:
            espalier.load(*arguments, **options)
        assert message in str(refused.value)
        assert refused.value.field == field


def test_a_logits_processor_takes_what_generate_takes(parts: tuple[Any, Any]) -> None:
    processors = pytest.importorskip("espalier.integrations.transformers")
    model, tokenizer = parts
    inputs = tokenizer("Who?", return_tensors="pt")
    for arguments in ({"choice": ["me", "you"]}, {"regex": "me|you"}, {"grammar": 'root ::= "me" | "you"'}):
        processor = processors.ConstraintLogitsProcessor(tokenizer=tokenizer, **arguments)
        output = model.generate(**inputs, logits_processor=[processor], max_new_tokens=10, do_sample=False)
        assert tokenizer.decode(output[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True) in ("me", "you")
    processor = processors.ConstraintLogitsProcessor(bool, tokenizer=tokenizer)
    output = model.generate(**inputs, logits_processor=[processor], max_new_tokens=10, do_sample=False)
    assert tokenizer.decode(output[0][inputs["input_ids"].shape[1] :], skip_special_tokens=True) in ("true", "false")
