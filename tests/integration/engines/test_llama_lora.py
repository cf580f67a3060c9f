"""LoRA adapters on a tiny model: what they change, and which are refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llama_cpp")
pytest.importorskip("gguf")

from espalier.engines.llamacpp.model import LlamaStepModel
from espalier.engines.llamacpp.weights import LlamaFile
from espalier.engines.options import EngineOptions, Lora
from espalier.errors import CapabilityError, InputError, UnknownModel
from tests import gguf_models as make
from tests.step_model_laws import close, last


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model and two adapters of it."""
    folder: Path = tmp_path_factory.mktemp("gguf")
    make.write_llama(folder / "model.gguf", make.bpe_words())
    make.write_lora(folder / "lora.gguf")
    make.write_lora(folder / "other.gguf", seed=2)
    return folder


def logits_with(folder, *lora):
    """After the same tokens, (V,) float32."""
    options = EngineOptions(threads=1, kv_type="f32", flash_attention="off", lora=lora)
    model = LlamaStepModel(LlamaFile(folder / "model.gguf", options), options)
    return last(model, model.new(), (1, 2, 3, 4))


@pytest.mark.slow
def test_an_adapter_changes_the_logits_by_its_scale(folder):
    path = str(folder / "lora.gguf")
    none, full, half = (
        logits_with(folder),
        logits_with(folder, Lora(path=path)),
        logits_with(folder, Lora(path=path, scale=0.5)),
    )
    assert np.abs(full - none).max() > 0.1
    assert np.abs(half - none).max() > 0.01
    assert np.abs(half - full).max() > 0.01


def test_an_adapter_of_scale_0_is_none(folder):
    found = logits_with(folder, Lora(path=str(folder / "lora.gguf"), scale=0.0))
    assert np.array_equal(found, logits_with(folder))


@pytest.mark.slow
def test_adapters_are_applied_together_in_any_order(folder):
    one, two = Lora(path=str(folder / "lora.gguf")), Lora(path=str(folder / "other.gguf"), scale=0.7)
    both = logits_with(folder, one, two)
    close(both, logits_with(folder, two, one), 1e-4, "the other order")
    assert min(np.abs(both - logits_with(folder, alone)).max() for alone in (one, two)) > 0.01


def test_an_adapter_that_is_not_there_is_named(folder):
    with pytest.raises(UnknownModel, match=r"there is no LoRA adapter .*nowhere\.gguf") as caught:
        logits_with(folder, Lora(path=str(folder / "nowhere.gguf")))
    assert caught.value.field == "lora"
    assert "--lora" in caught.value.hint
    assert "ESPALIER_LORA" in caught.value.hint


@pytest.mark.slow
def test_an_adapter_of_another_model_is_refused_with_the_reason(folder, tmp_path):
    wide = make.write_lora(tmp_path / "wide.gguf", hidden=128)
    arch = make.write_lora(tmp_path / "arch.gguf", arch="gemma3")
    deep = make.write_lora(tmp_path / "deep.gguf", layers=9)
    for path, said in ((wide, "incorrect shape"), (arch, "arch mismatch"), (deep, "does not exist in base model")):
        with pytest.raises(InputError, match=said) as caught:
            logits_with(folder, Lora(path=str(path)))
        assert caught.value.field == "lora"


def test_what_is_no_adapter_is_refused(folder, tmp_path):
    text = tmp_path / "text.gguf"
    text.write_text("hello")
    with pytest.raises(InputError, match="not a usable GGUF"):
        logits_with(folder, Lora(path=str(text)))
    with pytest.raises(InputError, match="is a model, not a LoRA adapter") as caught:
        logits_with(folder, Lora(path=str(folder / "model.gguf")))
    assert "given as the model" in caught.value.hint
    with pytest.raises(InputError, match="scale"):
        logits_with(folder, Lora(path=str(folder / "lora.gguf"), scale=float("nan")))


def test_an_adapter_that_is_cut_is_damaged_and_not_of_another_model(folder, tmp_path):
    cut = tmp_path / "cut.gguf"
    cut.write_bytes((folder / "lora.gguf").read_bytes()[:-64])
    with pytest.raises(InputError, match=r"cut\.gguf cannot be loaded") as caught:
        logits_with(folder, Lora(path=str(cut)))
    assert caught.value.hint == "fetch the file again"
    assert caught.value.field == "lora"


def test_an_adapter_that_begins_in_the_middle_of_a_text_is_refused(folder, monkeypatch):
    from espalier.engines.llamacpp.library import library

    monkeypatch.setattr(library(), "llama_adapter_get_alora_n_invocation_tokens", lambda _: 3)
    with pytest.raises(CapabilityError, match="aLoRA"):
        logits_with(folder, Lora(path=str(folder / "lora.gguf")))


@pytest.mark.parametrize("key", ["general.type", "adapter.type", "general.architecture"])
def test_an_adapter_whose_keys_have_the_wrong_type_is_refused(folder, tmp_path, key):
    """llama.cpp would end the process. The type is turned from a text into a list of texts, without any."""
    data = bytearray((folder / "lora.gguf").read_bytes())
    at = data.index(key.encode()) + len(key)
    length = int.from_bytes(data[at + 4 : at + 12], "little")
    data[at : at + 12 + length] = (9).to_bytes(4, "little") + (8).to_bytes(4, "little") + bytes(8)
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(data)
    with pytest.raises(InputError, match=f"it has no {key}"):
        logits_with(folder, Lora(path=str(damaged)))
