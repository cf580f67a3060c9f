"""The plugin of pytest: cases are tests, failures have their reason, and other runs pay nothing for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = """
defaults: {config: {temperature: 0, max_tokens: 120}}
cases:
  - {name: good, prompt: hi, required_content: [Sure]}
  - {name: bad, prompt: hi, required_content: [Never]}
"""
PLUGIN = ["-p", "espalier.cli.pytest_plugin", "-p", "no:cacheprovider"]


def pytest_process(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGIN, *arguments],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "ESPALIER_CACHE_DIR": "off"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_each_case_is_a_test_beside_those_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "cases.yaml").write_text(CASES, "utf-8")
    (tmp_path / "test_own.py").write_text("def test_own(): pass\n", "utf-8")
    done = pytest_process(tmp_path, "--espalier", "cases.yaml", "--espalier-model", "fake")
    assert done.returncode == 1, done.stderr
    assert "1 failed, 2 passed" in done.stdout
    assert "required (1 of 1): the output lacks 'Never'" in done.stdout
    assert "try: ask for it in the prompt" in done.stdout
    chosen = pytest_process(tmp_path, "--espalier", "cases.yaml", "--espalier-model", "fake", "-k", "good")
    assert (chosen.returncode, "1 passed, 2 deselected" in chosen.stdout) == (0, True)
    assert pytest_process(tmp_path, "--espalier", "none.yaml").returncode == 4
    (tmp_path / "cases.yaml").write_text("cases: [{name: a}]", "utf-8")
    broken = pytest_process(tmp_path, "--espalier", "cases.yaml")
    assert broken.returncode == 2
    assert "case 1 (a): a case needs a `prompt`" in broken.stdout


@pytest.mark.slow
def test_a_run_without_the_flag_loads_nothing_heavy(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text(
        "import json, sys\ndef test_own():\n    open('seen', 'w').write(json.dumps(sorted(sys.modules)))\n", "utf-8"
    )
    assert pytest_process(tmp_path).returncode == 0
    loaded = set(json.loads((tmp_path / "seen").read_text()))
    assert not loaded & {"numpy", "torch", "typer", "jsonschema", "yaml", "rich"}
    assert {one for one in loaded if one.startswith("espalier")} <= {
        "espalier",
        "espalier.cli",
        "espalier.cli.pytest_plugin",
        "espalier.distribution",
        "espalier.exports",
        "espalier.version",
    }
