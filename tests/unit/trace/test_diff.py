"""Two traces beside one another: the same, parted, or the same text at another cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from espalier.trace.records import Trace
from espalier.trace.report.diff import clip, diff
from espalier.trace.summary import summarise
from tests.traces import sample_trace


def test_a_trace_is_the_same_as_itself_read_back() -> None:
    trace = sample_trace(40)
    found = diff(trace, Trace.from_json(trace.to_json()))
    assert found.is_same
    assert found.to_json()["same"] is True
    assert found.lines() == [f"the same: 40 tokens, {trace.total_tax_nats:.2f} nats"]


def test_they_part_at_the_first_other_token_and_costs_are_sums() -> None:
    left = sample_trace(40)
    steps = list(left.steps)
    steps[7] = replace(steps[7], token_id=9_999, text="\x1b[2Jx\n", tax_nats=steps[7].tax_nats + 3)
    right = replace(left, steps=tuple(steps[:20]), finish_reason="length")
    found = diff(left, right)
    assert (found.common, found.is_same) == (7, False)
    assert found.parting is not None
    assert found.parting.left is not None
    assert found.parting.right is not None
    assert (found.parting.step, found.parting.left.text, found.parting.right.id) == (7, left.steps[7].text, 9_999)
    assert found.common_tax[0] == found.common_tax[1] == pytest.approx(sum(s.tax_nats for s in left.steps[:7]))
    assert found.costs[1].tax_nats == pytest.approx(right.total_tax_nats)
    lines = found.lines(("a.json", "a rather long name of a file.json"))
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in "".join(lines)


def test_one_that_is_a_beginning_of_the_other_parts_at_its_end() -> None:
    left = sample_trace(40)
    found = diff(left, replace(left, steps=left.steps[:5]))
    assert found.parting is not None
    assert (found.common, found.parting.right) == (5, None)
    assert "its end" in "\n".join(found.lines())


def test_the_same_tokens_at_another_cost_differ_by_step_and_by_path() -> None:
    left = sample_trace(40)
    steps = list(left.steps)
    places = [one.path for one in left.by_token()]
    at = next(place for place, path in enumerate(places) if path == "/name")
    steps[at] = replace(steps[at], tax_nats=steps[at].tax_nats + 2.0)
    found = diff(left, replace(left, steps=tuple(steps)))
    assert found.parting is None
    assert [one[0] for one in found.dearer] == [at]
    assert not found.is_same
    assert found.paths[0].name == "/name"
    assert found.paths[0].more == pytest.approx(2.0)
    assert all(one.more == 0 for one in found.paths[1:])


def test_another_end_of_the_same_tokens_is_a_difference() -> None:
    left = sample_trace(40)
    assert not diff(left, replace(left, finish_reason="length")).is_same


def test_without_steps_the_sums_alone_are_compared() -> None:
    left = sample_trace(40)
    right = replace(left, steps=(), level="summary", sums=summarise(left.steps, left.constraint, left.text))
    found = diff(left, right)
    assert (found.common, found.parting, found.is_same) == (None, None, True)
    assert found.costs[0] == found.costs[1]
    dearer = replace(left, steps=tuple(replace(s, tax_nats=s.tax_nats + 1) for s in left.steps))
    assert not diff(dearer, right).is_same


def test_places_of_one_side_alone_are_no_table_of_gaps() -> None:
    left = sample_trace(40)
    assert diff(left, replace(left, constraint=None, text="{")).paths == ()


def test_clipped_text_moves_no_cursor() -> None:
    assert clip("a\x1b[2J\r\nb", 80) == "a\\x1b[2J\\r\\nb"
    assert clip("abcdef", 4) == "abc…"
