"""The demo model is what its card says, its two weight files agree, and its makers are deterministic."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
MIXED = "Hello, world! ¡Hola, señor! 東京 до 42 عربى \t 3.14\n\n  é́ 👩‍👩‍👧 😀 <think>x</think> z\r\n ok"
TINY = {"samples": 600, "tokens": 1100, "batch_tokens": 512, "vocab": 320, "hidden": 32, "layers": 1}


def script(name: str) -> Any:
    """A module of `scripts/`, imported as when the script runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        return importlib.import_module(name)


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the demo model needs no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def torch_settings() -> Iterator[None]:
    """Training sets global switches of torch; other tests must not see them."""
    threads, fill = torch.get_num_threads(), torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)
    torch.utils.deterministic.fill_uninitialized_memory = fill


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    model, tokenizer = script("demo_model_card").load(DEMO)
    return model, tokenizer


@pytest.mark.slow
def test_the_card_and_the_samples_are_the_model_s_own(capsys: pytest.CaptureFixture[str]) -> None:
    status = script("demo_model_card").main([str(DEMO), "--check"])
    assert status == 0, capsys.readouterr().out


def test_the_card_shows_every_sample() -> None:
    card, samples = script("demo_model_card"), json.loads((DEMO / "samples.json").read_text("utf-8"))
    text = (DEMO / "README.md").read_text("utf-8")
    assert len(samples) == 20
    for sample in samples:
        assert card.table([sample]) in text


def test_a_wrong_card_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    card, samples = script("demo_model_card"), json.loads((DEMO / "samples.json").read_text("utf-8"))
    monkeypatch.setattr(card, "sample_answers", lambda _: samples)
    for path in DEMO.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "README.md").write_text("An older card.\n", "utf-8")
    assert card.main([str(tmp_path), "--check"]) == 1
    assert "-An older card." in capsys.readouterr().out


def test_the_model_is_small(loaded: tuple[Any, Any]) -> None:
    model, _ = loaded
    assert sum(weight.numel() for weight in model.parameters()) <= 2_500_000
    assert sum(path.stat().st_size for path in DEMO.iterdir()) <= 16_000_000
    assert model.config.vocab_size <= 4096
    assert json.loads((DEMO / "config.json").read_text("utf-8"))["dtype"] == "float16"


def test_generation_ends_at_both_ends(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    stored = json.loads((DEMO / "generation_config.json").read_text("utf-8"))
    assert stored["eos_token_id"] == [2, 0]
    assert model.generation_config.eos_token_id == [2, 0]
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    assert tokenizer.convert_tokens_to_ids(names) == [0, 1, 2, 3, 4]
    assert (tokenizer.eos_token_id, tokenizer.pad_token_id) == (2, 0)


def test_every_byte_is_a_token(loaded: tuple[Any, Any]) -> None:
    pre_tokenizers = pytest.importorskip("tokenizers").pre_tokenizers
    vocabulary = loaded[1].get_vocab()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert len(alphabet) == 256
    assert set(alphabet) <= set(vocabulary)
    assert sorted(vocabulary.values()) == list(range(loaded[0].config.vocab_size))


def test_text_survives_the_tokenizer(loaded: tuple[Any, Any]) -> None:
    tokenizer = loaded[1]
    ids = tokenizer(MIXED).input_ids
    assert tokenizer.decode(ids) == MIXED
    assert tokenizer.decode(ids, skip_special_tokens=True) == MIXED, "the thinking marks are text"
    assert all(len(tokenizer.decode([index])) == 1 for index in tokenizer("2026").input_ids), "digits stand alone"


def test_training_rows_are_what_the_template_renders(loaded: tuple[Any, Any]) -> None:
    trainer, tokenizer = script("train_demo_model"), loaded[1]
    samples = [sample for sample in itertools.islice(script("demo_corpus").corpus(3, 200), 200) if sample.messages]
    rows = trainer.encode(tokenizer.backend_tokenizer, samples, 10_000)
    for sample, row in zip(samples, rows, strict=True):
        messages = sample.as_json()["messages"]
        rendered = tokenizer.apply_chat_template(messages, tokenize=False)
        assert rendered == "".join(text for text, _ in trainer.pieces(sample))
        assert row.ids == tokenizer(rendered, add_special_tokens=False).input_ids
        answers = [message["content"] + "<|im_end|>" for message in messages if message["role"] == "assistant"]
        wanted = [index for index, learn in zip(row.ids, row.wanted, strict=True) if learn]
        assert tokenizer.decode(wanted) == "".join(answers)


def test_far_positions_work(loaded: tuple[Any, Any]) -> None:
    """Most rows of the training are short; behind 700 tokens the model must still answer."""
    model, tokenizer = loaded
    card = script("demo_model_card")
    short = [
        message
        for turn in (("Hello", "Hello! How can I help you today?"), ("Name a fruit.", "apple"))
        for message in ({"role": "user", "content": turn[0]}, {"role": "assistant", "content": turn[1]})
    ]
    messages = [*(short * 20), {"role": "user", "content": "What is the capital of France?"}]
    assert 700 < len(tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]) < 900
    assert "Paris" in card.answer(model, tokenizer, messages)


def test_the_gguf_holds_the_same_model(loaded: tuple[Any, Any]) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    numpy = pytest.importorskip("numpy")
    load_file = pytest.importorskip("safetensors.numpy").load_file
    export = script("export_demo_gguf")
    reader = gguf.GGUFReader(DEMO / "demo.gguf")
    config = loaded[0].config
    weights = load_file(DEMO / "model.safetensors")
    written = {tensor.name: tensor for tensor in reader.tensors}
    names = export.tensor_names(config.num_hidden_layers)
    assert set(names) == set(weights)
    assert set(names.values()) == set(written)
    for theirs, ours in names.items():
        found = numpy.array(written[ours].data)
        assert found.dtype == numpy.float32
        if ours.endswith(("attn_q.weight", "attn_k.weight")):
            found = export.unpermute(found, config.num_attention_heads)
        assert weights[theirs].dtype == numpy.float16
        expected = weights[theirs].astype(numpy.float32)
        assert found.shape == expected.shape
        assert found.tobytes() == expected.tobytes(), theirs

    def field(name: str) -> Any:
        return reader.get_field(name).contents()

    tokenizer = loaded[1]
    assert field("tokenizer.chat_template") == tokenizer.chat_template
    assert field("tokenizer.ggml.pre") == "smollm"
    assert field("tokenizer.ggml.tokens") == tokenizer.convert_ids_to_tokens(range(config.vocab_size))
    assert field("tokenizer.ggml.token_type")[:6] == [3, 3, 3, 4, 4, 1]
    assert (field("tokenizer.ggml.eos_token_id"), field("tokenizer.ggml.eot_token_id")) == (2, 2)
    assert field("tokenizer.ggml.add_bos_token") is False
    assert field("llama.context_length") == config.max_position_embeddings


def test_the_corpus_is_deterministic_and_its_json_parses() -> None:
    corpus = script("demo_corpus").corpus
    first = list(corpus(11, 200))
    assert first == list(corpus(11, 200))
    assert first == list(itertools.islice(corpus(11, 500), 200)), "a short corpus begins a longer one"
    assert first != list(corpus(12, 200))
    parsed = 0
    for sample in corpus(11, 1500):
        for role, content in sample.messages:
            body = content.rpartition("</think>\n\n")[2]
            if "```json\n" in body:
                body = body.partition("```json\n")[2].removesuffix("\n```")
            if role == "assistant" and body.startswith(("{", "[")):
                parsed += isinstance(json.loads(body), (dict, list))
    assert parsed > 400


def test_users_have_emails_that_match_their_names() -> None:
    structured, random = script("demo_corpus.structured"), importlib.import_module("random")
    seen = 0
    for seed in range(400):
        reply = structured.user_record(random.Random(seed)).reply
        body = reply[reply.index("{") : reply.rindex("}") + 1]
        record = json.loads(body) if "[" not in reply else {}
        if {"name", "email", "age"} <= set(record):
            seen += 1
            first, last = record["name"].lower().split()
            assert record["email"].partition("@")[0] in (first, f"{first}.{last}")
            assert 18 <= record["age"] <= 80
    assert seen > 100


@pytest.mark.usefixtures("torch_settings")
def test_training_is_deterministic_and_saves_what_can_be_loaded(tmp_path: Path) -> None:
    trainer, card = script("train_demo_model"), script("demo_model_card")
    settings = trainer.Settings(**TINY, heads=2, feed_forward=64, positions=128, threads=1)
    first, second = trainer.train(settings, quiet=True), trainer.train(settings, quiet=True)
    assert first.report["steps"] >= 3
    for (name, left), (_, right) in zip(first.model.named_parameters(), second.model.named_parameters(), strict=True):
        assert torch.equal(left, right), name
    assert first.tokenizer.to_str() == second.tokenizer.to_str()
    assert first.report["curve"] == second.report["curve"]
    other = trainer.train(dataclasses.replace(settings, seed=8), quiet=True)
    assert not torch.equal(first.model.lm_head.weight, other.model.lm_head.weight)
    weights = {name: weight.clone() for name, weight in first.model.named_parameters()}
    trainer.save(first, tmp_path)
    model, _ = card.load(tmp_path)
    for name, weight in model.named_parameters():
        assert torch.equal(weight, weights[name]), "rounded before the held-out loss, so saving changes nothing"
