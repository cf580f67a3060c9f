"""The format before rejection logs is read: formats.md 1.5 of the tracer."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from espalier.errors import EspalierError, InputError
from espalier.trace.foreign.read import read
from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose


def candidate(token: int, text: str, logit: float) -> dict[str, Any]:
    return {"token": token, "logit": logit, "p": 0, "str": text}


def filtering(step: int, before: list[Any], after: list[Any]) -> dict[str, Any]:
    data = {"candidates_before": before, "candidates_after": after, "rejected_count": len(before) - len(after)}
    return {"step": step, "type": "token_filtering", "data": data}


def accepted(step: int, token: int, text: str) -> dict[str, Any]:
    return {"step": step, "type": "token_accepted", "data": {"token": token, "token_str": text}}


SURE, BRACE = candidate(5, "Sure", 3.0), candidate(9, "{", 1.0)
EVENTS = [
    filtering(0, [SURE], []),
    filtering(0, [SURE, BRACE], [BRACE]),
    accepted(0, 9, "{"),
    filtering(1, [BRACE], [BRACE]),
    accepted(1, 7, '"a"'),
    accepted(2, 8, "}"),
]


def written(folder: Path, events: Any) -> Path:
    path = folder / "trace.json"
    empty = {"model": "", "grammar_file": "", "prompt": "", "timestamp": ""}
    path.write_text(json.dumps({"trace_version": "1.0", "metadata": empty, "events": events}))
    return path


def test_a_grammar_trace_has_its_rejections_and_probabilities_from_logits(tmp_path: Path) -> None:
    found = read(written(tmp_path, EVENTS))
    assert (found.kind, found.trace.text) == ("grammar", '{"a"}')
    assert [one.verdict for one in found.trace.steps] == ["rejected", "accepted", "unknown"]
    first = found.trace.steps[0]
    share = math.exp(3.0) / (math.exp(3.0) + math.exp(1.0))
    assert [(one.id, one.prob, one.allowed) for one in first.pre_masking] == [
        (5, pytest.approx(share), False),
        (9, pytest.approx(1 - share), True),
    ]
    assert first.rejected is not None
    assert (first.rejected.id, first.rejected.text, first.token_id) == (5, "Sure", 9)
    assert found.trace.summary()["unknown_steps"] == 1
    assert "rejections_unknown" in {one.code for one in diagnose(found.trace)}


def test_it_is_converted_by_saving_it(tmp_path: Path) -> None:
    trace = read(written(tmp_path, EVENTS)).trace
    trace.save(tmp_path / "ours.json")
    assert Trace.load(tmp_path / "ours.json") == trace


@pytest.mark.parametrize("event", [1, {}, {"step": -1, "data": {}}, {"step": True, "data": {}}, {"step": 1, "data": 2}])
def test_an_event_that_is_none_is_named(tmp_path: Path, event: Any) -> None:
    with pytest.raises(InputError, match="event 6 of the grammar trace"):
        read(written(tmp_path, [*EVENTS, event]))


def test_odd_candidates_are_no_crash(tmp_path: Path) -> None:
    odd = [
        None,
        [],
        {},
        {"token": "x", "logit": "y"},
        {"token": 1, "logit": math.inf},
        {"token": 2, "logit": -math.inf},
    ]
    path = written(tmp_path, [filtering(0, odd, odd), accepted(0, 1, "a"), {**accepted(1, 1, "a"), "type": None}])
    try:
        read(path)
    except EspalierError as error:
        pytest.fail(str(error))
