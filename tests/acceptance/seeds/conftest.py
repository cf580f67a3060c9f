"""The mark of a row of a user's document: `row("rejection-tracer", "1.2", "what the row says")`."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "row(document, number, text): a row of a user's document")
