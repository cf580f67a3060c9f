"""Completion in a shell: installed by one command, and what Tab gives, models and presets included."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from espalier.cli.flags.values import complete_model, complete_preset
from espalier.cli.main import main_code

DEMO = Path(__file__).parents[3] / "models" / "demo"
RC = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/completions/espalier.fish"}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    for name in ("HF_HUB_CACHE", "ESPALIER_CONFIG_DIR", "DATABASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("shell", RC)
def test_one_command_installs_it_and_a_second_time_changes_nothing(shell, home, capsys):
    assert main_code(["completion", "install", shell]) == 0
    written = {path: path.read_text() for path in home.rglob("*") if path.is_file()}
    assert home / RC[shell] in written
    assert any("_ESPALIER_COMPLETE" in text for text in written.values())
    assert "open a new shell" in capsys.readouterr().err
    main_code(["completion", "install", shell])
    assert {path: path.read_text().rstrip() for path in written} == {p: text.rstrip() for p, text in written.items()}


def test_a_shell_that_cannot_be_found_out_is_asked_for(monkeypatch, capsys):
    monkeypatch.setattr("espalier.cli.completion._get_shell_name", lambda: None)
    assert main_code(["completion", "install"]) == 2
    assert "espalier completion install bash" in capsys.readouterr().err


def test_a_home_that_cannot_be_written_is_one_line(home, monkeypatch, capsys):
    (home / "file").touch()
    monkeypatch.setenv("HOME", str(home / "file"))
    assert main_code(["completion", "install", "bash"]) == 1
    assert capsys.readouterr().err.startswith("error: cannot install completion for bash: ")


def test_models_are_folders_files_the_cache_and_the_fake_one(home):
    (home / "models" / "tiny").mkdir(parents=True)
    (home / "models" / "tiny" / "config.json").touch()
    (home / "models" / "deep").mkdir()
    (home / "models" / "a.gguf").touch()
    (home / "models" / "notes.txt").touch()
    (home / "hf" / "hub" / "models--owner--name").mkdir(parents=True)
    assert complete_model("models/") == ["models/a.gguf", "models/deep/", "models/tiny"]
    assert complete_model("own") == ["owner/name"]
    assert {"fake", "models/", "owner/name"} <= set(complete_model(""))
    assert complete_model("nowhere/") == []


def test_presets_are_ours_and_the_users(home):
    folder = home / ".config" / "espalier" / "presets"
    folder.mkdir(parents=True)
    (folder / "my_json.toml").write_text("temperature = 0.1\n")
    assert "json_strict" in complete_preset("json")
    assert complete_preset("my") == ["my_json"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("espalier gen", "generate"),
        ("espalier generate --pres", "--preset"),
        ("espalier generate --preset json_s", "json_strict"),
        ("espalier presets show json_s", "json_strict"),
        (f"espalier generate -m {DEMO.parent}/demo/demo.g", f"{DEMO}/demo.gguf"),
    ],
)
def test_tab_in_bash(typed, completed, tmp_path, home):
    program = tmp_path / "espalier"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m espalier "$@"\n')
    program.chmod(0o755)
    words = typed.split()
    script = (
        f'export PATH="{tmp_path}:$PATH"; eval "$(espalier completion show bash)"; '
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
        '_espalier_completion espalier; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert completed in done.stdout.splitlines()
