"""The README is short, its pictures show what the model answers, its examples run. `test_docs.py` runs its blocks."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not installed")

from tests.doc_blocks import ROOT, blocks_of
from tests.server_process import clean_environment

README = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_SCREEN, LONGEST = 30, 250


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what a clone has at its top, in which commands may write."""
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name not in ("out", "README.md"):
            (tmp_path / path.name).symlink_to(path)
    return tmp_path


def run(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], cwd=cwd, env=clean_environment() | {"PATH": path},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip


def test_the_readme_is_short_and_shows_what_it_is_about_in_the_first_screen() -> None:
    lines = README.splitlines()
    assert len(lines) <= LONGEST
    pictures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", "\n".join(lines[:FIRST_SCREEN]))
    assert pictures == ["docs/images/first.svg", "docs/images/trace.png"]
    assert all(0 < (ROOT / one).stat().st_size < 300_000 for one in pictures)


def test_the_pictures_show_what_the_model_answers(demo_engine: Any) -> None:
    spec = importlib.util.spec_from_file_location("readme_pictures", ROOT / "scripts" / "readme_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    pictures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(pictures)
    for name, drawn in pictures.drawn(demo_engine).items():
        assert (ROOT / "docs" / "images" / name).read_text(encoding="utf-8") == drawn, name


@pytest.mark.slow
@pytest.mark.parametrize("name", re.findall(r"\| \[examples/(\w+\.py)\]", README))
def test_each_of_the_five_things_runs(name: str, clone: Path) -> None:
    done = run(f"python examples/{name}", clone)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_what_the_first_example_shows_is_what_is_printed(clone: Path, demo_engine: Any) -> None:
    """The console block: the command lines are the README's, and the texts under them are the model's."""
    import espalier

    (console,) = [block.text for block in blocks_of(ROOT / "README.md") if block.language == "console"]
    free, bound = re.split(r"^\$ .*\n", console, flags=re.MULTILINE)[1:]
    schema = espalier.JsonSchema(json.loads((ROOT / "examples/user.schema.json").read_text(encoding="utf-8")))
    assert "--seed 2" in console
    assert demo_engine.generate("Generate user info", seed=2).text == free.rstrip("\n")
    result = demo_engine.generate("Generate user info", constraint=schema, seed=2)
    assert bound == f"{result.text}\ntrace: out/trace.html\n"
    assert f"{100 * result.trace.steps[0].removed_mass:.0f} % of" in (ROOT / "README.md").read_text(encoding="utf-8")
