"""The SDKs that people use, unchanged, against the demo model on both engines.

Each runs in a process of its own, in the environment that scripts/setup_clients.sh makes; without it the tests skip by
name.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

import espalier
from tests.server_app import make_app, served, settings

ROOT = Path(__file__).parents[3]
PROGRAMS = ROOT / "tests" / "clients"
SECONDS = 300
pytestmark = pytest.mark.slow


def installed() -> Path:
    """The folder of the SDKs. Skips the test where they are not installed."""
    script = ROOT / "scripts" / "setup_clients.sh"
    folder = Path(subprocess.run([script, "--where"], check=True, capture_output=True, text=True).stdout.strip())
    if not (folder / "complete").is_file():
        pytest.skip("the SDKs are not installed: scripts/setup_clients.sh")
    return folder


@pytest.fixture(scope="module", params=["transformers", "llamacpp"])
def url(
    request: pytest.FixtureRequest, demo_engine: espalier.LoadedEngine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    installed()
    folder = tmp_path_factory.mktemp("clients")
    config = settings(
        model_alias="demo", step_seconds="5", batch_jobs="true", database_url=f"sqlite:///{folder}/e.db",
        batch_job_temp_dir=str(folder / "files"),
    )  # fmt: skip
    if request.param == "transformers":
        with served(make_app(engine=demo_engine, config=config)) as found:
            yield found
        return
    pytest.importorskip("llama_cpp")
    with (
        espalier.load(str(ROOT / "models" / "demo" / "demo.gguf")) as engine,
        served(make_app(engine=engine, config=config)) as found,
    ):
        yield found


@pytest.mark.parametrize("program", sorted(path.name for path in PROGRAMS.glob("with_*")))
def test_the_sdk_works_unchanged(url: str, program: str, tmp_path: Path) -> None:
    folder = installed()
    command = [str(folder / "venv" / "bin" / "python"), str(PROGRAMS / program)]
    if program.endswith(".mjs"):
        node = shutil.which("node")
        if node is None or not (folder / "node_modules").is_dir():
            pytest.skip("node or npm's packages are not here")
        here = folder / program  # node looks for packages beside the file
        shutil.copyfile(PROGRAMS / program, here)
        command = [node, str(here)]
    environment = {**os.environ, "BASE_URL": url, "MODEL": "demo", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
                   "PYTHONPATH": str(PROGRAMS), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}  # fmt: skip
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"check"')]
    assert lines, done.stderr[-3000:]
    faults = {line["check"]: line["fault"] for line in lines if line["fault"]}
    assert not faults, "\n".join(f"{name}:\n{fault}" for name, fault in faults.items())
    assert done.returncode == 0, done.stderr[-3000:]
