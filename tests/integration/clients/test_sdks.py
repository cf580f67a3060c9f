"""The SDKs that people use, unchanged, against the demo model on both engines.

Each runs in a process of its own, in the environment that scripts/setup_clients.sh makes; without it the tests skip by
name. The process asks both servers.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

import espalier
from tests.clients_page import AGAIN, ENGINES, ENVIRONMENTS, PAGE, PROGRAMS, ROOT, page
from tests.server_app import make_app, served, settings

SECONDS = 300
pytestmark = pytest.mark.slow


def installed(program: str) -> Path:
    """The folder of a program's SDK. Skips the test where it is not installed."""
    name = ENVIRONMENTS.get(program, "main")
    script = ROOT / "scripts" / "setup_clients.sh"
    folder = Path(subprocess.run([script, "--where", name], check=True, capture_output=True, text=True).stdout.strip())
    if not (folder / "complete").is_file():
        pytest.skip(f"the SDKs of {program} are not installed: scripts/setup_clients.sh {name}")
    return folder


@pytest.fixture(scope="module")
def urls(demo_engine: espalier.LoadedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server for each engine that is here."""
    with contextlib.ExitStack() as stack:
        engines = {"transformers": demo_engine}
        if importlib.util.find_spec("llama_cpp") is not None:
            # With the default f16 cache logits hang on the rest of the batch, and programs compare answers.
            exact = {"kv_type": "f32", "flash_attention": "off"}
            loaded = espalier.load(str(ROOT / "models" / "demo" / "demo.gguf"), **exact)
            engines["llamacpp"] = stack.enter_context(loaded)
        found = {}
        for name, engine in engines.items():
            folder = tmp_path_factory.mktemp("clients")
            config = settings(
                model_alias="demo",
                batch_jobs="true",
                database_url=f"sqlite:///{folder}/e.db",
                batch_job_temp_dir=str(folder / "files"),
            )
            found[name] = stack.enter_context(served(make_app(engine=engine, config=config)))
        yield found


@dataclass
class Ran:
    """A program that has run. checks: by server, what it told of each."""

    checks: dict[str, list[dict[str, str]]]
    code: int = 0
    said: str = ""

    def add(self, done: subprocess.CompletedProcess[str], url: str) -> None:
        """url: the first server that it asked."""
        for line in done.stdout.splitlines():
            if line.startswith('{"base"'):
                url = json.loads(line)["base"]
            elif line.startswith('{"check"'):
                self.checks.setdefault(url, []).append(json.loads(line))
        self.code, self.said = self.code or done.returncode, self.said + done.stderr[-3000:]


@pytest.fixture(scope="module")
def ran() -> dict[str, Ran]:
    """By program: each runs once for both engines."""
    return {}


@pytest.mark.parametrize("program", sorted(path.name for path in PROGRAMS.glob("with_*")))
@pytest.mark.parametrize("engine", list(ENGINES))
def test_the_sdk_works_unchanged(
    urls: dict[str, str], ran: dict[str, Ran], engine: str, program: str, tmp_path: Path
) -> None:
    if engine not in urls:
        pytest.skip("llama-cpp-python is not installed")
    if program not in ran:
        ran[program] = run(program, list(urls.values()), tmp_path)
    found = ran[program]
    assert urls[engine] in found.checks, found.said
    assert len({len(checks) for checks in found.checks.values()}) == 1, found.said
    faults = {line["check"]: line["fault"] for line in found.checks[urls[engine]] if line["fault"]}
    assert not faults, "\n".join(f"{name}:\n{fault}" for name, fault in faults.items())
    assert found.code == 0, found.said


def test_the_page_says_what_ran(request: pytest.FixtureRequest, urls: dict[str, str], ran: dict[str, Ran]) -> None:
    """After the tests above. `--clients-page FILE` writes the page instead of comparing it."""
    results = {
        program: {
            engine: [line["check"] for line in program_run.checks.get(url, []) if not line["fault"]]
            for engine, url in urls.items()
        }
        for program, program_run in ran.items()
    }
    path = request.config.getoption("--clients-page", default=None)
    if path is not None:
        before = Path(path).read_text(encoding="utf-8") if Path(path).is_file() else ""
        Path(path).write_text(page(results, before), encoding="utf-8")
        return
    missing = {path.name for path in PROGRAMS.glob("with_*")} - ran.keys()
    if missing or len(urls) < len(ENGINES):
        pytest.skip(f"not run: {', '.join(sorted(missing)) or 'an engine'}")
    assert PAGE.read_text(encoding="utf-8") == page(results), AGAIN


def run(program: str, urls: list[str], cwd: Path) -> Ran:
    """The program against each server: a Python program in one process for all of them."""
    folder = installed(program)
    command = [str(folder / "venv" / "bin" / "python"), str(PROGRAMS / "each_server.py"), str(PROGRAMS / program)]
    runs = [" ".join(urls)]
    if program.endswith(".mjs"):
        node = shutil.which("node")
        if node is None or not (folder / "node_modules").is_dir():
            pytest.skip("node or npm's packages are not here")
        here = folder / program  # node looks for packages beside the file
        shutil.copyfile(PROGRAMS / program, here)
        command, runs = [node, str(here)], urls
    found = Ran({})
    for some in runs:
        environment = {
            **os.environ,
            "BASE_URLS": some,
            "BASE_URL": some,
            "MODEL": "demo",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "PYTHONPATH": str(PROGRAMS),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "HF_HUB_OFFLINE": "0",  # it refuses servers of this machine too
        }
        found.add(
            subprocess.run(
                command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=2 * SECONDS, check=False
            ),
            some,
        )
    return found
