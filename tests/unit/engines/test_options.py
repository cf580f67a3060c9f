"""Options of a model: what each may be, who takes them, and where they come from. No model is opened."""

import inspect
import os
from dataclasses import fields
from pathlib import Path

import pytest

import espalier
from espalier.engine_table import ENGINES, choose, open_engine, taken_by
from espalier.engines.options import INT32, MOST_THREADS, EngineOptions, Lora, parse_lora, read_lora
from espalier.errors import InputError
from espalier.fields import entries
from espalier.settings import VARIABLES, read_settings

WRONG = {
    "context": 0,
    "sequences": -1,
    "kv_size": 1.5,
    "batch_size": True,
    "threads": "4",
    "gpu_layers": -2,
    "kv_type": "f64",
    "flash_attention": "yes",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_value_that_cannot_be_names_its_field(name):
    with pytest.raises(InputError, match=name) as caught:
        EngineOptions(**{name: WRONG[name]})
    assert caught.value.field == name


@pytest.mark.parametrize("name", ["context", "sequences", "kv_size", "batch_size", "threads", "gpu_layers"])
def test_a_number_that_llama_cpp_cannot_take_is_refused(name):
    """More threads than it has room for end the process, other numbers would lose their upper bits."""
    most = MOST_THREADS if name == "threads" else INT32
    assert getattr(EngineOptions(**{name: most}), name) == most
    for wrong in (most + 1, 2**32 + 1, 10**9 * 5):
        with pytest.raises(InputError, match=f"{name} is at most {most}, not {wrong}") as caught:
            EngineOptions(**{name: wrong})
        assert caught.value.field == name
        assert caught.value.hint


def test_a_context_of_one_token_is_refused_by_name():
    with pytest.raises(InputError, match="context is a whole number from 2 on, not 1"):
        EngineOptions(context=1)
    assert EngineOptions(context=2).context == 2


def test_an_adapter_is_a_path_a_pair_or_a_list_of_them():
    assert read_lora(None) == ()
    assert read_lora("a.gguf") == (Lora(path="a.gguf"),)
    assert read_lora(Path("a") / "b.gguf") == (Lora(path="a/b.gguf"),)
    assert read_lora(("a.gguf", 0.5)) == (Lora(path="a.gguf", scale=0.5),)
    assert read_lora(["a", ("b", 2), Lora(path="c", scale=-1)]) == (
        Lora(path="a"),
        Lora(path="b", scale=2),
        Lora(path="c", scale=-1),
    )
    assert read_lora(("a", "b")) == (Lora(path="a"), Lora(path="b"))


@pytest.mark.parametrize("wrong", [5, {"a": 1}, [("a", "b")], [5], "", ("a", float("nan")), ("a", True)])
def test_what_is_no_adapter_is_refused(wrong):
    with pytest.raises(InputError) as caught:
        read_lora(wrong)
    assert caught.value.field == "lora"


def test_a_colon_without_a_number_belongs_to_the_path():
    assert parse_lora("a.gguf:0.25") == Lora(path="a.gguf", scale=0.25)
    assert parse_lora("C:\\a.gguf") == Lora(path="C:\\a.gguf")
    assert parse_lora("a:b:-1") == Lora(path="a:b", scale=-1)
    assert parse_lora(":2") == Lora(path=":2")
    for wrong in ("", "a.gguf:nan", "a.gguf:inf"):
        with pytest.raises(InputError):
            parse_lora(wrong)


def test_settings_stand_back_behind_what_is_given_and_beside_what_is_not_taken():
    given, settings = EngineOptions(threads=2), EngineOptions(threads=8, context=64, device="cpu", tool_format="hermes")
    merged = given.over(settings.only(("threads", "context")))
    assert merged == EngineOptions(threads=2, context=64, tool_format="hermes")
    assert settings.only(()) == EngineOptions(tool_format="hermes")


def test_every_engine_says_which_options_it_takes():
    names = {field.name for field in fields(EngineOptions)}
    pytest.importorskip("llama_cpp")
    pytest.importorskip("transformers")
    taken = {engine: set(taken_by(engine)) for engine in ENGINES}
    assert all(one <= names for one in taken.values())
    assert taken["fake"] == set()
    assert taken["transformers"] == {"device", "dtype", "draft_model"}
    assert taken["llamacpp"] == names - {"dtype", "tool_format"}


@pytest.mark.parametrize("option", [{"lora": ("a.gguf",)}, {"context": 5}, {"gpu_layers": 0}])
def test_transformers_takes_no_option_of_llama_cpp(option):
    pytest.importorskip("transformers")
    if "lora" in option:
        option = {"lora": read_lora(*option["lora"])}
    with pytest.raises(InputError, match="the transformers engine takes no"):
        open_engine("no/model", options=EngineOptions(**option))


def test_an_option_is_declared_once_and_reaches_python_and_the_environment():
    """What an option takes: its field, a keyword of `load`, its use in an engine, and a row of the docs."""
    names = set(entries(EngineOptions))
    assert names == {field.name for field in fields(EngineOptions)}
    assert set(inspect.signature(espalier.load).parameters) - {"model", "tokenizer", "app"} == names
    assert {f"ESPALIER_{name.upper()}" for name in names} <= set(VARIABLES)


def test_the_environment_sets_each_option():
    found = read_settings(
        {
            "ESPALIER_CONTEXT": "512",
            "ESPALIER_SEQUENCES": "4",
            "ESPALIER_KV_SIZE": "2048",
            "ESPALIER_BATCH_SIZE": "256",
            "ESPALIER_GPU_LAYERS": "-1",
            "ESPALIER_THREADS": " 2 ",
            "ESPALIER_KV_TYPE": "q8_0",
            "ESPALIER_FLASH_ATTENTION": "off",
            "ESPALIER_LORA": "a.gguf:0.5, b.gguf",
            "ESPALIER_DEVICE": "cpu",
            "ESPALIER_DTYPE": "",
            "ESPALIER_TOOL_FORMAT": "hermes",
        }
    ).options
    assert found == EngineOptions(
        context=512,
        sequences=4,
        kv_size=2048,
        batch_size=256,
        gpu_layers=-1,
        threads=2,
        kv_type="q8_0",
        flash_attention="off",
        lora=(Lora(path="a.gguf", scale=0.5), Lora(path="b.gguf")),
        device="cpu",
        tool_format="hermes",
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CONTEXT", "many"),
        ("THREADS", "0"),
        ("GPU_LAYERS", "-2"),
        ("KV_TYPE", "f64"),
        ("FLASH_ATTENTION", "1"),
        ("LORA", "a,,b"),
        ("LORA", "a:nan"),
        ("SEQUENCES", "1.5"),
    ],
)
def test_a_setting_that_cannot_be_names_its_variable(name, value):
    assert f"ESPALIER_{name}" in VARIABLES
    with pytest.raises(InputError, match=f"ESPALIER_{name}[:=]") as caught:
        read_settings({f"ESPALIER_{name}": value})
    assert caught.value.field == f"ESPALIER_{name}"


def test_a_pipe_is_not_waited_for(tmp_path):
    if not hasattr(os, "mkfifo"):
        pytest.skip("no named pipes here")
    os.mkfifo(tmp_path / "pipe")
    assert choose(str(tmp_path / "pipe")) == "transformers"


def test_a_gguf_file_is_told_by_its_name_or_its_first_bytes(tmp_path):
    (tmp_path / "model.bin").write_bytes(b"GGUF\3\0\0\0")
    (tmp_path / "other.bin").write_bytes(b"GGU")
    (tmp_path / "folder.gguf").mkdir()
    assert choose(str(tmp_path / "model.bin")) == "llamacpp"
    for name in ("a.gguf", "~/A.GGUF", "no/such/año.Gguf"):
        assert choose(name) == "llamacpp"
    for name in (str(tmp_path / "other.bin"), str(tmp_path / "folder.gguf"), "Qwen/Qwen3-0.6B", "a\0b"):
        assert choose(name) == "transformers"
    assert choose("fake") == "fake"
