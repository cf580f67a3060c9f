"""What a newcomer met on the command line in the first hour: one declaration of constraints, early errors, hints."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from espalier.cli import chat, explain, generate, testing
from espalier.cli.batch import run as batch_run
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.safety import SafetyFlags
from espalier.cli.flags.words import WordFlags
from espalier.jobs.formats.template import with_shared

Run = Callable[..., tuple[int, str, str]]
COMMANDS: dict[str, Callable[..., None]] = {
    "generate": generate.command,
    "explain": explain.command,
    "chat": chat.command,
    "test": testing.command,
    "batch run": batch_run.command,
}


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """No model may be loaded."""

    def load(*_: Any, **__: Any) -> None:
        raise AssertionError("a model was loaded")

    for module in (generate, explain, chat, testing, batch_run):
        monkeypatch.setattr(module, "load", load)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_the_same_flags_of_constraints(name: str) -> None:
    flags = {*inspect.signature(COMMANDS[name]).parameters}
    for group, prefix in ((ConstraintFlags, "constraint"), (SafetyFlags, "safety"), (WordFlags, "vocab")):
        assert {f"{prefix}_{field}" for field in typing.get_type_hints(group)} <= flags


UNDEFINED = "rule 'item' is used and never defined"
CONTRADICTION = "no text satisfies --schema and --regex at once"
EARLY: list[tuple[tuple[str, ...], str]] = [
    (("--grammar", "root ::= item"), UNDEFINED),
    (("--schema", '{"type": "object"}', "--regex", "[0-9]+"), CONTRADICTION),
    (("--choice", "yes", "--regex", "[0-9]+"), "no text satisfies --regex and --choice at once"),
    (("--vocab-lang", "xx", "--vocab-n-words", "100"), "there is no word list for 'xx'"),
    (("--vocab-lang", "es", "--vocab-n-words", "99999999"), "is more than the list es has"),
]
BEFORE: dict[str, tuple[str, ...]] = {
    "generate": ("generate", "hi"),
    "explain": ("explain", "hi"),
    "chat": ("chat",),
    "test": ("test",),
    "batch run": ("batch", "run", "-i", "t.csv", "-o", "o.csv", "--template", "{text}"),
}


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize("name", BEFORE)
@pytest.mark.parametrize(("flags", "message"), EARLY)
def test_what_needs_no_model_is_checked_before_it_is_loaded(
    run: Run, name: str, flags: tuple[str, ...], message: str
) -> None:
    if name == "batch run":
        pytest.importorskip("sqlalchemy")
        Path("t.csv").write_text("text\nhi\n")
    code, _, err = run(*BEFORE[name], *flags)
    assert (code, message in err.replace("\n", " ")) == (2, True), err


def test_a_constraint_of_a_file_is_not_called_a_flag(run: Run) -> None:
    both = [{"kind": "regex", "pattern": "[0-9]+"}, {"kind": "choice", "options": ["a"]}]
    Path("c.json").write_text(json.dumps({"kind": "all_of", "members": both}))
    code, _, err = run("generate", "hi", "-m", "fake", "--constraint", "c.json")
    assert code == 2
    assert "all_of[0].regex and all_of[1].choice" in err


def test_a_body_with_a_constraint_of_its_own_gets_no_other_one() -> None:
    shared = {"seed": 1, "espalier": {"constraint": {"kind": "regex", "pattern": "a"}}}
    bodies: list[dict[str, Any]] = [{}, {"regex": "b"}, {"espalier": {"constraint": {}}}, {"espalier": {"trace": True}}]
    lines = [line["body"] for line in with_shared([{"body": body} for body in bodies], shared)]
    assert all(line["seed"] == 1 for line in lines)
    assert [line["espalier"] for line in lines] == [
        shared["espalier"],
        {},
        {"constraint": {}},
        {**shared["espalier"], "trace": True},
    ]  # type: ignore[dict-item]


def test_the_folder_of_a_trace_is_made(run: Run) -> None:
    code, _, err = run("generate", "hi", "-m", "fake", "--regex", "a", "--trace", "out/deep/x.html")
    assert code == 0, err
    assert Path("out/deep/x.html").is_file()


def test_several_words_hint_at_quotes(run: Run) -> None:
    code, _, err = run("generate", "Generate", "user", "info")
    assert code == 2
    assert 'in quotes, such as "Generate user info"' in err.replace("\n", " ")


@pytest.mark.parametrize("command", ["show", "html", "diagnose", "export"])
def test_a_missing_file_is_not_called_a_rejection_log(run: Run, command: str) -> None:
    code, _, err = run("trace", command, "nope.json")
    assert code == 2
    assert "cannot read the file nope.json" in err
    assert "rejection log" not in err


def test_a_page_that_exists_names_the_way_on(run: Run) -> None:
    assert run("generate", "hi", "-m", "fake", "--regex", "a", "--trace", "t.json")[0] == 0
    assert run("trace", "html", "t.json")[0] == 0
    code, _, err = run("trace", "html", "t.json")
    assert code == 2
    assert "--force overwrites it; or name another OUT" in err
    assert run("trace", "html", "t.json", "other.html")[0] == 0


def test_help_of_chat_fits_80_columns() -> None:
    assert max(map(len, chat.HELP.splitlines())) <= 80


def test_no_flag_of_a_batch_stands_under_traces_of_a_server(run: Run) -> None:
    _, out, _ = run("batch", "run", "--help")
    assert "Traces of a server" not in out
    assert "--input" in out.split("Prompt:")[0]
