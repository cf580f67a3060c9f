"""The programs of llama.cpp that `scripts/build_llama_tools.sh` builds, for tests that skip by name without them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "build_llama_tools.sh"


def tool(name: str) -> str:
    """The path of a built program. Skips the module where it is not built."""
    folder = subprocess.run([SCRIPT, "--where"], check=True, capture_output=True, text=True).stdout.strip()
    path = Path(folder) / name
    if not path.is_file():
        pytest.skip(f"{name} is not built: scripts/build_llama_tools.sh", allow_module_level=True)
    return str(path)
