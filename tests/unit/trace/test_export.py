"""A trace as a table, as JSON lines and as a drawing."""

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path

from espalier.trace.foreign.read import read_any
from espalier.trace.records import StepRecord, Trace
from espalier.trace.report.export import COLUMNS, rows, to_csv, to_json_lines, to_svg
from tests.traces import sample_trace
from tests.unit.trace.test_foreign import GREEDY, reply, written


def test_csv_has_a_row_for_each_step_and_parses_back() -> None:
    trace = sample_trace(40)
    found = list(csv.DictReader(io.StringIO(to_csv(trace))))
    assert tuple(found[0]) == COLUMNS
    assert [json.loads(one["text"]) for one in found] == [one.text for one in trace.steps]
    assert [float(one["tax_nats"]) for one in found] == [one.tax_nats for one in trace.steps]
    assert found[-1]["cumulative_tax_nats"] == str(trace.total_tax_nats)
    assert to_csv(trace).count("\r\n") == len(trace.steps) + 1


def test_what_was_not_measured_is_empty_in_a_row(tmp_path: Path) -> None:
    row = rows(read_any(written(tmp_path, reply(__verbose=GREEDY))))[1]
    assert (row["entropy_before"], row["allowed_count"], row["exactness"]) == (None, None, "bounded")
    assert row["removed_mass"] < row["removed_mass_upper"]


def test_json_lines_are_the_steps_and_the_drawing_is_xml_that_says_what_it_shows() -> None:
    trace = sample_trace(25)
    assert [StepRecord.from_json(json.loads(one)) for one in to_json_lines(trace).splitlines()] == list(trace.steps)
    for one in (trace, sample_trace(1), Trace(steps=(), text="", finish_reason="stop")):
        root = ET.fromstring(to_svg(one))
        assert f"{len(one.steps)} steps" in root.attrib["aria-label"]
    bars = [one for one in ET.fromstring(to_svg(trace)).iter() if one.tag.endswith("rect")]
    assert 1 < len(bars) <= 26
