"""Flags that open a model, GGUF files in every command that reads one, and what doctor says of llama.cpp."""

import json
import os
import re
import shutil

import pytest

from espalier.decoding.drafting.pass_costs import PassCosts
from espalier.engines.llamacpp import report as llama_report
from espalier.wiring import demo_model
from tests import gguf_models as made

pytest.importorskip("llama_cpp")

DEMO = str(demo_model() / "demo.gguf")
ONE = ["generate", "-m", DEMO, "-t", "1"]


def test_a_gguf_file_generates_with_llama_cpps_names_of_flags_and_prints_nothing_of_its_log(run):
    flags = ["-c", "256", "-ngl", "0", "-fa", "off", "--kv-type", "f32", "--kv-size", "512", "-b", "64"]
    code, out, err = run(*ONE, *flags, "--json-object", "--seed", "1", "Generate user info")
    assert (code, err) == (0, "")
    assert json.loads(out)
    long = ["--ctx-size", "256", "--gpu-layers", "0", "--flash-attn", "off", "--kv-type", "f32", "--threads", "1"]
    assert run("generate", "-m", DEMO, *long, "--json-object", "--seed", "1", "Generate user info") == (0, out, "")


@pytest.mark.slow
def test_a_draft_model_changes_no_text_and_is_told(run, monkeypatch):
    monkeypatch.setattr(PassCosts, "listed", lambda self: [1e9] * 32)  # whatever a pass costs on a busy machine
    asked = ["--json-object", "--seed", "3", "Generate user info"]
    plain = run(*ONE, *asked)[1]
    code, out, err = run(*ONE, "--draft-model", DEMO, "--strategy", "draft", "--draft", "model", *asked)
    assert (code, out) == (0, plain)
    assert re.match(r"\d+ forward passes, \d+\.\d+ tokens each, \d+% of \d+ drafted tokens taken\n", err), err
    code, out, err = run(*ONE, "--strategy", "draft", "--draft", "model", *asked)
    assert (code, out) == (2, "")
    assert "--draft-model" in err
    code, out, err = run(*ONE, "--draft-model", "fake", "--strategy", "draft", *asked)
    assert (code, out) == (2, "")
    assert "fake has another vocabulary than demo.gguf: token 0 is" in err
    code, out, err = run(*ONE, "--draft-model", "nowhere.gguf", *asked)
    assert (code, out) == (2, "")
    assert "nowhere.gguf" in err


@pytest.mark.slow
def test_an_adapter_is_a_file_with_a_scale(run, tmp_path):
    pytest.importorskip("gguf")
    made.write_llama(tmp_path / "m.gguf", made.bpe_words())
    made.write_lora(tmp_path / "a.gguf", scale=2.0)
    base = ["generate", "-m", "m.gguf", "-t", "1", "--raw", "--temperature", "0", "--max-tokens", "20", "hi"]
    plain = run(*base)[1]
    assert run(*base, "--lora", "a.gguf:0")[1] == plain
    assert run(*base, "--lora", "a.gguf")[1] == run(*base, "--lora", "a.gguf:0.5", "--lora", "a.gguf:0.5")[1] != plain


def test_a_chat_says_which_file_and_engine_run(run, tmp_path):
    code, out, err = run("chat", "-m", DEMO, "-t", "1", "-c", "512")
    assert (code, out) == (0, "")
    assert err.splitlines()[0] == "demo.gguf, llama.cpp, 512 tokens of context"
    long = tmp_path / f"{'long-' * 20}Q4_K_M.gguf"
    long.symlink_to(DEMO)
    said = run("chat", "-m", str(long))[2].splitlines()[0]
    assert len(said) == 80
    assert said.startswith("long-")
    assert "Q4_K_M.gguf, llama.cpp, 1024 tokens" in said


def test_a_result_as_json_says_which_file_ran(run):
    code, out, _ = run(*ONE, "--json", "--max-tokens", "2", "--temperature", "0", "hi")
    assert (code, json.loads(out)["model"]) == (0, "demo.gguf")


def test_a_chat_on_a_gguf_file_switches_its_constraint(run):
    code, out, _ = run("chat", "-m", DEMO, "-t", "1", "--seed", "1", stdin="/regex [0-9]{3}\nhi\n/json\nhi\n")
    first, second = out.splitlines()
    assert code == 0
    assert first.isdigit()
    assert isinstance(json.loads(second), dict)


FAULTS = {
    "a context that is no number": (["-c", "many"], "--ctx-size"),
    "a context beyond the training": (["-c", "99999"], "99999 is longer than the 1024"),
    "no threads": (["-t", "0"], "threads is a whole number"),
    "a cache of an unknown type": (["--kv-type", "f64"], "--kv-type is one of f32, f16,"),
    "flash attention of an unknown kind": (["-fa", "maybe"], "flash_attention is one of auto, on, off, not 'maybe'"),
    "an adapter that is not there": (["--lora", "nope.gguf:0.5"], "nope.gguf"),
    "a scale that is no number": (["--lora", "nope.gguf:nan"], "scale of a LoRA adapter"),
    "a dtype": (["--dtype", "float16"], "the llamacpp engine takes no dtype"),
    "a file that is not there": (["-m", "nope.gguf"], "there is no file nope.gguf"),
    "a cut file": (["-m", "cut.gguf"], "cut.gguf"),
    "a file of another kind": (["-m", "other.gguf"], "other.gguf is not a usable GGUF file"),
    "an option of llama.cpp for another engine": (["-m", "fake"], "the fake engine takes no threads"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_one_clear_line_and_exit_code_2(run, tmp_path, fault):
    with open(DEMO, "rb") as file:
        (tmp_path / "cut.gguf").write_bytes(file.read(200_000))
    (tmp_path / "other.gguf").write_bytes(b"PK\3\4" + bytes(100))
    arguments, words = FAULTS[fault]
    code, out, err = run(*ONE, *arguments, "hi")
    assert (code, out) == (2, "")
    assert words in err
    assert err.startswith("error: ")
    assert len(err.splitlines()) <= 2  # the error, and perhaps a hint


@pytest.mark.slow
def test_vocab_and_check_read_a_gguf_file_without_its_weights(run, tmp_path):
    pytest.importorskip("gguf")
    code, out, _ = run("vocab", "-m", DEMO, "--json")
    report = json.loads(out)
    assert (code, report["model_width"]) == (0, 2304)
    made.write_vocab_only(tmp_path / "v.gguf", made.bpe_words(padded_to=400))
    shutil.copy(tmp_path / "v.gguf", tmp_path / "v.bin")
    for name in ("v.gguf", "v.bin"):
        code, out, _ = run("vocab", name, "--glitches")
        assert code == 0
        assert out.startswith("Not split into themselves")
        code, out, _ = run("check", "--tokenizer", name, "name, age int")
        assert code == 0
        assert "400 ids" in out
    for name in ("nope.gguf", "other.gguf"):
        (tmp_path / "other.gguf").write_bytes(b"")
        code, out, err = run("vocab", "-m", name)
        assert (code, out) == (2, "")
        assert name in err


def test_doctor_opens_the_library_and_says_what_it_is(run):
    code, out, _ = run("doctor", "--json")
    found = json.loads(out)["engines"]["llamacpp"]
    assert (code, found["can_run"], found["fault"]) == (0, True, None)
    assert found["version"]
    assert isinstance(found["gpu_offload"], bool)
    assert found["devices"]
    text = run("doctor")[1]
    assert "which fits its library" in text
    assert max(map(len, text.splitlines())) <= max(80, len(text.splitlines()[0]), len(text.splitlines()[-1]))


def test_doctor_shows_a_library_that_is_missing_and_does_not_fail(run, tmp_path, monkeypatch):
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(tmp_path))
    code, out, err = run("doctor")
    assert (code, err) == (0, "")
    assert "CANNOT RUN" in out
    assert json.loads(run("doctor", "--json")[1])["engines"]["llamacpp"]["can_run"] is False


def test_doctor_outlives_a_library_that_ends_the_process_which_opens_it(run, tmp_path, monkeypatch):
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\nkill -ILL $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(llama_report.sys, "executable", str(script))
    found = llama_report.examine()
    assert found["can_run"] is False
    assert "signal 4" in found["fault"]
    monkeypatch.setattr(llama_report.sys, "executable", os.devnull)
    assert "could not be tried" in llama_report.examine()["fault"]


@pytest.mark.parametrize("command", ["generate", "chat", "vocab", "check", "doctor"])
def test_help_stays_within_80_columns(run, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    out = run(command, "--help")[1]
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
def test_layers_for_a_gpu_that_the_build_does_not_have_were_an_error(run):
    import llama_cpp

    if llama_cpp.llama_supports_gpu_offload():
        pytest.skip("this build of llama.cpp has a GPU")
    plain = run(*ONE, "--seed", "1", "--max-tokens", "5", "hi")
    code, out, err = run(*ONE, "-ngl", "99", "--seed", "1", "--max-tokens", "5", "hi")
    assert (code, out) == plain[:2]
    assert "this build of llama.cpp has no GPU: it goes on without gpu layers" in err
