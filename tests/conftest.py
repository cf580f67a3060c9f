"""Settings of hypothesis, and the engines of the demo model that many test modules share.

Hypothesis has no deadlines (a busy machine is no fault), runs the share of examples that `tests/examples.py` says, and
draws the same examples each time in CI.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import Phase, settings

import espalier
from espalier.wiring import demo_model
from tests.examples import examples, rows_left_out
from tests.warm_shell import warm_shell

settings.register_profile("espalier", deadline=None, max_examples=examples(100))
settings.register_profile("ci", parent=settings.get_profile("espalier"), derandomize=True)
# Where it only matters whether a test fails, for `scripts/mutants`: making a failing example small takes minutes.
settings.register_profile("mutants", parent=settings.get_profile("ci"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("ci" if os.environ.get("CI") else "espalier")

# No test needs a network. Online, a model that is not there is asked for again and again, for 20 s and more. Read when
# the hub's library is imported, which nothing above does, and by every process that a test starts.
os.environ.setdefault("HF_HUB_OFFLINE", "1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = rows_left_out(items)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """What collecting has made, a million objects, stays until the end: no garbage collection looks at it again. The
    third threshold leaves collections of all objects to the ends of modules, where few objects are left to look at."""
    gc.set_threshold(*gc.get_threshold()[:2], 1000)
    _freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """What a module leaves, imports and caches, stays as well: a collection that looked at all of it took 9 s in the
    middle of a test, and limits of CPU time count that."""
    yield
    if nextitem is None or nextitem.path != item.path:
        _freeze()


def _freeze() -> None:
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def own_data_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The database that is used where none is named: never that of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data-home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def certificates_read_once() -> Iterator[None]:
    """Each call of httpx2, and each client, reads the certificates of this machine: 25 ms, for a plain http address
    too."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("httpx", "httpx2"):
            if importlib.util.find_spec(name) is not None:
                where = f"{name}._transports.default.create_ssl_context"
                patch.setattr(where, cache(importlib.import_module(name).create_ssl_context))
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_clients() -> Iterator[None]:
    """A client whose test says no time gives a server up after a minute: five seconds are short on a busy machine."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("httpx", "httpx2"):
            if importlib.util.find_spec(name) is not None:
                usual = importlib.import_module(f"{name}._config").DEFAULT_TIMEOUT_CONFIG
                for part in ("connect", "read", "write", "pool"):
                    patch.setattr(usual, part, 60.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def patient_replies() -> Iterator[None]:
    """A server of this process replies once the trace is stored, also where a row takes longer than a second: on a busy
    machine it may."""
    with pytest.MonkeyPatch.context() as patch:
        generation, writer = "espalier.server.answering.generation", "espalier.store.writer"
        for name, seconds in ((generation, "SLOW_SECONDS"), (generation, "ASKED_SECONDS"), (writer, "SLOW_SECONDS")):
            if name in sys.modules:  # which the test modules have imported: it needs an extra
                patch.setattr(f"{name}.{seconds}", 60.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def quick_batches() -> Iterator[None]:
    """A server of this process looks at its batches so often that no test waits for the next look."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("espalier.jobs.worker.IDLE_SECONDS", 0.05)
        yield


@pytest.fixture(scope="session")
def demo_engine() -> Iterator[espalier.LoadedEngine]:
    """The demo model under transformers with every option at its default. Tests leave it as they find it."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    with espalier.load(str(demo_model())) as engine:
        yield engine


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """The folder of `espalier` and `python` that start fast."""
    with tempfile.TemporaryDirectory() as folder, warm_shell(Path(folder)) as found:
        yield found


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Matrices as small as the demo model's only lose by threads, and on a busy machine they lose a hundredfold."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
