"""A model's folder is looked through before transformers opens it."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from espalier.engines.model_folder import check_config, check_folder
from espalier.errors import InputError, TooLarge, VocabError
from espalier.wiring import demo_model

DEMO = Path(demo_model())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for entry in DEMO.iterdir():
        if entry.suffix in (".json", ".jinja"):
            shutil.copy(entry, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(bytes(10_000_000))
    return tmp_path


def change(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **fields}), encoding="utf-8")


def test_the_demo_model_passes(folder: Path) -> None:
    check_folder(folder)
    check_folder(DEMO)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"num_hidden_layers": 2_000_000_000}, "num_hidden_layers is 2,000,000,000, and the limit is 8,192"),
        ({"vocab_size": 2**40}, "vocab_size is 1,099,511,627,776"),
        ({"hidden_size": 2**30}, "embeddings, which do not fit into 10,000,000 bytes"),
        ({"rope_parameters": {"x": {"num_experts": 10**6}}}, "rope_parameters.x.num_experts"),
    ],
)
def test_a_config_that_states_the_impossible_is_refused(folder: Path, fields: dict[str, Any], said: str) -> None:
    change(folder, **fields)
    with pytest.raises(InputError, match=said) as caught:
        check_folder(folder)
    assert "config.json" in str(caught.value)


def test_numbers_of_real_configs_pass() -> None:
    real = {
        "vocab_size": 256_000,
        "hidden_size": 16_384,
        "num_hidden_layers": 126,
        "num_attention_heads": 128,
        "max_position_embeddings": 10_485_760,
        "n_routed_experts": 256,
        "head_dim": 256,
        "rope_theta": 1_000_000_000,
        "moe_intermediate_size": 2048,
        "layer_types": ["full_attention"] * 126,
        "expert_layer_period": 2,
    }
    check_config(real, "x", weights=200_000_000_000)


def test_a_pipe_or_a_device_in_the_folder_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "extra.safetensors")
    with pytest.raises(InputError, match=r"extra\.safetensors is not a file"):
        check_folder(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("text", ["", "[1]", "{", "[" * 5000, '{"a": ' + "9" * 5000 + "}", "\0"])
def test_a_damaged_file_of_settings_is_named(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises((InputError, TooLarge), match=name):
        check_folder(folder)


def test_a_damaged_tokenizer_is_refused_before_transformers_reads_it(folder: Path) -> None:
    spec = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    spec["model"]["vocab"] = {"a": 2**31}
    (folder / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    with pytest.raises(VocabError, match="2,147,483,648"):
        check_folder(folder)
