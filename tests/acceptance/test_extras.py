"""Each extra alone: every command does its work, or names in one line the extra that it lacks.

The wheel is built and unpacked, and the packages of all other extras are hidden from the process. Nothing is installed;
`scripts/try_extras.py` runs the same commands in fresh environments. With no extra, each command is a process that
starts anew; with each extra, a fork of one that has imported what that extra shows (`tests/warm_shell.py`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from espalier.distribution import EXTRAS
from tests.acceptance.test_wheel import run as run_checked
from tests.warm_shell import warm_shell

ROOT = Path(__file__).resolve().parents[2]
HIDING = '''
from importlib.machinery import PathFinder

find = PathFinder.find_spec


def find_shown(name, path=None, target=None):
    """Hide the modules, so that importing them fails as for one that is not installed."""
    if any(f"{{name}}.".startswith(f"{{hidden}}.") for hidden in {hidden!r}):
        return None
    return find(name, path, target)


PathFinder.find_spec = find_shown
'''
MAIN = "from espalier.cli.main import run; run()"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("try_extras", ROOT / "scripts" / "try_extras.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


TRY = load_script()


def installed_with(extras: set[str]) -> set[str]:
    """The distributions that pip installs for the core and some extras, those that they require included."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [
        *project["dependencies"],
        *(line for name in extras & set(EXTRAS) for line in project["optional-dependencies"][name]),
    ]
    todo = [Requirement(line) for line in lines]
    seen: set[tuple[str, str]] = set()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        for part in {"", *requirement.extras}:
            if (name, part) in seen:
                continue
            seen.add((name, part))
            with suppress(PackageNotFoundError):
                inner = [Requirement(line) for line in distribution(name).requires or ()]
                todo += [one for one in inner if one.marker is None or one.marker.evaluate({"extra": part})]
    return {name for name, _ in seen}


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
    if request.param == "ray":
        pytest.skip("it needs a cluster")
    for module in EXTRAS[request.param].modules if request.param != "base" else ():
        pytest.importorskip(module, reason=f"{module} is not installed")
    return str(request.param)


@pytest.fixture(scope="module")
def place(extra: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where the commands run, beside what hides the packages of the other extras."""
    folder = tmp_path_factory.mktemp(extra)
    TRY.prepare(folder)
    shown = {extra, *TRY.INCLUDED.get(extra, ())}
    there = installed_with(shown)
    hidden = sorted(
        m for e in EXTRAS.values() for m, package in e.modules.items() if canonicalize_name(package) not in there
    )
    (folder / "hiding").mkdir()
    (folder / "hiding" / "sitecustomize.py").write_text(HIDING.format(hidden=hidden))
    return folder


@pytest.fixture(scope="module")
def environment(place: Path, unpacked: Path) -> dict[str, str]:
    paths = os.pathsep.join([str(place / "hiding"), str(unpacked)])
    kept = str(unpacked.parent / "cache")  # what one extra has computed of a vocabulary the next one finds
    return {**TRY.environment_for(place, os.environ), "PYTHONPATH": paths, "XDG_CACHE_HOME": kept}


@pytest.fixture(scope="module")
def commands(extra: str, place: Path, environment: dict[str, str]) -> Iterator[Path]:
    """The folder of programs that see the core and this extra."""
    if extra == "base":
        for name, arguments in (("python", '"$@"'), ("espalier", f"-c '{MAIN}' \"$@\"")):
            program = place / name
            program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}\n')
            program.chmod(0o755)
        yield place
    else:
        with tempfile.TemporaryDirectory() as folder, warm_shell(Path(folder), environment) as found:
            yield found


@pytest.mark.slow
@pytest.mark.wheel
@pytest.mark.parametrize("name", TRY.PROBES)
def test_an_extra_alone_does_its_work_or_names_what_is_missing(
    name: str, extra: str, place: Path, commands: Path, environment: dict[str, str]
) -> None:
    installed = {extra, *TRY.INCLUDED.get(extra, ())}
    done = TRY.run(TRY.PROBES[name], commands, place, environment)
    verdict = TRY.judge(TRY.PROBES[name], installed, done)
    assert not verdict.startswith("FAULT"), verdict


def test_every_command_is_probed_or_needs_no_extra() -> None:
    from espalier.cli.table import COMMANDS

    probed = {probe.arguments[0] for probe in TRY.PROBES.values()}
    assert set(COMMANDS) - probed <= {"eval", "reconstruct", "completion"}
