"""What is read as a record has the types that its fields declare; what has not is named by path, type and value."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest

from espalier.automata.reasons.blame import Blame
from espalier.errors import InputError
from espalier.harness.cases.case import TestCase
from espalier.harness.checks import Failure
from espalier.harness.results import CaseResult, Report, Sample
from espalier.json_record import FIRST, INTERNAL, NEEDED, OMITTED, Json, JsonRecord, in_json
from espalier.trace.records import Trace, trace_of
from espalier.trace.steps import DraftTokens, Rewind
from espalier.trace.summary import summarise
from tests.traces import sample_trace

REPLACEMENTS: tuple[Any, ...] = (None, True, 7, 1.5, "x", [], {}, ["x"], {"x": 1}, 1e300, math.nan, math.inf)
FREE = ("sampling", "decoding", "weighing", "constraint", "soft")
"""Objects of the metadata that a trace does not look into, but for each `kind` of a constraint."""
NULLABLE = {
    "constraint",
    "verdict",
    "score",
    "weighing",
    "logprob",
    "logit",
    "rejected",
    "z_sampled",
    "blame",
    "rule",
    "offset",
    "position",
    "expected",
    "was_changed",
    "bounds",
    "max_tokens",
    "path",
    "by_path",
    "by_rule",
    "refused_favourites",
    "taken_back",
}
"""And `removed_by` of a summary."""
FAR = {"logit", "logprob"}
"""Numbers that nothing sums: they may be as large as a float is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf(JsonRecord):
    bytes: bytes
    tax: Annotated[float, Json("tax_nats")]
    name: Annotated[str, Json(within="token")]
    id: Annotated[int, Json(within="token", most=9)] = 0
    note: Annotated[str, OMITTED] = ""
    secret: Annotated[str, INTERNAL] = ""
    reason: Annotated[str | None, NEEDED] = None

    @property
    @in_json(after=FIRST)
    def count(self) -> int:
        return len(self.bytes)

    @property
    @in_json("double", after="tax")
    def twice(self) -> float:
        return 2 * self.tax


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(JsonRecord):
    leaves: tuple[Leaf, ...] = ()
    by_name: dict[str, Leaf] | None = None


LEAF = {"count": 2, "bytes": [1, 2], "tax_nats": 0.5, "double": 1.0, "token": {"name": "a", "id": 3}, "reason": None}


def test_fields_and_properties_stand_where_they_are_declared():
    leaf = Leaf(bytes=b"\1\2", tax=0.5, name="a", id=3, secret="s")
    assert json.dumps(leaf.to_json()) == json.dumps(LEAF)
    assert Leaf.from_json(LEAF) == replace(leaf, secret="")
    assert replace(leaf, note="n").to_json() == LEAF | {"note": "n"}
    branch = Branch(leaves=(leaf,), by_name={"x": leaf})
    assert branch.to_json() == {"leaves": [LEAF], "by_name": {"x": LEAF}}
    assert Branch.from_json(branch.to_json()).by_name == {"x": replace(leaf, secret="")}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "it is not an object but a list"),
        ({"leaves": {}}, "leaves is not a list but an object"),
        ({"leaves": [LEAF, LEAF | {"tax_nats": "0"}]}, "leaves[1].tax_nats is not a finite number but '0'"),
        ({"leaves": [LEAF | {"double": None}]}, "leaves[0].double is not a finite number but null"),
        ({"leaves": [LEAF | {"bytes": [256]}]}, "leaves[0].bytes is not a list of bytes but a list"),
        ({"leaves": [LEAF | {"bytes": 10**9}]}, "leaves[0].bytes is not a list of bytes but 1000000000"),
        ({"leaves": [LEAF | {"secret": "s"}]}, "leaves[0] has a field 'secret', which is not known"),
        ({"leaves": [{**LEAF, "token": {}}]}, "leaves[0].token has no 'name'"),
        ({"leaves": [{**LEAF, "token": {"name": True}}]}, "leaves[0].token.name is not a text but true"),
        ({"leaves": [LEAF | {"token": {"name": "a", "id": 10}}]}, "leaves[0].token.id is not between -9 and 9 but 10"),
        ({"by_name": {"x": LEAF | {"tax_nats": math.nan}}}, "by_name.x.tax_nats is not a finite number but nan"),
        ({"leaves": [{k: v for k, v in LEAF.items() if k != "reason"}]}, "leaves[0] has no 'reason'"),
        ({"leaves": ["x" * 1000]}, f"leaves[0] is not an object but '{'x' * 59}"),
    ],
)
def test_a_wrong_field_is_named_with_what_it_should_be_and_what_was_there(data, message):
    with pytest.raises(InputError) as caught:
        Branch.from_json(data)
    assert caught.value.message == message


def whole_trace() -> dict[str, Any]:
    """A trace with every field, at level `summary`, which also has its sums."""
    blame = Blame(member="gbnf", reason="no", rule="root", offset=1, position="line 1", expected="a")
    trace = sample_trace(12)
    steps = tuple(replace(step, bounds=(0.0, 0.5), blame=blame, note="n", is_unknown=True) for step in trace.steps[-3:])
    sums = summarise(trace.steps, trace.constraint, trace.text)
    full = replace(
        trace,
        steps=steps,
        rewinds=(Rewind(step=1, tokens=(4, 5), text="x", blame=blame),),
        level="summary",
        drafts=(DraftTokens(step=1, source="prompt", drafted=3, accepted=2),),
        score=0.5,
        prompt_ids=(1, 2),
        weighing={"log_weight": 0.5},
        decoding={"strategy": "mask"},
        soft=({"kind": "soft"},),
        setup={"before": "", "stream": 1, "max_tokens": 9, "filters": ["f"]},
        sums=replace(
            sums, refused_favourites={"pii": {"email": 1}}, taken_back={"pii": {"email": 2}}, removed_by={"a": 0.5}
        ),
    )
    whole: dict[str, Any] = json.loads(json.dumps(full.to_json()))
    return whole


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values inside; of a list, the first element's."""
    inner = value.items() if isinstance(value, dict) else [*enumerate(value)][:1] if isinstance(value, list) else ()
    for key, part in inner:
        yield (*path, key)
        yield from places(part, (*path, key))


def is_right(path: tuple[Any, ...], before: Any, after: Any) -> bool:
    """Whether a trace may have `after` in the place of `before`."""
    names = [key for key in path if isinstance(key, str)]
    name = names[-1] if isinstance(path[-1], str) else ""
    if names[0] not in ("metadata", "text", "steps", "summary"):
        return True
    if names[1:2] and names[1] in FREE and len(path) > (3 if names[1] == "soft" else 2):
        return names[1] != "constraint" or name != "kind" or isinstance(after, str)
    if names[1:2] == ["verdict"] and len(path) > 2:
        return name != "errors" or isinstance(after, list)
    if after is None:
        return name in NULLABLE or (name == "removed_by" and names[0] == "summary")
    if isinstance(before, bool) or isinstance(after, bool):
        return type(before) is type(after)
    if isinstance(before, float | int) and isinstance(after, float | int):
        is_whole = isinstance(before, int) and names[0:2] not in (["summary", "by_path"], ["summary", "by_rule"])
        return math.isfinite(after) and (abs(after) <= 1e15 or name in FAR) and (isinstance(after, int) or not is_whole)
    return isinstance(before, str) and isinstance(after, str)


def problem_of(data: Any) -> str | None:
    """Why this is no trace; None if it is one, which can then be written."""
    try:
        json.dumps(trace_of(data, "x.json").to_json())
    except InputError as error:
        return error.message
    return None


def test_every_field_of_a_trace_with_every_wrong_type_is_refused_by_its_path():
    whole = whole_trace()
    assert Trace.from_json(whole).to_json() == whole
    checked = 0
    for path in places(whole):
        holder = changed = copy.deepcopy(whole)
        for key in path[:-1]:
            holder = holder[key]
        before = holder[path[-1]]
        for after in REPLACEMENTS:
            if before is None or (isinstance(before, dict | list) and type(before) is type(after)):
                continue  # its type is not seen here; or its own parts are replaced one by one
            holder[path[-1]] = after
            shown = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
            problem = problem_of(changed)
            assert (problem is None) == is_right(path, before, after), f"{shown}: {before!r} -> {after!r}: {problem}"
            if problem is not None:
                assert problem.startswith(f"'x.json' is not a saved trace: {shown.partition('.bytes[')[0]}")
            checked += 1
    assert checked > 2000


def test_a_trace_without_a_needed_field_is_refused_by_its_name():
    whole = whole_trace()
    needed = {
        (): {"metadata", "text", "steps", "summary"},
        ("metadata",): {"model", "prompt", "finish_reason"},
        ("steps", 0): {*whole["steps"][0]} - {"removed_by", "was_changed", "rule", "bounds", "is_unknown", "note"},
        ("steps", 0, "token"): {"id", "text", "bytes", "logprob", "is_special"},
        ("steps", 0, "resampled"): {"id", "text", "bytes", "prob"},
        ("metadata", "rewinds", 0): {"step", "tokens", "text", "blame"},
        ("metadata", "drafts", 0): {"step", "source", "drafted", "accepted"},
        ("summary", "worst_tokens", 0): {"step", "text", "tax_nats", "path"},
    }
    for path, names in needed.items():
        holder = changed = copy.deepcopy(whole)
        for key in path:
            holder = holder[key]
        for name in [*holder]:
            value = holder.pop(name)
            if name in names:
                with pytest.raises(InputError, match=f"has no '{name}'"):
                    trace_of(changed, "x.json")
            else:
                trace_of(changed, "x.json")
            holder[name] = value


def test_a_report_of_test_cases_comes_back_and_a_wrong_field_of_it_is_named():
    samples = (Sample(output="a", latency=0.25, failures=(Failure(check="json", reason="no"),)), Sample(error="late"))
    results = (CaseResult(case=TestCase(name="one", prompt="p"), samples=samples, notes=("n",)),)
    report = Report(model="m", results=results, seconds=1.5, seed=2**63)
    data = json.loads(json.dumps(report.to_json()))
    assert Report.from_json(data) == report
    assert Report.from_json(data | {"more": 1}) == report
    wrong = copy.deepcopy(data)
    wrong["results"][0]["Samples"][1]["latency"] = "soon"
    with pytest.raises(InputError, match=r"results\[0\]\.Samples\[1\]\.latency is not a finite number but 'soon'"):
        Report.from_json(wrong)
    with pytest.raises(InputError, match="this is no report of test cases: it has no 'model'"):
        Report.from_json({})
