"""The harness over the fake engine: everything of a case is applied, errors count, and reports say what happened."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import espalier
from espalier.cli.main import main_code
from espalier.engines.fake import open_engine
from espalier.errors import InputError
from espalier.harness.cases.case import TestCase
from espalier.harness.checks import Failure
from espalier.harness.report.junit import junit_text
from espalier.harness.report.page import report_page
from espalier.harness.results import CaseResult, Report, Sample
from espalier.harness.run import Harness


def engine(wish: str) -> espalier.LoadedEngine:
    return espalier.LoadedEngine(open_engine(wish=wish))


def run(wish: str, *cases: TestCase, **options: object) -> Report:
    return Harness(engine(wish), **options).add(*cases).run()  # type: ignore[arg-type]


NUMBER = '{"type": "integer"}'
COLD = {"temperature": 0.0, "max_tokens": 80}


def test_several_cases_run_at_once_and_come_back_in_order() -> None:
    seen: list[tuple[int, int]] = []
    cases = [
        TestCase(name=f"c{i}", prompt=f"p{i}", config=COLD, required_content=("hello",), iterations=3) for i in range(4)
    ]
    report = run("Hello there.", *cases, progress=lambda done, of: seen.append((done, of)))
    assert report.passed
    assert [one.case.name for one in report.results] == ["c0", "c1", "c2", "c3"]
    assert [one.outputs for one in report.results] == [["Hello there."] * 3] * 4
    assert seen == [(i, 12) for i in range(13)]


def test_filters_and_the_safety_preset_of_a_case_are_applied() -> None:
    wish = "Run sudo rm -rf / now `x`"
    filters = [{"type": "ban", "options": {"phrases": ["sudo"]}}]
    case = TestCase.from_json(
        {"name": "f", "prompt": "p", "config": COLD, "filters": filters, "banned_content": ["sudo"]}
    )
    safe = TestCase(name="s", prompt="p", config=COLD, safety_preset="minimal", banned_content=("rm -rf",))
    report = run(wish, case, safe)
    assert report.passed, str(report)
    free = run(wish, case, safe, free=True)
    assert [one.passed for one in free.results] == [False, False]
    assert free.results[0].outputs == [wish]


def test_a_preset_is_applied_with_its_grammar_and_may_be_named_for_all() -> None:
    wish = 'Sure: {"a": 1}'
    case = TestCase(name="j", prompt="p", config=COLD, expected_json=True)
    assert not run(wish, case).passed
    assert run(wish, case, preset="json_strict").passed


def test_a_configuration_without_its_constraint_fails_with_a_reason_and_a_remedy() -> None:
    report = run("Sure! Here it is.", TestCase(name="j", prompt="p", config=COLD, expected_json=True, iterations=2))
    text = str(report)
    assert "json (2 of 2): the output is not JSON" in text
    assert "try: constrain it: json_schema, or the preset json_strict" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_text_that_is_cut_under_its_constraint_needs_more_tokens_and_no_other_constraint() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 60}}, "required": ["a"]}
    asked = {"json_schema": schema, "expected_json": True, "max_tokens": 12, "config": COLD}
    text = str(run('{"a": "' + "x" * 80, TestCase.from_json({"name": "cut", "prompt": "p"} | asked)))
    assert " ".join(text.split()).count("try: the text was cut at 12 tokens: raise max_tokens") == 2
    assert "constrain it" not in text
    assert "max_tokens;" not in text


def test_an_unknown_preset_is_the_error_of_its_case_and_the_others_run() -> None:
    bad = TestCase(name="bad", prompt="p", preset="jsn_strict", iterations=2)
    report = run("Hello.", bad, TestCase(name="ok", prompt="p", config=COLD))
    assert [one.passed for one in report.results] == [False, True]
    sums = report.results[0].summary
    assert (sums.error_count, sums.success_rate, report.results[0].outputs) == (2, 0.0, [])
    assert "jsn_strict" in report.results[0].errors[0]


def test_an_iteration_that_ends_in_an_error_counts_as_failed() -> None:
    good = Sample(output="x", tokens=1, latency=2.0)
    result = CaseResult(case=TestCase(name="c", prompt="p"), samples=(good, *[Sample(error="gone")] * 4))
    sums = result.summary
    assert (sums.success_rate, sums.error_count, sums.avg_latency, sums.avg_tokens) == (0.2, 4, 2.0, 1.0)
    assert not result.passed


def test_a_timeout_is_an_error_of_the_iteration() -> None:
    (result,) = run("x" * 500, TestCase(name="t", prompt="p", timeout=0.001, config=COLD)).results
    assert len(result.errors) == 1
    assert "longer than it was given" in result.errors[0]


def test_deterministic_cases_draw_alike_and_others_do_not() -> None:
    warm = {"temperature": 5.0, "max_tokens": 20}
    same = TestCase(name="same", prompt="p", config=warm, iterations=4, deterministic=True)
    free = TestCase(name="free", prompt="p", config=warm, iterations=4)
    report = run("Hello there, how are you?", same, free)
    assert report.passed
    assert len({*report.results[0].outputs}) == 1
    assert len({*report.results[1].outputs}) > 1
    again = run("Hello there, how are you?", free)
    assert again.results[0].outputs == report.results[1].outputs


def test_outputs_that_differ_fail_a_deterministic_case() -> None:
    from espalier.harness.run import _same

    case = TestCase(name="d", prompt="p", deterministic=True, iterations=3)
    samples = _same(case, (Sample(error="e"), Sample(output="a", token_ids=(1,)), Sample(output="b", token_ids=(2,))))
    assert [one.passed for one in samples] == [False, True, False]
    assert samples[2].failures[0].check == "determinism"


def test_tax_and_rejections_are_limits() -> None:
    case = TestCase(name="t", prompt="p", config=COLD, json_schema=NUMBER, max_tax=0.001, max_rejection_rate=0.0)
    (result,) = run("Sure! no JSON", case).results
    assert {one.check for one, _ in result.reasons()} == {"tax", "rejection_rate"}
    assert result.json_passed == 1


def test_a_share_of_iterations_may_be_enough() -> None:
    samples = (Sample(), Sample(error="x"))
    assert CaseResult(case=TestCase(name="c", prompt="p", min_success_rate=0.5), samples=samples).passed


def test_a_report_round_trips_and_has_the_documented_names() -> None:
    report = run("Hello.", TestCase(name="c", prompt="p", config=COLD, contains=("z",)))
    data = json.loads(json.dumps(report.to_json()))
    assert Report.from_json(data).to_json() == data
    assert list(data["results"][0])[:10] == [
        "Case",
        "Outputs",
        "FormatPassed",
        "JSONPassed",
        "ContentPassed",
        "RequiredPassed",
        "TotalPassed",
        "Latencies",
        "TokenCounts",
        "Errors",
    ]
    with pytest.raises(InputError, match="no report"):
        Report.from_json({"model": "m"})


def test_junit_is_read_by_a_parser_whatever_the_texts_hold() -> None:
    nasty = "a\0b<&>\ud800]]>\x1b[31m\uffff"
    case = TestCase(name='n<"&>', prompt="p")
    from espalier.harness.checks import Failure

    failed = Sample(output=nasty, failures=(Failure(check="format", reason=nasty, remedy="do"),))
    results = (
        CaseResult(case=case, samples=(failed, Sample(output="ok"))),
        CaseResult(case=TestCase(name="e", prompt="p"), samples=(Sample(error=nasty),)),
        CaseResult(case=TestCase(name="ok", prompt="p"), samples=(Sample(output="ok"),)),
    )
    root = ET.fromstring(junit_text(Report(model="m", results=results)).encode())
    suite = root.find("testsuite")
    assert suite is not None
    assert {k: suite.get(k) for k in ("tests", "failures", "errors")} == {"tests": "3", "failures": "1", "errors": "1"}
    names = [(one.get("name"), [child.tag for child in one]) for one in suite]
    assert names == [('n<"&>', ["failure", "system-out"]), ("e", ["error", "system-out"]), ("ok", ["system-out"])]
    assert "\\u001b" in str(Report(model="m", results=results))


def test_a_harness_without_cases_and_two_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="no case"):
        Harness(engine("x")).run()
    with pytest.raises(InputError, match="two cases are called 'a'"):
        Harness(engine("x")).add({"name": "a", "prompt": "p"}, {"name": "a", "prompt": "p"})


CASES = """
defaults: {config: {temperature: 0, max_tokens: 80}}
cases:
  - {name: good, prompt: hi, required_content: [Sure]}
  - {name: bad, prompt: hi, required_content: [Never]}
"""


def test_the_command_writes_the_report_and_junit_and_fails_with_1(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    file, junit = tmp_path / "c.yaml", tmp_path / "out.xml"
    file.write_text(CASES, "utf-8")
    assert main_code(["test", str(file), "-m", "fake", "--junit", str(junit)]) == 1
    out, err = capfd.readouterr()
    assert "1 of 2 cases passed on fake" in out
    assert "Failed: bad" in out
    assert f"written: {junit}" in err
    assert ET.parse(junit).getroot().get("failures") == "1"
    assert main_code(["test", str(file), "-m", "fake", "--json"]) == 1
    assert json.loads(capfd.readouterr().out)["results"][0]["TotalPassed"] == 1
    file.write_text(CASES.replace("Never", "JSON"), "utf-8")
    assert main_code(["test", str(file), "-m", "fake"]) == 0
    assert main_code(["test", str(file), "-m", "fake", "--preset", "no_such"]) == 2
    assert main_code(["test", str(file), "-m", "fake", "--junit", str(tmp_path / "none" / "x.xml")]) == 1
    assert "cannot write" in capfd.readouterr().err


@pytest.mark.parametrize("check", ["banned", "not_contains", "required", "contains"])
def test_the_content_pass_rate_counts_every_check_of_content(check: str) -> None:
    bad = Sample(output="x", failures=(Failure(check=check, reason="r"),))
    result = CaseResult(case=TestCase(name="c", prompt="p"), samples=(bad, Sample(output="y")))
    assert result.summary.content_pass_rate == 0.5
    assert "Content Pass Rate: 50.0%" in str(result)
    assert '<td data-name="content">50.0%</td>' in report_page(Report(model="m", results=(result,)))
