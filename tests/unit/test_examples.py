"""`make test` runs a share of the rows of long tables, and says how many it left out."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests import examples


@dataclass(frozen=True)
class Row:
    """A collected test as far as the share looks at it: making real ones would open a second pytest in this one, whose
    end collects all garbage of a whole run five times."""

    nodeid: str

    @property
    def name(self) -> str:
        return self.nodeid.rpartition("::")[2]


def collected(rows: int) -> list[Row]:
    return [Row(f"test_it.py::test_row[{number}]") for number in range(rows)] + [Row("test_it.py::test_alone")]


def kept(items: list[Row]) -> list[str]:
    left_out = examples.rows_left_out(items)  # type: ignore[arg-type]
    return [item.name for item in items if item not in left_out]


@pytest.mark.parametrize("row", [0])
def test_pytest_names_rows_as_here(request: pytest.FixtureRequest, row: int) -> None:
    assert request.node.nodeid.endswith("test_examples.py::test_pytest_names_rows_as_here[0]")


def test_a_long_table_keeps_its_share_with_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "ROWS", 0.25)
    names = kept(collected(100))
    assert len(names) == 26
    assert names[0] == "test_row[0]"
    assert names[-2:] == ["test_row[99]", "test_alone"]


@pytest.mark.parametrize(("rows", "left"), [(8, 9), (9, 5)])
def test_a_table_of_eight_runs_whole_and_one_of_nine_keeps_four_rows(
    monkeypatch: pytest.MonkeyPatch, rows: int, left: int
) -> None:
    monkeypatch.setattr(examples, "ROWS", 0.25)
    assert len(kept(collected(rows))) == left


def test_with_every_example_every_row_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "ROWS", 1)
    assert len(kept(collected(100))) == 101
