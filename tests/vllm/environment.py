"""The environment in which vLLM is installed (`scripts/setup_vllm.sh`), and processes in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
}


def installed() -> Path:
    """The Python of vLLM's environment. Skips the test where it is not installed."""
    script = ROOT / "scripts" / "setup_vllm.sh"
    folder = Path(subprocess.run([script, "--where"], check=True, capture_output=True, text=True).stdout.strip())
    if not (folder / "complete").is_file():
        pytest.skip("vLLM is not installed: scripts/setup_vllm.sh")
    return folder / "venv" / "bin" / "python"


def variables(more: Mapping[str, str]) -> dict[str, str]:
    """Of a process that runs this folder's source in vLLM's environment."""
    return {**os.environ, **SETTINGS, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **more}


def run(*arguments: str, seconds: int, **more: str) -> subprocess.CompletedProcess[str]:
    """Run Python there to its end."""
    return subprocess.run(
        [installed(), *arguments],
        env=variables(more),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
