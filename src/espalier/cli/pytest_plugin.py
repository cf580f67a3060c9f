"""`pytest --espalier cases.yaml`: each case of the file is a test, on one model that is loaded for the first of them.

Without the flag it does nothing, and pytest loads nothing of Espalier but this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from espalier.api import LoadedEngine
    from espalier.harness.cases.case import TestCase
    from espalier.harness.results import CaseResult

ENGINE = pytest.StashKey[Any]()


class CaseFailure(Exception):
    """A case did not pass. result: all that is known of it."""

    def __init__(self, result: CaseResult) -> None:
        super().__init__(result.case.name)
        self.result = result


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("espalier")
    group.addoption("--espalier", action="append", default=[], metavar="FILE", help="test cases of `espalier test`")
    group.addoption("--espalier-model", default=None, metavar="MODEL", help="the model that they run on")
    group.addoption("--espalier-preset", default=None, metavar="NAME", help="a preset for every case")


def pytest_configure(config: pytest.Config) -> None:
    for file in config.getoption("espalier"):
        if not Path(file).is_file():
            raise pytest.UsageError(f"--espalier {file}: there is no such file")
        path = str(Path(file).resolve())
        if path not in config.args:
            config.args.append(path)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    wanted = parent.config.getoption("espalier")
    if wanted and file_path.resolve() in [Path(file).resolve() for file in wanted]:
        return CasesFile.from_parent(parent, path=file_path)
    return None


def pytest_unconfigure(config: pytest.Config) -> None:
    engine = config.stash.get(ENGINE, None)
    if engine is not None:
        engine.close()


class CasesFile(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[pytest.Item]:
        from espalier.errors import EspalierError  # noqa: PLC0415  # nothing is loaded for a run without cases
        from espalier.harness.cases.read import read_cases  # noqa: PLC0415

        try:
            cases = read_cases(self.path)
        except EspalierError as error:
            raise self.CollectError(str(error)) from error
        for case in cases:
            yield CaseItem.from_parent(self, name=case.name, case=case)


class CaseItem(pytest.Item):
    """One case."""

    def __init__(self, *, case: TestCase, **more: Any) -> None:
        super().__init__(**more)
        self.case = case

    def runtest(self) -> None:
        from espalier.harness.run import Harness  # noqa: PLC0415

        harness = Harness(_engine(self.config), preset=self.config.getoption("espalier_preset"))
        (result,) = harness.add(self.case).run().results
        self.add_report_section("call", "espalier", "\n".join(result.outputs))
        if not result.passed:
            raise CaseFailure(result)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if not isinstance(excinfo.value, CaseFailure):
            return super().repr_failure(excinfo, style)

        return str(excinfo.value.result)

    def reportinfo(self) -> tuple[Path, None, str]:
        return self.path, None, f"case {self.name}"


def _engine(config: pytest.Config) -> LoadedEngine:
    """The model of the run, loaded once."""
    from espalier.api import load  # noqa: PLC0415

    if config.stash.get(ENGINE, None) is None:
        config.stash[ENGINE] = load(config.getoption("espalier_model"))
    engine: LoadedEngine = config.stash[ENGINE]
    return engine
