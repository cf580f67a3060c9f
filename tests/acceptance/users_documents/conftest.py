"""`--rows FILE` writes the state of each row of the users' documents, which tests carry as the mark `row`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.users_documents.rows import Outcomes, write

OUTCOMES = pytest.StashKey[Outcomes]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rows", metavar="FILE", default=None, help="write the state of the users' documents' rows there")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[OUTCOMES] = Outcomes()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note the outcome of each phase for every row that the test carries."""
    report: pytest.TestReport = yield  # type: ignore[misc]  # hook wrappers are typed as iterators
    if report.when == "call" or not report.passed:
        reason = str(report.longrepr[2]).removeprefix("Skipped: ") if isinstance(report.longrepr, tuple) else ""
        for mark in item.iter_markers("row"):
            item.config.stash[OUTCOMES].note(mark, report.outcome, reason)
    return report  # type: ignore[return-value]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page, where one is asked for, by the one process that has seen all tests."""
    path = session.config.getoption("--rows", default=None)
    if path is not None and not hasattr(session.config, "workerinput"):
        write(Path(path), session.config.stash[OUTCOMES].page())
