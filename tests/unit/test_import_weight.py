"""`import espalier` stays light: what is heavy is imported when it is first needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import espalier

HEAVY = {"torch", "transformers", "accelerate", "llguidance", "jsonschema", "numba", "typer", "rich"}


def test_import_espalier_loads_nothing_heavy() -> None:
    assert espalier.__file__ is not None
    source = str(Path(espalier.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, "-c", "import espalier, json, sys; print(json.dumps(sorted(sys.modules)))"],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(json.loads(done.stdout))
    assert "espalier" in loaded
    assert loaded & HEAVY == set()
