"""Each extra alone: every command does its work, or names in one line the extra that it lacks.

The wheel is built and unpacked, and the packages of all other extras are hidden from the process. Nothing is installed;
`scripts/try_extras.py` runs the same commands in fresh environments.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest

from espalier.distribution import EXTRAS
from tests.acceptance.test_wheel import run as run_checked

ROOT = Path(__file__).resolve().parents[2]
BLOCKER = '''
import sys

HIDDEN = frozenset({hidden!r})


class Blocker:
    """Hides modules as if they were not installed."""

    def find_spec(self, name, path=None, target=None):
        if any(f"{{name}}.".startswith(f"{{hidden}}.") for hidden in HIDDEN):
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        return None


sys.meta_path.insert(0, Blocker())
'''
SHARED = {"pydantic", "anyio"}
"""Modules of an extra that packages outside of it bring too."""
MAIN = "from espalier.cli.main import run; run()"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("try_extras", ROOT / "scripts" / "try_extras.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


TRY = load_script()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package as the wheel holds it."""
    pytest.importorskip("build", reason="build is not installed")
    pytest.importorskip("hatchling", reason="hatchling is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    run_checked(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    ZipFile(wheel).extractall(folder / "lib")
    return folder / "lib"


@pytest.fixture(scope="module", params=["base", *EXTRAS])
def extra(request: pytest.FixtureRequest) -> str:
    for module in EXTRAS[request.param].modules if request.param != "base" else ():
        pytest.importorskip(module, reason=f"{module} is not installed")
    return str(request.param)


@pytest.fixture(scope="module")
def place(extra: str, unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the commands run, with programs that see the core and this extra."""
    folder = tmp_path_factory.mktemp(extra)
    TRY.prepare(folder)
    shown = {extra, *TRY.INCLUDED.get(extra, ())}
    hidden = sorted({m for e in EXTRAS.values() if e.name not in shown for m in e.modules} - SHARED)
    (folder / "hiding").mkdir()
    (folder / "hiding" / "sitecustomize.py").write_text(BLOCKER.format(hidden=hidden))
    for name, arguments in (("python", '"$@"'), ("espalier", f"-c '{MAIN}' \"$@\"")):
        program = folder / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}\n')
        program.chmod(0o755)
    return folder


@pytest.mark.slow
@pytest.mark.wheel
@pytest.mark.parametrize("name", TRY.PROBES)
def test_an_extra_alone_does_its_work_or_names_what_is_missing(
    name: str, extra: str, place: Path, unpacked: Path
) -> None:
    if extra == "ray":
        pytest.skip("it needs a cluster")
    environment = TRY.environment_for(place, os.environ)
    environment["PYTHONPATH"] = os.pathsep.join([str(place / "hiding"), str(unpacked)])
    installed = {extra, *TRY.INCLUDED.get(extra, ())}
    done = TRY.run(TRY.PROBES[name], place, place, environment)
    verdict = TRY.judge(TRY.PROBES[name], installed, done)
    assert not verdict.startswith("FAULT"), verdict


def test_every_command_is_probed_or_needs_no_extra() -> None:
    from espalier.cli.table import COMMANDS

    probed = {probe.arguments[0] for probe in TRY.PROBES.values()}
    assert set(COMMANDS) - probed <= {"eval", "reconstruct", "completion"}
