"""`make test` runs a share of the rows of long tables, and says how many it left out."""

from __future__ import annotations

import pytest

from tests import examples

pytest_plugins = ["pytester"]

TABLE = """
import pytest
@pytest.mark.parametrize("row", range({rows}))
def test_row(row): pass
def test_alone(): pass
"""


def collected(pytester: pytest.Pytester, rows: int) -> list[pytest.Item]:
    return pytester.getitems(TABLE.format(rows=rows))


def kept(items: list[pytest.Item]) -> list[str]:
    left_out = examples.rows_left_out(items)
    return [item.name for item in items if item not in left_out]


def test_a_long_table_keeps_its_share_with_both_ends(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "SHARE", 0.25)
    names = kept(collected(pytester, 100))
    assert len(names) == 26
    assert names[0] == "test_row[0]"
    assert names[-2:] == ["test_row[99]", "test_alone"]


@pytest.mark.parametrize(("rows", "left"), [(8, 9), (9, 5)])
def test_a_table_of_eight_runs_whole_and_one_of_nine_keeps_four_rows(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, rows: int, left: int
) -> None:
    monkeypatch.setattr(examples, "SHARE", 0.25)
    assert len(kept(collected(pytester, rows))) == left


def test_with_every_example_every_row_runs(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "SHARE", 1)
    assert len(kept(collected(pytester, 100))) == 101
