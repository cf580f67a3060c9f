"""The page of the users' documents: it has every row that tests carry, in their words, and no row that fails."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.acceptance.users_documents.rows import FAILS, HEAD, TITLES, Outcomes, Row, lines, read, read_mark, write

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "reference" / "users-documents.md"
AGAIN = "python -m pytest tests/acceptance/users_documents --rows docs/reference/users-documents.md"


def marks_of(module: ModuleType) -> Iterator[Any]:
    """Every mark `row` of a module's tests, those of single cases too."""
    for name, value in vars(module).items():
        if not name.startswith("test_"):
            continue
        for mark in getattr(value, "pytestmark", ()):
            if mark.name == "row":
                yield mark
            elif mark.name == "parametrize":
                for case in mark.args[1]:
                    yield from (one for one in getattr(case, "marks", ()) if one.name == "row")


def carried() -> dict[tuple[str, str], str]:
    """The text of each row, by document and number."""
    found: dict[tuple[str, str], str] = {}
    for path in sorted(HERE.glob("test_*.py")):
        for mark in marks_of(importlib.import_module(f"tests.acceptance.users_documents.{path.stem}")):
            document, number, text, _ = read_mark(mark)
            found[document, number] = text
    return found


def test_the_page_has_the_rows_that_the_tests_carry() -> None:
    on_page = {
        (document, row.number): row.text
        for document, rows in read(PAGE.read_text(encoding="utf-8")).items()
        for row in rows
    }
    assert on_page == carried(), AGAIN


def test_no_row_of_the_page_fails() -> None:
    page = read(PAGE.read_text(encoding="utf-8"))
    assert not [(document, row) for document, rows in page.items() for row in rows if row.state == FAILS]


def test_a_page_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    first = {"json-mode": [Row("1.2", "a | b", "works"), Row("1.10", "c", "works, differently: d")]}
    write(path, first)
    write(path, {"wordlist-server": [Row("1", "x", FAILS)]})
    text = path.read_text()
    assert text.startswith(HEAD)
    assert read(text) == {**first, "wordlist-server": [Row("1", "x", FAILS)]}
    assert "| json-mode | 2 | 1 | 1 | 0 | 0 |" in text
    assert "\n".join(lines(read(text))) == text
    assert [*TITLES].index("json-mode") < [*TITLES].index("wordlist-server")


def test_of_several_tests_the_worst_counts() -> None:
    mark = pytest.mark.row("json-mode", "1", "a").mark
    for outcomes, state in (
        (["passed", "passed"], "works"),
        (["passed", "skipped"], "not run here: why"),
        (["failed", "passed"], FAILS),
    ):
        found = Outcomes()
        for one in outcomes:
            found.note(mark, one, "why")
        assert found.page() == {"json-mode": [Row("1", "a", state)]}
    with pytest.raises(ValueError, match="is called"):
        found.note(pytest.mark.row("json-mode", "1", "b").mark, "passed")
    with pytest.raises(ValueError, match="there is no document"):
        found.note(pytest.mark.row("x", "1", "b").mark, "passed")
