"""llama.cpp itself reads the demo model's GGUF, and splits text as its tokenizer does."""

import pytest

from espalier.wiring import demo_model
from tests.llama_grammar import LlamaVocab

transformers = pytest.importorskip("transformers")

TEXTS = [
    "Generate user info",
    "What is 7 + 5? 1234567890",
    "¡Hola! ¿Cómo estás? año 2026",
    "東京 😀 naïve\r\n\t x  y",
    '{"name": "Ada", "tags": ["a b", "c\\n"]}',
    "it's we'll I'd   trailing   ",
    "<|im_start|>user\nHi<|im_end|>\n",
    "<think>\nno\n</think>\n\nyes",
    "ls *.py && rm -rf ./x_1",
    "",
]


def test_llama_cpp_splits_text_as_the_tokenizer_does():
    vocab = LlamaVocab(demo_model() / "demo.gguf")
    tokenizer = transformers.AutoTokenizer.from_pretrained(demo_model())
    assert vocab.size == len(tokenizer)
    for text in TEXTS:
        assert vocab.tokenize(text) == tokenizer(text, add_special_tokens=False)["input_ids"], text
