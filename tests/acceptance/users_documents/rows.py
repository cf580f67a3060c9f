"""The rows of the users' documents with their state: collected from a test run, written as a page, read back.

A row is a claim, command, endpoint or field of a document, and one or more tests carry it as a mark:

    @pytest.mark.row("wordlist-server", "3.2", "POST /v1/chat/completions", differs="what is otherwise here")

A document that was not run keeps its part of the page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

WORKS, DIFFERS, NOT_HERE, FAILS = "works", "works, differently: ", "not run here: ", "FAILS"
HEAD = """# The users' documents, row by row

Each row is a claim, a command, an endpoint or a field of a document that users of another tool bring along. A test runs
it as its user would, with the document's own input, on the demo model. This page is written by
`python -m pytest tests/acceptance/users_documents --rows docs/reference/users-documents.md`.
"""
TITLES = {
    "rejection-tracer": "The rejection tracer of a patched llama-server",
    "logit-control": "PedroCLI's logit control",
    "json-mode": "The Rust processor of JSON mode",
    "wordlist-server": "The word-list server",
    "inference-reconstruction": "Reconstruction of inference files",
}
"""By document, in the order of the page."""
LINE = re.compile(r"^\| (?P<number>[^|]+) \| (?P<text>.+?) \| (?P<state>[^|]+) \|$")


@dataclass(frozen=True, slots=True)
class Row:
    """One row. state: WORKS, or another one with its reason."""

    number: str
    text: str
    state: str


Page = dict[str, list[Row]]


class Marker(Protocol):
    def __call__(self, number: str, text: str, *, differs: str = "") -> pytest.MarkDecorator: ...


def rows_of(document: str) -> Marker:
    """What marks tests as rows of one document: `row("3.2", "what the document says")`."""

    def row(number: str, text: str, *, differs: str = "") -> pytest.MarkDecorator:
        more = {"differs": differs} if differs else {}
        return pytest.mark.row(document, number, text, **more)

    return row


class Outcomes:
    """What the tests of a run say of the rows."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str], tuple[str, str]] = {}  # (document, number) -> (text, state)

    def note(self, mark: Any, outcome: str, reason: str = "") -> None:
        """One phase of one test. Of several, the worst counts. Raises ValueError where two tests write one row in
        different words."""
        document, number, text, differs = read_mark(mark)
        state = {
            "passed": f"{DIFFERS}{differs}" if differs else WORKS,
            "skipped": f"{NOT_HERE}{reason}",
            "failed": FAILS,
        }[outcome]
        known_text, known = self._states.get((document, number), (text, state))
        if known_text != text:
            raise ValueError(f"row {number} of {document} is called {known_text!r} and {text!r}")
        self._states[document, number] = text, max(known, state, key=_badness)

    def page(self) -> Page:
        """The rows by document, in the order of their numbers."""
        found: Page = {}
        for (document, number), (text, state) in self._states.items():
            found.setdefault(document, []).append(Row(number, text, state))
        return {document: sorted(rows, key=order) for document, rows in found.items()}


def read_mark(mark: Any) -> tuple[str, str, str, str]:
    """Document, number, text and difference of a mark. Raises ValueError for one that is written otherwise."""
    document, number, text = mark.args
    if document not in TITLES:
        raise ValueError(f"there is no document {document!r}: {', '.join(TITLES)}")
    if set(mark.kwargs) - {"differs"} or not all(isinstance(one, str) for one in mark.args):
        raise ValueError(f"a row is row(document, number, text, differs=...), not {mark}")
    return document, number, text, mark.kwargs.get("differs", "")


def order(row: Row) -> list[int | str]:
    """By the parts of the number: 3.10 comes after 3.9."""
    return [int(part) if part.isdecimal() else part for part in row.number.split(".")]


def _badness(state: str) -> int:
    starts = (WORKS, DIFFERS, NOT_HERE, FAILS)
    return max(place for place, start in enumerate(starts) if state.startswith(start))


def write(path: Path, run: Page) -> None:
    """Write the page; documents that were not run keep what the page had of them."""
    known = read(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text("\n".join(lines({**known, **run})), encoding="utf-8")


def lines(page: Mapping[str, Sequence[Row]]) -> Iterator[str]:
    """The page, line by line."""
    yield HEAD
    yield from _table(("document", "rows", "work", "work differently", "not run here", "fail"), _sums(page))
    for document, title in TITLES.items():
        if rows := page.get(document):
            yield f"## {title}\n"
            yield from _table(("row", "what the document says", "state"), ((r.number, r.text, r.state) for r in rows))


def _sums(page: Mapping[str, Sequence[Row]]) -> Iterator[tuple[str, ...]]:
    for document in TITLES:
        if rows := page.get(document):
            counts = [sum(_badness(row.state) == place for row in rows) for place in range(4)]
            yield document, str(len(rows)), *map(str, counts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(one.replace('|', '&#124;') for one in row)} |" for row in rows)
    yield ""


def read(text: str) -> Page:
    """The rows of a page that `write` wrote."""
    page: Page = {}
    by_title = {title: document for document, title in TITLES.items()}
    document = None
    for line in text.splitlines():
        if line.startswith("## "):
            document = by_title.get(line.removeprefix("## "))
        elif document is not None and (match := LINE.match(line)) and match["number"] != "row":
            cells = [match[name].replace("&#124;", "|") for name in ("number", "text", "state")]
            page.setdefault(document, []).append(Row(*cells))
    return page
