"""`run`: the command as a user calls it, in a folder of its own."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from espalier.cli.main import main_code

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run `espalier` in an empty folder, 80 columns wide, without colours and caches: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    for name, value in {"ESPALIER_CACHE_DIR": "off", "NO_COLOR": "1", "COLUMNS": "80"}.items():
        monkeypatch.setenv(name, value)

    def call(*arguments: Any, stdin: str | bytes = "") -> tuple[int, str, str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        code = main_code([*map(str, arguments)])
        out, err = capfd.readouterr()
        return code, out, err

    return call
