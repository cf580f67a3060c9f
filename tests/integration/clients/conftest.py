"""`--clients-page FILE` writes what the conformance run has found."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--clients-page", metavar="FILE", default=None, help="write which client ran which checks there")
