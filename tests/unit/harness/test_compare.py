"""Paired differences on results that were made up: intervals hold the truth, signs are not stated by chance."""

from __future__ import annotations

import itertools
import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from espalier.cli.main import main_code
from espalier.errors import InputError
from espalier.harness.cases.case import TestCase
from espalier.harness.checks import Failure
from espalier.harness.compare.paired import paired, sign_flip
from espalier.harness.compare.runs import compared, comparison_text
from espalier.harness.report.page import report_page
from espalier.harness.results import CaseResult, Report, Sample

ROUNDS = 300


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "successes"])
def test_the_interval_holds_the_true_difference_about_as_often_as_it_says(kind: str) -> None:
    chance, hits = np.random.default_rng(5), 0
    for seed in range(ROUNDS):
        if kind == "normal":
            a, b = chance.normal(1.0, 1.0, 40), chance.normal(1.5, 1.0, 40)
        else:
            a, b = (chance.random(40) < 0.5).astype(float), (chance.random(40) < 0.7).astype(float)
        found = paired("x", a.tolist(), b.tolist(), seed=seed)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= (0.5 if kind == "normal" else 0.2) <= found.high
    assert 0.90 <= hits / ROUNDS <= 0.985  # 0.95, four standard errors and the bias of percentiles


@pytest.mark.parametrize("pairs", [3, 8, 30])
def test_a_sign_is_seldom_stated_where_there_is_no_difference(pairs: int) -> None:
    chance, stated = np.random.default_rng(7), 0
    for seed in range(ROUNDS):
        a, b = ((chance.random(pairs) < 0.6).astype(float) for _ in range(2))
        stated += paired("x", a.tolist(), b.tolist(), seed=seed).sign != 0
    assert stated / ROUNDS <= 0.05 + 4 * (0.05 * 0.95 / ROUNDS) ** 0.5


def test_a_difference_is_found_and_has_its_sign() -> None:
    a = [0.0] * 12
    assert paired("x", a, [1.0] * 12).sign == 1
    assert paired("x", [1.0] * 12, a).sign == -1


def test_few_pairs_state_no_sign_though_their_interval_has_no_width() -> None:
    found = paired("x", [0.0] * 4, [1.0] * 4)
    assert (found.low, found.high, found.sign) == (1.0, 1.0, 0)
    assert paired("x", [], []).mean is None
    with pytest.raises(InputError, match="no pairs"):
        paired("x", [1.0], [])


def test_the_sign_flip_test_counts_what_enumeration_counts() -> None:
    chance = np.random.default_rng(1)
    for _ in range(20):
        given = np.round(chance.normal(0.3, 1, 8), 1)
        sums = [abs(np.dot(signs, given)) for signs in itertools.product((-1, 1), repeat=8)]
        wanted = sum(one >= abs(given.sum()) - 1e-9 for one in sums) / 256
        assert sign_flip(given) == pytest.approx(wanted)
    many = np.random.default_rng(2).normal(0.5, 1, 30)
    assert sign_flip(many) == pytest.approx(sign_flip(many, seed=9), abs=0.01)


def report(passes: dict[str, list[bool]], *, tokens: int = 5, **more: object) -> Report:
    bad = (Failure(check="json", reason="<script>alert(1)</script>", remedy="do"),)
    return Report(
        model="m",
        results=tuple(
            CaseResult(
                case=TestCase(name=name, prompt="p", description="<b>", **more),  # type: ignore[arg-type]
                samples=tuple(Sample(output="<i>\x1b", tokens=tokens, failures=() if ok else bad) for ok in oks),
            )
            for name, oks in passes.items()
        ),
    )


def test_two_runs_say_what_broke_and_leave_out_what_is_not_the_same() -> None:
    old = report({"a": [True] * 8, "b": [False] * 2, "gone": [True]})
    new = report({"a": [False] * 8, "b": [True] * 2, "new": [True]}, tokens=9)
    found = compared(old, new, names=("run_1", "this run"))
    assert (found.broken, found.mended, found.left_out, found.cases) == (("a",), ("b",), ("gone", "new"), 2)
    figures = {one.metric: one for one in found.differences}
    assert (figures["success"].mean, figures["tokens"].mean, figures["tokens"].sign) == (-0.6, 4.0, 1)
    assert figures["tax"].pairs == 0
    assert not figures["latency"].tested
    assert "not tested" in comparison_text(found)
    text = comparison_text(found)
    assert "Broken: a" in text
    assert "B is higher" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    other = compared(old, report({"a": [True] * 8}, expected_json=True), names=("x", "y"))
    assert other.left_out == ("a", "b", "gone")
    assert "no pairs" in comparison_text(other)
    json.dumps(found.to_json(), allow_nan=False)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_the_page_shows_texts_of_a_model_as_texts() -> None:
    shown = report({"a<script>": [True, False]})
    page = report_page(shown, [compared(shown, shown, names=("<u>", "this"))])
    parser = Tags()
    parser.feed(page)
    assert not {"script", "i", "b", "u"} & {*parser.tags} - {"b"}
    assert parser.tags.count("b") == 1  # the name of the check
    assert "&lt;script&gt;alert(1)" in page
    assert "\\u001b" in page
    assert "\x1b" not in page


CASES = """
defaults: {config: {temperature: 0, max_tokens: 120}, preset: json_strict}
cases: [{name: c, prompt: hi, expected_json: true}]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "c.yaml"
    path.write_text(CASES, "utf-8")
    return str(path)


def test_a_run_is_stored_listed_and_compared_with_a_later_one(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main_code(["test", file, "-m", "fake"]) == 0
    name = capfd.readouterr().err.split("stored: ")[1].split(";")[0]
    assert main_code(["test", file, "-m", "fake", "--no-store", "--compare", name, "--html", "r.html"]) == 0
    out, err = capfd.readouterr()
    assert f"A is {name}; B is this run; 1 cases are the same in both." in " ".join(out.split())
    assert "stored" not in err
    assert name in Path("r.html").read_text("utf-8")
    assert main_code(["test", "--runs"]) == 0
    row = capfd.readouterr().out.splitlines()[1].split()
    assert (row[0], row[-2:]) == (name, ["1/1", "1/1"])
    assert main_code(["test", file, "-m", "fake", "--compare", "run_x"]) == 2
    assert "is no id of a test run" in capfd.readouterr().err


def test_what_a_run_cost_is_in_the_sums_under_its_own_caller(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main_code(["test", file, "-m", "fake", "--iterations", "3"]) == 0
    name = capfd.readouterr().err.split("stored: ")[1].split(";")[0]
    assert main_code(["costs", "list", "--caller", "test", "--json"]) == 0
    (row,) = json.loads(capfd.readouterr().out)
    assert (row["title"], row["answers"], row["invalid"]) == ("json_object", 3, 0)
    assert main_code(["costs", "list", "--caller", "another"]) == 0
    assert "no answers in this time" in capfd.readouterr().err
    assert main_code(["costs", "show", row["fingerprint"], "--caller", "another"]) == 2
    assert main_code(["trace", "show", name]) == 0
    assert "model fake" in capfd.readouterr().out


def test_stored_runs_are_pruned_where_that_is_asked_for(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        assert main_code(["test", file, "-m", "fake"]) == 0
    capfd.readouterr()
    assert main_code(["test", file, "-m", "fake", "--keep-runs", "2"]) == 0
    assert "2 test runs deleted" in capfd.readouterr().err
    assert main_code(["test", "--runs", "--keep-runs", "1", "--json"]) == 0
    out, err = capfd.readouterr()
    assert len(json.loads(out)) == 1
    assert "1 test runs deleted" in err


def test_constrained_against_free_is_a_paired_run(file: str, capfd: pytest.CaptureFixture[str]) -> None:
    code = main_code(["test", file, "-m", "fake", "--no-store", "--iterations", "8", "--against", "free", "--json"])
    found = json.loads(capfd.readouterr().out)["comparisons"][0]
    assert code == 0
    assert (found["first"], found["second"], found["broken"]) == ("this run", "free", ["c"])
    success = next(one for one in found["differences"] if one["metric"] == "success")
    assert (success["first"], success["second"], success["sign"], success["pairs"]) == (1.0, 0.0, -1, 8)
    for variant in ("preset:creative", "strategy:rejection", "model:fake"):
        assert main_code(["test", file, "-m", "fake", "--no-store", "--against", variant]) == 0
        assert f"B is {variant}" in capfd.readouterr().out
    assert main_code(["test", file, "-m", "fake", "--against", "presto"]) == 2
    assert main_code(["test", file, "-m", "fake", "--against", "preset:none"]) == 2
    assert main_code(["test", file, "-m", "fake", "--strategy", "none"]) == 2
