"""Progress is on stderr, and data stays where it belongs meanwhile."""

import io
import sys

import pytest

from espalier.cli import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_beside_a_bar(monkeypatch: pytest.MonkeyPatch, stdout: io.StringIO) -> tuple[str, str]:
    stderr = Terminal()
    monkeypatch.setattr(sys, "stdout", stdout)
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress.counting("work") as tell:
        tell(1, 2)
        sys.stdout.write("data\n")
    return stdout.getvalue(), stderr.getvalue()


def test_data_of_a_pipe_stays_on_stdout_while_a_bar_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = shown_beside_a_bar(monkeypatch, io.StringIO())
    assert out == "data\n"
    assert "work" in err
    assert "data" not in err


def test_on_one_terminal_data_is_written_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = shown_beside_a_bar(monkeypatch, Terminal())
    assert out == ""
    assert "data\n" in err.replace("\r", "")
