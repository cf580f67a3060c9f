"""`espalier logs`: what is logged, without texts unless they are asked for, and every command over it."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from espalier.cli.flags import store as flags_store
from espalier.cli.flags.moments import read_since
from espalier.cli.main import main_code
from espalier.errors import InputError
from espalier.store.open import open_store
from espalier.wiring import App

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run a command in an empty folder with a database of its own: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "NO_COLOR": "1",
        "ESPALIER_CACHE_DIR": "off",
        "ESPALIER_CONFIG_DIR": str(tmp_path / "config"),
        "DATABASE_URL": f"sqlite:///{tmp_path}/a.db",
    }.items():
        monkeypatch.setenv(name, value)
    made: list[App] = []
    build = flags_store.build_app
    monkeypatch.setattr(flags_store, "build_app", lambda **given: made.append(build(**given)) or made[-1])

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main_code(list(arguments))
        while made:
            if (log := made.pop().log) is not None:
                log.close(60)  # as the end of the process does
        out, err = capfd.readouterr()
        return code, out, err

    return call


def rows(run: Run, *more: str) -> list[dict[str, Any]]:
    code, out, _ = run("logs", "list", "--json", *more)
    assert code == 0
    found: list[dict[str, Any]] = json.loads(out)
    return found


def generate(run: Run, prompt: str, *more: str) -> tuple[int, str, str]:
    return run("generate", "-m", "fake", "--max-tokens", "5", prompt, *more)


def test_nothing_is_logged_until_it_is_switched_on(run: Run) -> None:
    generate(run, "Secret one")
    code, out, err = run("logs", "list")
    assert (code, out) == (0, "")
    assert "nothing is logged yet" in err
    run("logs", "on")
    generate(run, "Secret two")
    run("logs", "off")
    generate(run, "Secret three")
    (row,) = rows(run)
    assert (row["model"], row["engine"], row["route"], row["content"]) == ("fake", "fake", "espalier generate", None)
    assert row["completion_tokens"] == 5
    assert "Secret" not in json.dumps(row)
    assert "logging is off\n1 generations, 0 of them with texts" in run("logs", "status")[1]


def test_no_text_is_in_the_database_unless_content_is_asked_for(run: Run, tmp_path: Path) -> None:
    run("logs", "on")
    generate(run, "zebra", "--regex", "[a-c]{3}")
    database = sqlite3.connect(tmp_path / "a.db")
    dump = "\n".join(map(repr, database.execute("SELECT * FROM generation_logs").fetchall()))
    database.close()
    assert "zebra" not in dump
    assert not rows(run, "-q", "zebra")
    run("logs", "on", "--content")
    generate(run, "zebra crossing", "--regex", "[a-c]{3}")
    (row,) = rows(run, "-q", '"zebra cross"*')
    assert row["content"]["prompt"] == "zebra crossing"
    assert row["request"]["constraint"] == {"kind": "regex", "pattern": "[a-c]{3}"}
    assert row["request"]["verdict"]["valid"] is True
    assert row["tax_nats"] > 0
    assert run("logs", "search", "zebra", "-r")[1] == row["content"]["text"] + "\n"


def test_a_list_fits_80_columns_and_says_no_escapes_of_a_terminal(run: Run) -> None:
    run("logs", "on", "--content")
    generate(run, "\x1b[31mred " + "long 東京 " * 40, "--schema", "name, age int")
    for command in (["logs", "list"], ["logs", "list", "-s"], ["logs", "show"]):
        code, out, _ = run(*command)
        assert code == 0
        assert "\x1b" not in out
        if "show" not in command:
            assert max(map(cell_len, out.splitlines())) <= 80
    assert "…" in json.dumps(rows(run, "-t"), ensure_ascii=False)


def test_show_takes_the_beginning_of_an_id_and_last(run: Run) -> None:
    run("logs", "on", "--content")
    generate(run, "first")
    generate(run, "second")
    newest, oldest = rows(run)
    assert "## Prompt\n\nsecond" in run("logs", "show")[1]
    assert "## Prompt\n\nfirst" in run("logs", "show", oldest["id"][:15])[1]
    assert json.loads(run("logs", "show", "last", "--json")[1])[0]["id"] == newest["id"]
    for wrong, why in (("gen_", "several generations"), ("gen_zzz", "no generation"), ("%", "no generation")):
        code, _, err = run("logs", "show", wrong)
        assert code == 2
        assert why in err


def test_filters_and_counts(run: Run) -> None:
    run("logs", "on")
    for _ in range(3):
        generate(run, "x")
    assert len(rows(run, "-n", "2")) == 2
    assert len(rows(run, "-n", "0")) == 3
    assert rows(run, "-m", "other") == []
    assert len(rows(run, "--since", "1h")) == 3
    assert rows(run, "--since", "2100-01-01") == []
    assert run("logs", "list", "--since", "yesterday")[0] == 2
    assert run("logs", "search", "...")[0] == 2
    with pytest.raises(InputError):
        read_since("1y", time.time())


def test_prune_says_first_and_deletes_then(run: Run) -> None:
    run("logs", "on")
    for _ in range(3):
        generate(run, "x")
    assert run("logs", "prune")[0] == 2
    assert run("logs", "prune", "--keep", "1", "--dry-run")[2] == "2 generations would be deleted\n"
    assert len(rows(run)) == 3
    assert run("logs", "prune", "--keep", "1")[2] == "2 generations deleted\n"
    assert run("logs", "prune", "--keep-days", "1")[2] == "0 generations deleted\n"
    assert run("logs", "prune", "--keep-days", "0")[2] == "1 generations deleted\n"


def test_a_backup_is_a_database_and_replaces_nothing(run: Run, tmp_path: Path) -> None:
    run("logs", "on")
    generate(run, "x")
    assert run("logs", "backup", "copy.db")[0] == 0
    store = open_store(f"sqlite:///{tmp_path}/copy.db")
    assert store.count_generations() == (1, 0)
    store.close()
    assert run("logs", "backup", "copy.db")[0] == 2
    assert run("logs", "backup", "copy.db", "--force")[0] == 0
    assert run("logs", "backup", "a.db", "--force")[0] == 2
    assert run("logs", "backup", "nowhere/copy.db")[0] == 1
    assert run("logs", "path")[1] == f"{tmp_path}/a.db\n"
    assert sorted(one.name for one in tmp_path.iterdir() if "part" in one.name) == []


def test_a_database_that_cannot_be_opened_breaks_no_answer_and_is_told(run: Run, tmp_path: Path) -> None:
    run("logs", "on")
    (tmp_path / "a.db").write_text("no database, but a text that is long enough to be none" * 20)
    code, out, err = generate(run, "x")
    assert code == 0
    assert out
    assert "not logged: the database" in err


def test_a_switch_that_says_something_else_is_told_and_breaks_no_answer(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run("logs", "on")
    (tmp_path / "config" / "logs").write_text("sometimes")
    assert generate(run, "x")[0] == 0
    assert "nothing is logged" in caplog.text
    assert run("logs", "status")[0] == 2


def test_the_variable_is_stronger_than_the_switch(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_LOGS", "content")
    generate(run, "spoken")
    assert rows(run)[0]["content"]["prompt"] == "spoken"
    assert "ESPALIER_LOGS=content is stronger" in run("logs", "off")[2]


def test_a_generation_that_fails_is_logged_with_its_error(run: Run) -> None:
    run("logs", "on")
    code, _, _ = generate(run, "x", "--regex", "[a-z]{50}", "--on-budget", "error")
    found = rows(run)
    assert code != 0
    assert [row["error"] is not None and row["finish_reason"] is None for row in found] == [True]
