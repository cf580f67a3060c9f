"""`generate(..., User)` gives a `Result[User]`, for type checkers too."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = "tests/typed_results.py"


def _check(command: list[str]) -> None:
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.slow
def test_mypy_knows_the_type_of_a_result() -> None:
    pytest.importorskip("mypy")
    _check([sys.executable, "-m", "mypy", FILE])


@pytest.mark.slow
def test_pyright_knows_the_type_of_a_result() -> None:
    if (pyright := shutil.which("pyright")) is None:
        pytest.skip("pyright is not installed")
    _check([pyright, "--pythonpath", sys.executable, FILE])
