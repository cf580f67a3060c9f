"""Data on stdout, all else on stderr: on one terminal no message begins inside a line, and redirected data is exact."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

import espalier
from espalier.chat.reading.deltas import ContentDelta, ReasoningDelta
from espalier.cli import output
from espalier.cli.flags.tools import show_delta
from espalier.cli.main import main_code
from espalier.errors import GenerationError
from tests.traces import sample_trace

FAKE = ["-m", "fake", "--seed", "1", "--max-tokens", "5"]


class Stream(io.StringIO):
    """A stream that may be a terminal, and may be the same screen as another."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(output, "LINES", output.OpenLines())
    monkeypatch.setenv("NO_COLOR", "1")


def attach(monkeypatch, *, out: Stream, err: Stream) -> None:
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)


def write_all() -> None:
    """Streamed text, a message, more text, reasoning, content, an error."""
    output.piece("abc")
    output.note("a note")
    output.piece("def")
    output.end_line()
    show_delta(ReasoningDelta("hm"))
    show_delta(ContentDelta("so"))
    output.fail(GenerationError("broken", hint="none"))


def test_on_one_screen_every_message_begins_a_line(monkeypatch):
    screen = Stream(is_terminal=True)
    attach(monkeypatch, out=screen, err=screen)
    write_all()
    assert screen.getvalue() == "abc\na note\ndef\nhm\nso\nerror: broken\nhint: none\n"


@pytest.mark.parametrize("err_is_terminal", [False, True])
def test_redirected_data_is_exact_and_messages_are_lines(monkeypatch, err_is_terminal):
    out, err = Stream(is_terminal=False), Stream(is_terminal=err_is_terminal)
    attach(monkeypatch, out=out, err=err)
    write_all()
    assert out.getvalue() == "abcdef\nso"
    assert err.getvalue() == "a note\nhm\nerror: broken\nhint: none\n"


def test_data_on_a_terminal_is_exact_where_messages_are_redirected(monkeypatch):
    out, err = Stream(is_terminal=True), Stream(is_terminal=False)
    attach(monkeypatch, out=out, err=err)
    write_all()
    assert out.getvalue() == "abcdef\nso"


def run_in_terminal(folder: Path, *arguments: str, stdin: bytes = b"") -> list[str]:
    """The lines that a terminal is sent by the command."""
    main, side = pty.openpty()
    env = {
        **os.environ,
        "PYTHONPATH": str(Path(espalier.__file__).parent.parent),
        "NO_COLOR": "1",
        "COLUMNS": "80",
        "ESPALIER_CACHE_DIR": "off",
        "TERM": "dumb",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "espalier", *arguments],
        cwd=folder,
        env=env,
        stdin=subprocess.PIPE,
        stdout=side,
        stderr=side,
    ) as done:
        os.close(side)
        done.stdin.write(stdin)
        done.stdin.close()
        read = b""
        while True:
            try:
                piece = os.read(main, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            read += piece
    os.close(main)
    return read.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "stdin", "messages"),
    [
        (["generate", *FAKE, "--rejection-log", "x.log", "hi"], b"", ["rejection log: x.log", "stopped at the limit"]),
        (["generate", *FAKE, "--trace", "x.html", "hi"], b"", ["stopped at the limit", "trace: x.html"]),
        (["explain", *FAKE, "--regex", "[a-z]+", "--trace", "x.html", "hi"], b"", ["trace: x.html"]),
        (["chat", *FAKE], b"hi\n/free\n", ["/help for commands", "stopped at the limit", "constraint: none"]),
    ],
)
def test_in_a_terminal_each_message_is_a_line(tmp_path, arguments, stdin, messages):
    lines = run_in_terminal(tmp_path, *arguments, stdin=stdin)
    for message in messages:
        assert any(line.startswith(message) for line in lines), (message, lines)


def test_a_trace_with_half_a_character_is_exported_and_not_a_traceback(tmp_path, monkeypatch):
    data = sample_trace(4).to_json()
    data["text"] = data["metadata"]["model"] = data["steps"][0]["rule"] = "é\ud800"
    path = tmp_path / "x.json"
    path.write_text(json.dumps(data), encoding="ascii")
    for form in ("csv", "json", "jsonl", "svg"):
        written = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8", write_through=True))
        assert main_code(["trace", "export", str(path), "--format", form]) == 0
        if form != "svg":
            assert "é\\ud800" in written.getvalue().decode()
