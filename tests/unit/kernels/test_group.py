"""Compiling kernels once for an installation, in a process of its own, wherever they can be kept."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from espalier.errors import Cancelled
from espalier.kernels import folder, group
from espalier.kernels.folder import COMPLETE, folder_of, is_compiled, name_of
from espalier.kernels.group import KernelGroup
from espalier.time_limit import time_limit

SOURCE = """
from espalier.kernels.compiled import FLOAT, INT, kernel

@kernel((INT,), (FLOAT,))
def twice(value):
    return _times(value, 2)

@kernel()
def _times(value, factor):
    return value * factor
"""
LIMIT = 120.0
"""Seconds within which a process compiles two kernels, however busy the machine is."""


@pytest.fixture
def bases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders in which kernels may be kept: one that cannot be made, as in an installation that is read-only, and
    one of the user's."""
    (tmp_path / "file").touch()
    chosen = [tmp_path / "file" / "kernels", tmp_path / "cache" / "kernels"]
    monkeypatch.setattr(folder, "bases", lambda: iter(chosen))
    monkeypatch.setenv("ESPALIER_CACHE_DIR", str(tmp_path / "cache"))
    return chosen


@pytest.fixture
def module(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of two small kernels, which the processes that are started can import too."""
    name = re.sub(r"\W", "_", f"kernels_of_{request.node.name}")
    (tmp_path / f"{name}.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    return name


def no_process(*_: Any, **__: Any) -> NoReturn:
    raise OSError("Resource temporarily unavailable")


def group_of(module: str) -> KernelGroup:
    return KernelGroup("two", [module], seconds=1)


@pytest.mark.usefixtures("bases")
def test_kernels_are_compiled_once_for_an_installation(
    module: str, bases: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read-only installation compiled again in each process."""
    first = group_of(module)
    assert not first.is_compiled
    first.load()
    assert first.is_compiled
    assert first.is_loaded
    assert folder_of(module) == bases[1] / name_of(module)
    monkeypatch.setattr(subprocess, "Popen", no_process)
    again = group_of(module)
    again.load()
    assert again.is_ready()


@pytest.mark.slow
@pytest.mark.usefixtures("bases")
def test_a_process_that_finds_them_compiled_compiles_nothing(module: str) -> None:
    group_of(module).load()
    program = f"""
import {module}
from espalier.kernels.compiled import load_kernels
from numba.core import event
with event.install_recorder("numba:compile") as compiled:
    load_kernels({module!r})
    assert {module}.twice(3) == 6
    assert {module}.twice(1.5) == 3.0
print(len(compiled.buffer), dict({module}.twice.stats.cache_misses))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert (run.stdout, run.stderr) == ("0 {}\n", "")


def damage(path: Path, harm: str) -> None:
    content = path.read_bytes()
    if harm == "cut":
        path.write_bytes(content[: len(content) // 2])
    elif harm == "empty":
        path.write_bytes(b"")
    elif harm == "changed":
        path.write_bytes(content[:-40] + bytes(byte ^ 0x55 for byte in content[-40:]))
    else:
        path.unlink()
        path.mkdir()  # reading it is an error that is not a missing file


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["cut", "empty", "changed", "unreadable"])
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
def test_damaged_kernels_are_compiled_again(
    suffix: str, harm: str, tmp_path: Path, bases: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """numba ended with an error of pickle or LLVM, and would have run changed machine code."""
    name = f"kernels_{harm}_{suffix[1:]}"
    (tmp_path / f"{name}.py").write_text(SOURCE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    group_of(name).load()
    for path in (bases[1] / name_of(name)).glob(f"*{suffix}"):
        damage(path, harm)
    program = f"""
import {name}
from espalier.kernels.compiled import load_kernels
load_kernels({name!r})
print({name}.twice(3), {name}.twice(1.5))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=LIMIT)
    assert run.stdout == "6 3.0\n", run.stderr
    assert "a compiled kernel" in run.stderr
    if harm != "unreadable":  # a folder stands where the file would be
        again = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert (again.stdout, again.stderr) == ("6 3.0\n", ""), "what was compiled again is kept"


@pytest.mark.usefixtures("bases")
def test_a_changed_source_is_compiled_again(module: str, tmp_path: Path) -> None:
    before = name_of(module)
    (tmp_path / f"{module}.py").write_text(SOURCE.replace(", 2", ", 3"), encoding="utf-8")
    name_of.cache_clear()
    assert name_of(module) != before
    assert not is_compiled(module)


def test_kernels_run_where_nothing_can_be_kept(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """numba refused to declare a kernel there: no locator available."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(folder, "bases", lambda: iter([tmp_path / "file" / "kernels"]))
    assert folder_of(module) is None
    kernels = group_of(module)
    kernels.load()
    assert sys.modules[module].twice(4) == 8  # type: ignore[attr-defined]
    assert not kernels.is_compiled


@pytest.mark.usefixtures("bases")
def test_kernels_are_compiled_here_where_no_process_can_be_started(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", no_process)
    kernels = group_of(module)
    kernels.load()
    assert sys.modules[module].twice(4) == 8  # type: ignore[attr-defined]
    assert kernels.is_compiled


@pytest.mark.usefixtures("bases")
def test_kernels_are_compiled_here_where_the_process_fails(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    kernels = group_of(module)
    kernels.load()
    assert kernels.is_compiled


@pytest.mark.usefixtures("bases")
def test_whoever_waits_longer_than_a_second_is_told(
    module: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The first answer after an installation took 26 s, and nothing was said."""
    monkeypatch.setattr(group, "TOLD_SECONDS", 0.0)
    with caplog.at_level(logging.WARNING):
        group_of(module).load()
        group_of(module).load()  # it is compiled: nothing is said
    assert caplog.messages == ["compiling 2 kernels (two), once per installation: about 1 s"]


@pytest.mark.usefixtures("bases")
def test_whoever_leaves_does_not_wait(module: str) -> None:
    kernels = group_of(module)
    with pytest.raises(Cancelled), time_limit(None, cancelled=lambda: True):
        kernels.load()
    kernels.load()
    assert kernels.is_loaded


@pytest.mark.slow
@pytest.mark.usefixtures("bases")
def test_kernels_that_can_wait_are_ready_later(module: str) -> None:
    kernels = group_of(module)
    assert not kernels.is_ready()
    assert not kernels.is_loaded
    (process,) = kernels._processes
    assert process.wait(LIMIT) == 0
    assert kernels.is_ready()


@pytest.mark.slow
@pytest.mark.usefixtures("bases")
@pytest.mark.parametrize(("seconds", "count"), [(4, 1), (12, 2)])
def test_kernels_that_take_long_are_shared_out_among_the_cores(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, count: int
) -> None:
    """One process compiled all kernels of a safety filter, while the other core had nothing to do."""
    monkeypatch.setattr(group.os, "cpu_count", lambda: 8)
    (tmp_path / f"{module}_too.py").write_text(SOURCE, encoding="utf-8")
    kernels = KernelGroup("four", [module, f"{module}_too"], seconds=seconds)
    kernels.load()
    assert len(kernels._processes) == count
    assert [process.wait(LIMIT) for process in kernels._processes] == [0] * count
    assert kernels.is_compiled


def test_two_processes_compile_a_module_once(module: str, bases: list[Path]) -> None:
    command = [sys.executable, "-m", "espalier.kernels.worker", module, "--"]
    programs = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(program.communicate(timeout=LIMIT)[1], program.returncode) for program in programs] == [("", 0)] * 2
    files = sorted(path.name for path in (bases[1] / name_of(module)).iterdir())
    assert COMPLETE in files
    assert sum(name.endswith(".nbc") for name in files) == 2
