"""The page of benchmarks: what it says of a row, and that a change is told from noise."""

from __future__ import annotations

from functools import partial
from itertools import count
from typing import Any

import pytest

from benchmarks import figures
from benchmarks.page import compare, measure, plots, quoted
from benchmarks.page.document import document
from benchmarks.page.plan import PARTS
from benchmarks.page.ratios import is_change, number, ratios, verdict


def row(ours: list[float], *, more: bool = False, **others: list[float]) -> dict[str, Any]:
    values = {figures.OURS: ours, **others}
    return {"table": "A table", "row": "a row", "unit": "ms", "more_is_better": more, "values": values}


def page_of(*rows: dict[str, Any], was_idle: bool = True) -> dict[str, Any]:
    part = {
        "title": PARTS[0].title,
        "command": "python -m x",
        "is_quick": False,
        "repetitions": 3,
        "rows": list(rows),
        "load": [0.1, 7.0],
        "was_idle": was_idle,
    }
    machine = {
        "date": "2026-11-28",
        "cpu": "a processor",
        "cores": 2,
        "python": "3.11.7",
        "versions": {"xgrammar": "1"},
    }
    return {**machine, "parts": [part]}


@pytest.mark.parametrize(
    ("ours", "theirs", "more", "word"),
    [
        ([2.0], [1.0], False, "behind"),
        ([1.0], [2.0], False, "ahead"),
        ([2.0], [1.0], True, "ahead"),
        ([1.0], [2.0], True, "behind"),
        ([1.01], [1.0], False, "level"),
        ([0.0], [0.0], False, "level"),
    ],
)
def test_a_row_says_where_we_stand(ours: list[float], theirs: list[float], more: bool, word: str) -> None:
    assert verdict(row(ours, more=more, peer=theirs)) == word


def test_where_we_stand_is_beside_the_best_of_the_others() -> None:
    assert verdict(row([2.0], first=[3.0], second=[1.0])) == "behind"
    assert verdict(row([2.0])) == ""


def test_a_ratio_is_the_median_of_the_repetitions_own_with_its_spread() -> None:
    (ratio,) = ratios(row([1.0, 4.0, 3.0], peer=[1.0, 2.0, 2.0]))
    assert (ratio.least, ratio.middle, ratio.most) == (1.0, 1.5, 2.0)
    assert ratio.text() == "1.5 (1–2)"
    assert ratios(row([1.0], peer=[0.0])) == []


def test_a_change_is_told_only_where_no_repetition_denies_it() -> None:
    assert is_change([1.0, 1.1, 1.2], [1.3, 1.4, 1.5])
    assert is_change([1.3, 1.4], [1.0, 1.1])
    assert not is_change([1.0, 1.4], [1.3, 1.5])


def test_two_runs_are_alike_where_their_ratios_differ_by_a_tenth_at_most(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = page_of(row([2.0], near=[1.0], far=[1.0])), page_of(row([2.0], near=[1.05], far=[1.5], new=[1.0]))
    compare.show_other_run(first, second)
    told = capsys.readouterr().out.splitlines()
    assert [line.split()[-4:] for line in told[1:-1]] == [["far", "2", "1.33", "0.67"]]
    assert told[-1] == "1 of 2 ratios are within 10%"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (1234.5, "1,234"), (12.34, "12.3"), (0.00001234, "0.0000123"), (0.5, "0.5"), (100.0, "100")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_the_page_shows_misses_as_plainly_as_wins_and_marks_a_busy_machine() -> None:
    page = document(page_of(row([2.0, 2.0, 2.0], peer=[1.0, 1.0, 1.0]), row([1.0] * 3, peer=[2.0] * 3), was_idle=False))
    assert "| 2 | 1 | 2 | **behind** |" in page
    assert "| 1 | 2 | 0.5 | ahead |" in page
    assert "The machine was busy: load up to 7.0" in page
    assert "a processor, 2 cores" in page


def test_repetitions_are_joined_by_row_and_a_row_that_one_lacks_is_left_out() -> None:
    def report(**values: float) -> dict[str, Any]:
        rows = [
            {"table": "T", "row": name, "unit": "ms", "more_is_better": False, "values": {"Espalier": value}}
            for name, value in values.items()
        ]
        return {"figures": rows, "load": [0.0, 1.0], "was_idle": True}

    joined = measure.joined([report(a=1.0, b=2.0), report(a=3.0)])
    assert [(each["row"], each["values"]) for each in joined["rows"]] == [("a", {"Espalier": [1.0, 3.0]})]


def test_a_benchmark_runs_in_its_own_process_and_gives_what_it_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "cores_in_use", lambda: 0.0)
    monkeypatch.setattr(measure, "busy_seconds", lambda: None)  # as where nothing is known of others
    report = measure.run_once("tests.unit.benchmarks.noting", ["12"])
    (figure,) = report["figures"]
    assert figure["values"] == {"Espalier": 12.0, "another": 1.0}
    assert report["was_idle"]
    monkeypatch.setattr(measure, "cores_in_use", lambda: 2.0)
    assert not measure.run_once("tests.unit.benchmarks.noting", ["12"])["was_idle"]
    with pytest.raises(RuntimeError, match="no such number"):
        measure.run_once("tests.unit.benchmarks.noting", ["x"])


def test_the_machine_is_idle_when_nobody_uses_it_now_whatever_was_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(measure, "load", lambda: 1_000.0)
    for used, is_idle in ((0.0, True), (0.009, False)):
        spent = count(0.0, used)
        monkeypatch.setattr(measure, "busy_seconds", partial(next, spent))
        assert measure.wait_until_idle(0.0) is is_idle
    monkeypatch.setattr(measure, "busy_seconds", lambda: None)
    assert not measure.wait_until_idle(0.0)


def test_what_others_use_while_a_benchmark_runs_marks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "cores_in_use", lambda: 0.0)
    spent = iter((0.0, 1_000.0, 0.0, 0.0))
    monkeypatch.setattr(measure, "busy_seconds", lambda: next(spent))
    assert not measure.run_once("tests.unit.benchmarks.noting", ["12"])["was_idle"]
    assert measure.run_once("tests.unit.benchmarks.noting", ["12"])["was_idle"]


@pytest.mark.parametrize(
    ("others", "runs", "kept"), [((0.9, 0.0, 0.9), 2, 0.0), ((0.9, 0.4, 0.7), 3, 0.4), ((0.0, 0.9, 0.9), 1, 0.0)]
)
def test_a_repetition_in_a_busy_machine_is_done_again_and_the_quietest_counts(
    monkeypatch: pytest.MonkeyPatch, others: tuple[float, ...], runs: int, kept: float
) -> None:
    reports = [{"others": used, "was_idle": used <= measure.MOST_BY_OTHERS} for used in others]
    left = iter(reports)
    monkeypatch.setattr(measure, "run_once", lambda *_, **__: next(left))
    assert measure.run_quietly("a.module", [], idle_seconds=0.0, tries=3)["others"] == kept
    assert len(list(left)) == len(reports) - runs


def test_kernels_are_compiled_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first repetitions of a fresh build measured samplers without them: up to 14 times as slow."""
    done: list[str] = []

    def run_once(*given: object, **more: object) -> dict[str, Any]:
        done.append("run")
        return {"date": "", "cpu": "", "cores": 2, "python": "", "versions": {}, "load": [0.0, 0.0], "figures": []}

    monkeypatch.setattr(measure, "warm", lambda: done.append("warm"))
    monkeypatch.setattr(measure, "run_once", run_once)
    next(measure.measure(is_quick=True, repetitions=1, names=[PARTS[0].title], tell=lambda text: None))
    assert done == ["warm", "run"]


def test_every_part_names_a_module_that_is_there() -> None:
    for part in PARTS:
        assert (measure.ROOT / f"{part.module.replace('.', '/')}.py").exists(), part.module
    assert len({part.title for part in PARTS}) == len(PARTS)


def test_pictures_are_drawn_from_the_data_and_left_out_without_it(tmp_path: Any) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    schemas = row([1.0], llguidance=[2.0]) | {"table": "New constraints, 131,072 ids", "row": "schemas: whole text"}
    assert plots.draw(page_of(schemas), tmp_path) == ["speed"]
    drawn = (tmp_path / "bench-speed-dark.svg").read_text(encoding="utf-8")
    assert "llguidance" in drawn
    assert plots.draw(page_of(schemas), tmp_path) == ["speed"]
    assert (tmp_path / "bench-speed-dark.svg").read_text(encoding="utf-8") == drawn
    assert plots.draw(page_of(row([1.0])), tmp_path) == []


def test_quoted_ratios_are_written_anew_and_what_was_not_measured_stays() -> None:
    known = quoted.measured(page_of(row([3.0], llguidance=[2.0])))
    text = "It takes 9.1<!-- ratio: A table / a row / llguidance --> times, or 4<!-- ratio: another / row / peer -->."
    anew = quoted.quoted_anew(text, known)
    assert (
        anew
        == "It takes 1.5<!-- ratio: A table / a row / llguidance --> times, or 4<!-- ratio: another / row / peer -->."
    )
    assert [value for value, _ in quoted.quotations(anew)] == ["1.5", "4"]
