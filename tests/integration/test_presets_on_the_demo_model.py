"""The built-in presets on a real model, through the command."""

import json

import pytest

from espalier.cli.main import main_code

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.mark.parametrize(
    ("preset", "prompt"),
    [
        ("tool_call", "Read the file /etc/hosts"),
        ("json_strict", "Generate user info"),
        ("json_loose", "Generate user info"),
    ],
)
def test_a_preset_gives_what_it_promises(capfd, monkeypatch, tmp_path, preset, prompt):
    monkeypatch.setenv("ESPALIER_CACHE_DIR", "off")
    monkeypatch.setenv("ESPALIER_CONFIG_DIR", str(tmp_path))
    monkeypatch.delenv("ESPALIER_MODEL", raising=False)
    arguments = ["--preset", preset, "-o", "max_tokens", "200", "--seed", "1", "--json"]
    assert main_code(["generate", *arguments, prompt]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["finish_reason"] == "stop"
    assert result["verdict"]["valid"] is True
    assert json.loads(result["text"]) == result["parsed"]
    if preset == "tool_call":
        assert result["parsed"] == {"name": "read_file", "args": {"path": "/etc/hosts"}}
