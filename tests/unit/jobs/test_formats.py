"""Tables as inputs and outputs of batches, templates, and the report's sums."""

from __future__ import annotations

import datetime as dt
import importlib.util
import io
import json
import math
import re
import tracemalloc
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import InputError, OutputError, TooLarge
from espalier.jobs import intake
from espalier.jobs.formats.rows import read_rows, write_rows
from espalier.jobs.formats.template import CHAT, Template, answered, encoded, templated, with_shared
from espalier.jobs.report import general_path, is_good, report_of
from espalier.jobs.report_page import render
from espalier.jobs.values import InputFault
from espalier.trace.report import diagnose
from espalier.trace.report.findings import WORDS
from tests.examples import examples
from tests.fuzz.parsers.target import CORPUS

HAS_ARROW = importlib.util.find_spec("pyarrow") is not None
NAMES = st.text("abcxyz", min_size=1, max_size=5)
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)


@pytest.mark.parametrize(
    "suffix", [".jsonl", ".csv", pytest.param(".parquet", marks=pytest.mark.skipif(not HAS_ARROW, reason="no pyarrow"))]
)
@settings(max_examples=examples(20))
@given(columns=st.lists(NAMES, min_size=1, max_size=4, unique=True), data=st.data())
def test_a_table_is_read_as_it_was_written(
    suffix: str, columns: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rows = data.draw(st.lists(st.fixed_dictionaries(dict.fromkeys(columns, TEXTS)), min_size=1, max_size=8))
    path = tmp_path_factory.mktemp("rows") / f"t{suffix}"
    write_rows(path, iter(rows))
    assert list(read_rows(path)) == rows
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_lines_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n[1]\n')
    with pytest.raises(InputError, match="line 2"):
        list(read_rows(tmp_path / "a.jsonl"))
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(InputError, match="line 3"):
        list(read_rows(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text('a,b\n1,2\n3,"x"y\n')
    with pytest.raises(InputError, match="line 3"):
        list(read_rows(tmp_path / "a.csv"))
    with pytest.raises(InputError, match="format"):
        list(read_rows(tmp_path / "a.xlsx"))


def test_a_table_with_one_name_for_two_columns_is_refused_so_that_none_is_lost(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,text\n1,2\n")
    with pytest.raises(InputError, match="two columns have the name 'text'"):
        list(read_rows(tmp_path / "a.csv"))


def test_blank_lines_before_the_names_and_long_cells_of_a_table_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("\n\na,b\n1," + "x" * 200_000 + "\n")
    assert list(read_rows(tmp_path / "a.csv")) == [{"a": "1", "b": "x" * 200_000}]


def test_a_file_whose_only_line_is_too_long_is_not_called_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "LINE_BYTES", 100)
    found = list(intake.LineReader("/v1/completions").read(io.BytesIO(b"x" * 200)))
    assert [one.code for one in found if isinstance(one, InputFault)] == ["line_too_long"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        write_rows(tmp_path / "none" / "a.csv", iter([{"a": 1}]))


def test_a_template_takes_columns_and_no_more() -> None:
    made = Template(text="Classify {{this}}: {text} {n}")
    assert made.prompt({"text": "{x}", "n": [1, "é"]}) == 'Classify {this}: {x} [1, "é"]'
    for wrong in ("{", "{}", "{a!r}", "{a:>5}", "{a.b}x{"):
        with pytest.raises(InputError, match="--template"):
            Template(text=wrong)
    with pytest.raises(InputError, match="no column 'x'"):
        Template(text="{x}").prompt({"y": 1})


def test_rows_become_requests_and_answers_rows_again() -> None:
    rows = [{"text": "a", "custom_id": "mine"}, {"text": "b"}]
    made = list(templated(rows, Template(text="{text}?", system="Be brief.", shared={"max_tokens": 5})))
    assert [one["custom_id"] for one in made] == ["mine", "2"]
    assert made[0]["body"] == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "a?"}],
        "max_tokens": 5,
    }
    body = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}], "usage": {"completion_tokens": 2}}
    good: dict[str, Any] = {"response": {"status_code": 200, "body": body}, "error": None}
    judged = {"valid": False, "figures": {"finish_reason": "length"}}
    assert answered({"text": "a"}, good, judged)["output"] == "yes"
    assert answered({"text": "a"}, good, judged)["valid"] is False
    bad = {"response": None, "error": {"code": "batch_cancelled", "message": "m"}}
    assert answered({"output": "old"}, bad, {}) | {"output": "old"} == answered({"output": "old"}, bad, {})
    assert answered({}, bad, {})["error"] == "batch_cancelled: m"
    assert answered({}, bad, {})["valid"] is None


def item(number: int, **more: Any) -> dict[str, Any]:
    figures = {
        "steps": 10,
        "tax_nats": float(number),
        "removed_mass": 0.5,
        "changed_steps": 2,
        "rejected_steps": 1,
        "forced_steps": 5,
        "finish_reason": "stop",
        "errors": ["<b>bad</b>"],
        "by_path": {f"/list/{number}/x": {"tokens": 4, "tax_nats": 1.0, "removed_mass": 0.25}},
        "values": [{"path": "/list/0/x", "tax_nats": float(number), "value": "'v'"}],
        "findings": [{"code": "cut_off", "severity": "fault", "message": "m", "remedies": ["more tokens"]}],
    }
    return {
        "line": number,
        "custom_id": f"c{number}",
        "state": "done",
        "good": True,
        "valid": number % 2 == 0,
        "prompt_tokens": 2,
        "completion_tokens": 3,
        "trace_id": f"trc_{number}",
        "error": None,
        "figures": figures,
    } | more


def judged(valid: bool | None, finish: str, **figures: Any) -> dict[str, Any]:
    """An item whose run kept no trace."""
    return item(1, valid=valid, figures={"finish_reason": finish, **figures}, trace_id=None)


ANSWERS: list[tuple[list[dict[str, Any]], str, bool]] = [
    ([judged(False, "length")] * 3, "3 answered: 0 valid, 3 cut at max_tokens", False),
    ([judged(True, "stop")] * 2, "2 answered: 2 valid", True),
    ([judged(True, "length")], "1 answered: 1 valid", True),  # it was complete when its tokens ended
    ([judged(True, "stop"), judged(False, "stop")], "2 answered: 1 valid, 1 not valid", False),
    ([judged(None, "length"), judged(None, "stop")], "2 answered: 1 cut at max_tokens, 1 without a constraint", True),
    ([judged(None, "stop")] * 2, "2 answered", True),
    ([judged(False, "stop", broken=1)], "1 answered: 0 valid, 1 broken by a fault of Espalier", False),
    (
        [judged(True, "stop"), item(9, good=False, error={"code": "bad_request"})],
        "1 answered: 1 valid; 1 failed",
        False,
    ),
]


@pytest.mark.parametrize(("items", "sentence", "good"), ANSWERS)
def test_invalid_and_cut_answers_are_counted_first(items: list[dict[str, Any]], sentence: str, good: bool) -> None:
    report = report_of(items)
    assert report["answers"] == sentence
    assert is_good(report) is good
    assert sum(report["finish_reasons"].values()) == sum(report["verdicts"].values())


def test_the_report_sums_what_items_say() -> None:
    failed = item(9, good=False, state="failed", error={"code": "bad_request"}, figures=None)
    never = {"line": 10, "custom_id": "c10", "state": "expired", "good": None}
    found = report_of([*(item(one) for one in range(1, 5)), failed, never])
    assert found["items"] == {"done": 4, "failed": 1, "expired": 1}
    assert found["verdicts"] == {"valid": 2, "invalid": 2}
    assert found["errors"] == {"bad_request": 1}
    assert found["tokens"] == {"prompt": 8, "completion": 12}
    assert found["tax_nats"] == 10.0
    assert found["removed_mass"] == 0.5
    assert found["rejected_rate"] == 4 / 20
    assert found["by_path"] == {"/list/*/x": {"items": 4, "tokens": 16, "tax_nats": 4.0, "removed_mass": 0.25}}
    assert [one["custom_id"] for one in found["outliers"]] == ["c4", "c3", "c2", "c1"]
    assert found["findings"][0] | {"examples": []} == {
        "code": "cut_off",
        "severity": "fault",
        "items": 4,
        "examples": [],
        "remedies": ["more tokens"],
    }
    assert json.loads(json.dumps(found)) == found
    page = render(found, traces="/traces/{id}/page")
    assert "<b>bad" not in page
    assert 'href="/traces/trc_4/page"' in page
    assert report_of([])["items"] == {}


def test_places_of_lists_are_summed_together() -> None:
    assert general_path("/a/0/b/12") == "/a/*/b/*"
    assert general_path("") == ""


def test_a_finding_at_two_places_of_an_item_is_in_one_item() -> None:
    twice = item(1)
    finding = twice["figures"]["findings"][0]
    twice["figures"] = twice["figures"] | {"findings": [finding, finding]}
    (counted,) = report_of([twice])["findings"]
    assert counted["items"] == 1


def test_the_page_of_a_report_counts_invalid_and_cut_answers_first() -> None:
    cut = item(1)
    cut["figures"] = cut["figures"] | {"finish_reason": "length"}
    failed = item(9, good=False, state="failed", error={"code": "bad_request"}, figures=None)
    page = render(report_of([cut, item(2), failed]))
    counts = "2 answered: 1 valid, 1 cut at max_tokens; 1 failed: 1 bad request."
    assert f'<p class="plainly">{counts}</p>' in page


def test_the_page_of_a_report_has_words_for_findings_and_no_empty_column() -> None:
    items = [item(number, trace_id=None) for number in range(1, 3)]
    page = render(report_of(items))
    assert "the text was cut off at the token limit" in page
    assert "cut_off" not in page
    assert ">trace<" not in page
    assert ">trace<" in render(report_of([item(1)]))
    assert re.findall(r"<t[dh][^>]*></t[dh]>", page) == []
    empty = render(report_of([]))
    assert "<table" not in empty
    assert "0 answered." in empty


def test_every_finding_of_a_diagnosis_has_words() -> None:
    source = Path(diagnose.__file__).read_text("utf-8")
    assert set(re.findall(r'code="([a-z_]+)"', source)) == set(WORDS)
    assert not any("_" in words for words in WORDS.values())


def parquet_bomb(path: Path, rows: int, size: int) -> Path:
    """A table of one text, which is stored once."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet  # the extra [parquet]

    column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["a" * size]))
    parquet.write_table(pa.table({"text": column}), path, compression="zstd", use_dictionary=True)
    return path


def test_a_parquet_file_with_damaged_statistics_ended_the_process() -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    with pytest.raises(InputError, match="damaged-statistics"):
        list(read_rows(CORPUS / "rows-parquet" / "damaged-statistics.parquet"))


def test_a_parquet_file_of_600_bytes_is_not_gigabytes_of_input(tmp_path: Path) -> None:
    """A dictionary of one text of 1 MB, and 40,000 rows that name it."""
    path = parquet_bomb(tmp_path / "bomb.parquet", 40_000, 1_000_000)
    assert path.stat().st_size < 5_000
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=r"over 209,715,200 bytes, at row 210"):
            for _ in read_rows(path):
                pass
        assert tracemalloc.get_traced_memory()[1] < 600_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_one_text_of_a_parquet_file_is_no_bomb_either(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="row 1 has over 8,000,000 bytes"):
        next(read_rows(parquet_bomb(tmp_path / "wide.parquet", 1000, 50_000_000)))
    with pytest.raises(TooLarge, match="a row group"):
        next(read_rows(parquet_bomb(tmp_path / "wider.parquet", 3, 300_000_000)))


def test_lines_and_rows_of_csv_and_json_have_limits(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "a" * 9_000_000)
    with pytest.raises(TooLarge, match="line 2 has over 8,000,000 characters"):
        list(read_rows(path))
    path.write_text('text,more\n"' + ("a" * 6_000_000 + "\n") * 2 + '",b')
    with pytest.raises(InputError):
        list(read_rows(path))
    path.write_text("a,b\n" + ("x" * 3_000_000 + "," + "y" * 3_000_000 + "\n") * 3)
    with pytest.raises(TooLarge, match="at row 2"):
        list(read_rows(path, most=10_000_000))
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"text": "a"}\n' * 100)
    assert len(list(read_rows(lines))) == 100
    with pytest.raises(TooLarge, match=r"a\.jsonl' have over 500 bytes"):
        list(read_rows(lines, most=500))


def test_a_template_or_shared_fields_do_not_make_much_of_little() -> None:
    template = Template(text="{text}" * 2_000)
    with pytest.raises(TooLarge, match="a prompt of over 8,000,000 characters"):
        list(templated([{"text": "a" * 1_000_000}], template))
    rows = [{"text": "a"}] * 40_000
    shared = Template(text="{text}", system="b" * 100_000)
    with pytest.raises(TooLarge, match="at most 209,715,200 bytes"):
        sum(map(len, encoded(templated(rows, shared))))
    with pytest.raises(TooLarge, match="row 1 is a request of over 8,000,000 bytes"):
        list(encoded(with_shared([{"body": {}}], {"user": "c" * 9_000_000})))
    with pytest.raises(TooLarge, match="at most 50,000 lines"):
        sum(1 for _ in encoded([{}] * 50_001))


@pytest.mark.parametrize("output", ["out.jsonl", "out.csv", "out.parquet"])
def test_dates_decimals_and_bytes_of_a_table_are_texts_where_json_has_none(tmp_path: Path, output: str) -> None:
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet  # the extra [parquet]

    day, raw = dt.date(2026, 1, 31), "é".encode() + b"\xff"
    columns = {"day": [day], "raw": [raw], "price": [Decimal("1.50")], "days": [[day]], "none": [math.nan]}
    parquet.write_table(pa.table(columns), tmp_path / "in.parquet")
    rows = list(read_rows(tmp_path / "in.parquet"))
    template = Template(text="{day} {raw} {price} {days} {none}", endpoint=CHAT)
    (line,) = encoded(templated(rows, template))
    content = json.loads(line)["body"]["messages"][0]["content"]
    assert content == '2026-01-31 é\\xff 1.50 ["2026-01-31"] null'
    assert json.loads(next(encoded(with_shared(rows, {}))))["day"] == "2026-01-31"
    write_rows(tmp_path / output, iter(rows))
    (row,) = read_rows(tmp_path / output)
    assert str(row["day"]) == "2026-01-31"
    assert row["raw"] in (raw, "é\\xff")


def test_a_damaged_parquet_file_is_an_error_of_ours(tmp_path: Path) -> None:
    """An index beyond its dictionary, and a date after the year 9999, which pyarrow finds when values are taken out."""
    pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet  # the extra [parquet]

    parquet.write_table(pa.table({"at": pa.array([2**62], pa.timestamp("us"))}), tmp_path / "late.parquet")
    with pytest.raises(InputError, match="cannot read"):
        list(read_rows(tmp_path / "late.parquet"))
    damaged = Path(__file__).parents[2] / "fuzz/parsers/corpus/rows-parquet/index.parquet"
    with pytest.raises(InputError, match="out-of-bounds"):
        list(read_rows(damaged))
