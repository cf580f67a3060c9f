"""The example of costs in production: it finds the schema that fights the model, since when another does, and what
helps."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_example_finds_the_schema_the_change_and_the_remedy(tmp_path: Path) -> None:
    command = [sys.executable, "examples/costs_in_production.py", "96", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=os.environ)
    assert done.returncode == 0, done.stderr
    said = done.stdout
    _, listed, shown, compared, tried, patch = re.split(r"^\$ ", said, flags=re.MULTILINE)
    titles = re.findall(r"^(Capital|User|City|Weather) +24 ", listed, flags=re.MULTILINE)
    assert set(titles[:2]) == {"Capital", "User"}, "these two cost most"
    assert set(titles[2:]) == {"City", "Weather"}
    assert "template" in listed, "the change of the prompt is marked"
    assert re.search(r"wanted 'answer' \(24 times\)", shown)
    assert re.search(r"^/ .* dearer$", compared, flags=re.MULTILINE)
    assert "Recommended: rename 'result' to 'answer' at /." in tried
    assert "rename 'result' to 'answer'" in patch
    assert json.loads((tmp_path / "edits.json").read_text(encoding="utf-8"))[0]["action"] == "rename"
    assert max(len(line) for line in said.splitlines() if not line.startswith("$ ")) <= 80
