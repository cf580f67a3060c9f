"""Help in groups, quick, with examples that are true; faults in the words of the command line."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from espalier.cli import hints, progress
from espalier.cli.help import THEIRS, heading
from espalier.cli.main import app, main_code
from espalier.cli.table import COMMANDS, EXAMPLES
from espalier.errors import InputError
from espalier.wording import OptionText, Setting, constraint

ROOT = Path(__file__).parents[3]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("ESPALIER_CACHE_DIR", "off")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main_code(list(arguments))
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_the_help_lists_every_command_and_imports_none() -> None:
    code = "import sys; from espalier.cli.main import main_code; main_code(['--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown, _, modules = done.stdout.rstrip().rpartition("\n")
    assert all(f"  {name} " in shown for name in COMMANDS)
    assert max(map(len, shown.splitlines())) <= 80
    assert not {"numpy", "torch", "rich", "espalier.api", "importlib.metadata"} & set(modules.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there(name: str) -> None:
    module, _, attribute = COMMANDS[name].target.partition(":")
    assert hasattr(import_module(f"espalier.cli.{module}"), attribute)
    assert get_command(app).commands[name].name == name  # type: ignore[attr-defined]  # a group


def test_the_flags_of_generate_stand_in_groups_the_common_ones_first(run: Any) -> None:
    code, out, _ = run("generate", "--help")
    assert code == 0
    headings = [line for line in out.splitlines() if line.endswith(":") and not line.startswith(" ")]
    assert headings[:4] == ["Arguments:", "Options:", "Prompt:", "Constraints:"]
    assert headings[-1] == "Examples:"
    common = out.partition("Options:\n")[2].partition("\n\n")[0]
    names = [line.split()[0] for line in common.splitlines() if line.startswith("  -")]
    assert 10 <= len(names) <= 18
    assert "--schema" in names
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_every_example_of_the_help_is_understood(line: str) -> None:
    words = shlex.split(line.rpartition("| ")[2])[1:]
    command: Any = get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {"-h", "--help"}
    assert {word for word in words if word.startswith("-") and word != "-"} <= known
    assert all((ROOT / word).exists() for word in words if word.startswith(("examples/", "models/")))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["generate", "--temprature", "0", "hi"], "did you mean '--temperature'"),
        (["generate", "--max-new-tokens", "5", "hi"], "here it is --max-tokens"),
        (["generate", "--max_tokens", "5", "hi"], "did you mean '--max-tokens'"),
        (["generat"], "Did you mean 'generate'"),
        (["trace", "shw"], "Did you mean 'show'"),
        (["generate", "-m", "fake", "-o", "max_new_tokens", "5", "hi"], "is max_tokens here"),
        (["generate", "-m", "fake", "-o", "top_q", "5", "hi"], "did you mean 'top_p', 'top_k'"),
        (["generate", "-m", "fake", "--strategy", "beem", "hi"], "did you mean 'beam'"),
        (["generate", "-m", "fake", "--safety", "strikt", "hi"], "did you mean 'strict'"),
        (["generate", "-m", "fake", "--num-beams", "3", "hi"], "hint: --strategy beam\n"),
    ],
)
def test_a_fault_is_told_in_flags_with_the_nearest_names(run: Any, arguments: list[str], hint: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert hint in err


def test_what_others_call_a_flag_is_none_of_ours_and_leads_to_one() -> None:
    known = {name for one in get_command(app).commands["generate"].params for name in one.opts}  # type: ignore[attr-defined]
    assert not {*THEIRS} & known
    assert all(ours.split()[0] in known for ours in THEIRS.values() if ours.startswith("-"))


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        (OptionText(Setting("strategy", "beam")), "--strategy beam"),
        (OptionText(constraint("JsonSchema"), ", tools"), "--schema SCHEMA, tools"),
        (OptionText(Setting("schema_in_prompt", True)), "--schema-in-prompt"),
        (OptionText(Setting("min_keep", 3)), "-o min_keep 3"),
        ("such as a=b", "such as a=b"),
    ],
)
def test_settings_of_a_hint_become_flags(hint: str, said: str) -> None:
    error = InputError("x", hint=hint)
    hints.say_in_flags(error, {"--strategy", "--schema", "--schema-in-prompt", "-o"})
    assert error.hint == said


def test_headings_are_plain_where_no_terminal_reads_them() -> None:
    assert heading("Options") == "Options"


def test_nothing_moves_where_no_terminal_is(capfd: pytest.CaptureFixture[str]) -> None:
    with progress.working("loading", after=0):
        pass
    assert list(progress.first_shown(iter([1, 2]), "x")) == [1, 2]
    assert list(progress.first_shown(iter([]), "x")) == []
    with progress.counting("cases") as tell:
        tell(1, 2)
    with progress.stepping(1) as step:
        step("rows", 1)
    assert capfd.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_long_work_shows_a_spinner_on_a_terminal_and_takes_it_away(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    spinner = progress.Spinner("loading the model", 60.0)
    spinner.start()
    spinner._begin()  # what the timer calls
    spinner.stop()
    assert "loading the model" in screen.getvalue()
    assert "\x1b[2K" in screen.getvalue()
    quick = progress.Spinner("quick", 60.0)
    quick.start()
    quick.stop()
    quick._begin()  # the timer was late
    assert "quick" not in screen.getvalue()


def test_an_iterator_that_is_left_is_closed() -> None:
    closed = []

    def events() -> Any:
        try:
            yield 1
            yield 2
        finally:
            closed.append(True)

    shown = progress.first_shown(events(), "x")
    assert next(shown) == 1
    shown.close()  # type: ignore[attr-defined]  # a generator
    assert closed == [True]
