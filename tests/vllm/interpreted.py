"""Lets what vLLM's second model runner samples with run on a CPU, and runs `second_runner.py` there: `python -m
tests.vllm.interpreted JOB ANSWERS`. Triton interprets the kernels; buffers are copied and not pinned.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace


def prepare() -> None:
    """Before anything of vLLM's is imported. vLLM takes Triton in its build for CPUs where Triton names a backend for
    them; and memory that host and device share where it takes it to be there, which needs a device."""
    os.environ["TRITON_INTERPRET"] = "1"
    backends = importlib.import_module("triton.backends").backends
    backends["cpu"] = SimpleNamespace(driver=SimpleNamespace(is_active=lambda: False))
    platform = importlib.import_module("vllm.utils.platform_utils")
    platform.is_uva_available = lambda: False  # type: ignore[attr-defined]


if __name__ == "__main__":
    prepare()
    importlib.import_module("tests.vllm.second_runner").main(Path(sys.argv[1]), Path(sys.argv[2]))
