"""`espalier costs`: in 80 columns, with fingerprints that lead on, and an exit code for pipelines."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from rich.cells import cell_len

from espalier.cli.main import main_code
from espalier.store.open import open_store
from tests.batch_jobs import Clock
from tests.unit.store.test_costs import answer, save

DAY = 86_400


@pytest.fixture
def database(tmp_path: Path) -> str:
    """Two weeks of answers; in the second the path `/unit` costs three times as much."""
    clock, url = Clock(), f"sqlite:///{tmp_path}/costs.db"
    store = open_store(url, clock=clock)
    now = time.time()
    for number in range(60):
        clock.now = now - 14 * DAY + number * 14 * DAY / 60
        unit = (1.0 if number < 30 else 3.0) + number % 3 / 10
        save(store, answer(tax=unit + 1.0, paths={"/items/0/unit": unit, "/name\x1b[2J": 1.0}), total=0.5)
        save(store, answer(schema=None, tax=0.0), total=0.1)
    store.close()
    return url


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main_code(["costs", *arguments])
    said = capsys.readouterr()
    return code, said.out + said.err


def fingerprint(capsys: pytest.CaptureFixture[str], database: str) -> str:
    rows: list[dict[str, Any]] = json.loads(run(capsys, "list", "--json", "--database", database)[1])
    return next(str(row["fingerprint"]) for row in rows if row["fingerprint"])


def test_the_dearest_constraint_comes_first_in_80_columns(capsys: pytest.CaptureFixture[str], database: str) -> None:
    code, text = run(capsys, "list", "--database", database)
    assert code == 0
    lines = text.splitlines()
    assert all(cell_len(line) <= 80 for line in lines)
    assert lines[1].startswith("Order ")
    assert re.search(r"\+(1\.9\d|2\.\d+) \(\+1\.\d+ to \+2\.\d+\)", lines[2])
    assert "a token takes 5.00 of free text" in lines[3]
    assert fingerprint(capsys, database) in lines[2]


def test_paths_are_shown_by_their_share_and_control_characters_as_escapes(
    capsys: pytest.CaptureFixture[str], database: str
) -> None:
    code, text = run(capsys, "show", fingerprint(capsys, database), "--database", database)
    assert code == 0
    assert text.splitlines()[1].startswith("/items/*/unit")
    assert "\x1b" not in text


def test_a_path_that_became_dearer_ends_a_pipeline(capsys: pytest.CaptureFixture[str], database: str) -> None:
    windows = ("--before", "14d..7d", "--after", "7d..now", "--database", database)
    code, text = run(capsys, "diff", fingerprint(capsys, database), *windows, "--limit", "50")
    assert code == 1
    assert "dearer by more than 50 %: /items/*/unit" in text
    assert run(capsys, "diff", fingerprint(capsys, database), *windows, "--limit", "500")[0] == 0
    assert run(capsys, "diff", fingerprint(capsys, database), *windows)[0] == 0


@pytest.mark.slow
def test_remedies_are_tried_on_kept_prompts_and_written_as_patches(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    import espalier

    schema = {
        "title": "User",
        "type": "object",
        "properties": {"mail": {"type": "string"}, "name": {"type": "string"}},
        "required": ["mail", "name"],
        "additionalProperties": False,
    }
    url = f"sqlite:///{tmp_path}/kept.db"
    store = open_store(url)
    with espalier.load("models/demo") as engine:
        for seed, prompt in enumerate(("Generate user info", "Give me user info", "Generate user info")):
            result = engine.generate(
                prompt, constraint=espalier.JsonSchema(schema), seed=seed, max_tokens=40, trace="steps"
            )
            assert result.trace is not None
            store.save_trace(result.trace.to_json(), request_id=f"r{seed}", caller="anna", index=0)
    store.close()
    edits = tmp_path / "edits.json"
    own = fingerprint(capsys, url)
    code, text = run(
        capsys, "try", own, "--n", "3", "--patch", str(edits), "--json", "--database", url, "-m", "models/demo"
    )
    tried = json.loads(text[text.index("{") : text.rindex("}") + 1])
    assert tried["prompts"] == 2, "two prompts are the same"
    said = {trial["how"]: trial for trial in tried["trials"]}
    assert "put 'name' before 'mail' at /" in said
    assert said["--whitespace compact"]["differences"]["tax"]["pairs"] == 2
    assert code == int(not any(trial["helps"] for trial in tried["trials"]))
    *of_schema, shown = tried["trials"]
    assert (shown["how"], shown["error"], shown["differences"]["tax"]["pairs"]) == ("--schema-in-prompt", None, 2)
    assert [each["how"] for each in tried["estimates"]] == [trial["how"] for trial in of_schema]
    assert all(each["answers"] == 2 for each in tried["estimates"])
    assert "put 'name' before 'mail' at /" in {edit["about"] for edit in json.loads(edits.read_text())}
    code, text = run(capsys, "try", own, "--estimate", "--database", url)
    assert "Estimated from 2 kept answers, without the model" in text
    assert all(cell_len(line) <= 80 for line in text.splitlines())
    assert re.search(r"\d+\.\d -> \d+\.\d \(\d+\.\d to \d+\.\d\), of \d+% of the tokens", text)
    assert code in (0, 1)


def test_nothing_is_tried_for_a_constraint_of_which_nothing_is_known(
    capsys: pytest.CaptureFixture[str], database: str
) -> None:
    code, text = run(capsys, "try", "0123456789abcdef", "--database", database, "-m", "fake")
    assert (code, "0123456789abcdef" in text) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("show", "0123456789abcdef"), "0123456789abcdef"),
        (("list", "--since", "1h", "--until", "2d"), "--until"),
        (("diff", "x", "--before", "yesterday"), "--before"),
        (("diff", "x", "--before", "9d..8d"), "--before"),
    ],
)
def test_what_is_wrong_is_named(
    capsys: pytest.CaptureFixture[str], database: str, arguments: tuple[str, ...], field: str
) -> None:
    code, text = run(capsys, *arguments, "--database", database)
    assert code in (1, 2)
    assert field in text
