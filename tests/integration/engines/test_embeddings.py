"""Embeddings of the demo model on both engines: transformers' own hidden states pooled with NumPy, and a real
llama-server on the same GGUF, are the oracles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import numpy as np
import pytest

import espalier
from espalier.engines.embedding import INT16, HowToPool, embedding, normalised, reader_of
from espalier.engines.llamacpp.hidden import LlamaHidden
from espalier.errors import CapabilityError, InputError, PromptTooLong
from espalier.wiring import demo_model
from tests.gguf_models import bpe_words, write_llama
from tests.llama_tools import llama_server_program

TEXTS = ["Hello", "Hello there, how are you today?", "x" * 300, "Ünïcödé 日本 🙂", "the cat sat on the mat. " * 30]
GGUF = demo_model() / "demo.gguf"


@pytest.fixture(scope="module")
def llama() -> Iterator[espalier.LoadedEngine]:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    with espalier.load(str(GGUF)) as engine:
        yield engine


def states_of(engine: espalier.LoadedEngine, text: str) -> np.ndarray:
    return reader_of(engine.engine, engine.name).read(engine.engine.encode(text, add_special=True))


def test_the_states_are_those_of_transformers(demo_engine: espalier.LoadedEngine) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(demo_model(), dtype=torch.float32).eval()
    for text in TEXTS:
        ids = demo_engine.engine.encode(text, add_special=True)
        with torch.inference_mode():
            wanted = model(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0].numpy()
        states = states_of(demo_engine, text)
        assert np.allclose(states, wanted, atol=1e-4)
        ways = {"mean": wanted.mean(axis=0), "last": wanted[-1], "cls": wanted[0]}
        for pooling, vector in ways.items():
            found = embedding(states, HowToPool(pooling=pooling))  # type: ignore[arg-type]
            assert np.allclose(found, vector / np.linalg.norm(vector), atol=1e-5)
            assert np.isclose(np.linalg.norm(found), 1)


def test_both_engines_give_the_same_vectors(demo_engine: espalier.LoadedEngine, llama: espalier.LoadedEngine) -> None:
    for text in TEXTS:
        for pooling in ("mean", "last", "cls"):
            how = HowToPool(pooling=pooling)  # type: ignore[arg-type]
            one, other = (embedding(states_of(engine, text), how) for engine in (demo_engine, llama))
            assert float(one @ other) > 0.9999, (text, pooling)  # the file has float16 weights and cache


def test_reading_leaves_what_is_generated_alone(
    demo_engine: espalier.LoadedEngine, llama: espalier.LoadedEngine
) -> None:
    for engine in (demo_engine, llama):
        before = engine.generate("Hello", seed=3, max_tokens=12).token_ids
        events = engine.stream("Hello", seed=3, max_tokens=12)
        next(events)
        states_of(engine, TEXTS[1])
        assert [*events][-1].result.token_ids == before  # type: ignore[union-attr]


def test_a_text_longer_than_the_context_is_refused(
    demo_engine: espalier.LoadedEngine, llama: espalier.LoadedEngine
) -> None:
    for engine in (demo_engine, llama):
        with pytest.raises(PromptTooLong):
            reader_of(engine.engine, engine.name).read([5] * ((engine.capabilities.max_context or 0) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "last", "cls", "none"])
def test_the_vectors_are_llama_servers(llama: espalier.LoadedEngine, pooling: str) -> None:
    with llama_server_program(GGUF, "--embeddings", "--pooling", pooling) as address:
        for text in TEXTS:
            for norm in (2, -1, 0, 1, 3):
                body = {"content": text, "embd_normalize": norm}
                found = httpx2.post(f"{address}/embedding", json=body, timeout=60).json()[0]["embedding"]
                how = HowToPool(pooling=None if pooling == "none" else pooling, norm=norm)  # type: ignore[arg-type]
                mine = np.atleast_2d(embedding(states_of(llama, text), how))
                scale = float(np.abs(found).max())
                assert np.allclose(mine, found, atol=2e-3 * scale), (text, norm)


@pytest.mark.parametrize(("said", "pooling"), [(None, None), (0, None), (1, "mean"), (2, "cls"), (3, "last")])
def test_a_file_says_how_it_is_pooled(tmp_path: Path, said: int | None, pooling: str | None) -> None:
    keys = {} if said is None else {"pooling_type": said}
    with espalier.load(str(write_llama(tmp_path / "m.gguf", bpe_words(), keys=keys))) as engine:
        reader = reader_of(engine.engine, engine.name)
        assert isinstance(reader, LlamaHidden)
        assert reader.pooling == pooling
        assert reader.read([1, 2, 3]).shape == (3, reader.size)


def test_a_model_for_embeddings_does_not_generate(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf", bpe_words(), keys={"pooling_type": 3})
    with espalier.load(str(path)) as engine, pytest.raises(CapabilityError, match="embeddings: it cannot generate"):
        engine.generate("x")


@pytest.mark.parametrize("mode", ["mean_tokens", "cls_token", "lasttoken", "max_tokens"])
def test_a_folder_says_how_it_is_pooled(tmp_path: Path, mode: str) -> None:
    import json
    import shutil

    pytest.importorskip("transformers")
    folder = tmp_path / "m"
    shutil.copytree(demo_model(), folder, ignore=shutil.ignore_patterns("*.gguf"))
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{one}": one == mode for one in ("mean_tokens", "cls_token", "lasttoken", "max_tokens")}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 160, **modes}))
    config = json.loads((folder / "config.json").read_text()) | {"matryoshka_dimensions": [32, 64]}
    (folder / "config.json").write_text(json.dumps(config))
    if mode == "max_tokens":
        with pytest.raises(InputError, match="max_tokens"):
            espalier.load(str(folder))
        return
    with espalier.load(str(folder)) as engine:
        reader = reader_of(engine.engine, engine.name)
        assert reader.pooling == {"mean_tokens": "mean", "cls_token": "cls", "lasttoken": "last"}[mode]
        assert reader.prefixes == (32, 64)


def test_norms_by_hand() -> None:
    vector = np.array([3.0, -4.0], dtype=np.float32)
    for norm, wanted in [(2, [0.6, -0.8]), (-1, [3, -4]), (1, [3 / 7, -4 / 7]), (0, [0.75 * INT16, -INT16])]:
        assert np.allclose(normalised(vector, norm), wanted)
    assert normalised(np.zeros(3, dtype=np.float32), 2).tolist() == [0, 0, 0]
