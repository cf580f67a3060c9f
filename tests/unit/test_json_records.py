"""The JSON of every stored or sent type, byte for byte: each is built twice, with the fewest fields and with all.

The texts are in `json_records.json`. They were written when each type had its own `to_json`; what one declaration
writes must be the same. `python -m tests.unit.test_json_records` writes them anew, where JSON is meant to change.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import math
import types
import typing
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

TEXTS = Path(__file__).with_name("json_records.json")
TYPES = (
    "activations.capture.options:Activations",
    "activations.foreign.entry:StoredRequest",
    "activations.foreign.salvage:Salvage",
    "activations.reconstruct.report:ReconstructionReport",
    "activations.store.record:RequestRecord",
    "api.installed:InstalledName",
    "automata.reasons.blame:Blame",
    "chat.tools:ToolCall",
    "constraints.json_schema.check:CompileCost",
    "constraints.json_schema.check:SchemaReport",
    "constraints.json_schema.instances:Instance",
    "constraints.safety.judge:SafetyMatch",
    "constraints.safety.spec:Custom",
    "constraints.verdict:Verdict",
    "constraints.words.report:WordCount",
    "constraints.words.report:WordReport",
    "decoding.plan:Drafting",
    "decoding.plan:Weighing",
    "decoding.replay:Divergence",
    "decoding.replay:ReplayResult",
    "decoding.replay:ReplayedStep",
    "harness.cases.case:ExpectedCall",
    "harness.checks:Failure",
    "harness.compare.paired:Difference",
    "harness.compare.runs:Comparison",
    "harness.results:Report",
    "harness.results:Sample",
    "jobs.values:InputFault",
    "schema.contract:Contract",
    "schema.contract:ContractEntry",
    "schema.read.unknown:Unknown",
    "server.process.prebuild:Prebuild",
    "tokens.analyse:Glitch",
    "tokens.analyse:Matches",
    "trace.records:Trace",
    "trace.report.diff:CostPair",
    "trace.report.diff:Parting",
    "trace.report.diff:SideCost",
    "trace.report.diff:DiffToken",
    "trace.report.diff:TraceDiff",
    "trace.report.findings:Finding",
    "trace.report.findings:Remedy",
    "trace.steps:Candidate",
    "trace.steps:DraftTokens",
    "trace.steps:Rewind",
    "trace.steps:StepRecord",
    "trace.summary:TraceSummary",
)
VALUES: Mapping[str, Any] = {
    "harness.results:Report.results": (),
    "jobs.values:InputFault.param": "file_id",
    "trace.records:Trace.level": "summary",
    "trace.report.findings:Remedy.others": {"http": "in a body"},
    "activations.capture.options:Activations.sites": ("residual", "mlp"),
    "activations.capture.options:Activations.layers": (1, 2),
    "activations.capture.options:Activations.positions": "last",
    "activations.capture.options:Activations.dtype": "int8",
    "activations.reconstruct.report:ReconstructionReport.templates": Counter({"chatml": 3, "none": 1}),
    "constraints.words.report:WordReport.enough": {90: 5_000, 99: None},
    "trace.steps:StepRecord.logprob": -math.inf,
    "trace.summary:TraceSummary.by_path": {"/a": {"tokens": 3, "tax_nats": 0.5, "removed_mass": 0.25}},
    "trace.summary:TraceSummary.by_rule": {"root": {"tokens": 3, "tax_nats": 0.5, "removed_mass": 0.25}},
}
"""Fields whose values are checked when the object is made."""


def build(name: str, *, is_full: bool) -> Any:
    """The object of one type: with all fields, or with those that have no default."""
    module, _, class_name = name.partition(":")
    record = getattr(importlib.import_module(f"espalier.{module}"), class_name)
    return _instance(record, is_full=is_full)


def _instance(record: type, *, is_full: bool) -> Any:
    name = f"{record.__module__.removeprefix('espalier.')}:{record.__name__}"
    values = {}
    for declared in dataclasses.fields(record):
        is_needed = declared.default is declared.default_factory is dataclasses.MISSING
        if declared.init and (is_full or is_needed):
            key = f"{name}.{declared.name}"
            hint = _hints(record)[declared.name]
            values[declared.name] = VALUES[key] if key in VALUES else _value(hint, declared.name)
    return record(**values)


def _hints(record: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for base in reversed(record.__mro__):
        names = {**vars(typing), **vars(importlib.import_module(base.__module__))}
        own = inspect.get_annotations(base)
        # A named tuple has references, other classes have texts.
        hints |= {name: eval(getattr(hint, "__forward_arg__", hint), names) for name, hint in own.items()}
    return hints


def _value(hint: Any, name: str) -> Any:
    """A value of a type that differs from the others of that type."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = hint.__origin__
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _value(arguments[0], name)
    if origin is typing.Literal:
        return arguments[-1]
    if origin is tuple and arguments[-1] is not ...:
        return tuple(_value(argument, name) for argument in arguments)
    if origin in (tuple, Sequence, list):
        values = [_value(arguments[0], f"{name} {index}") for index in range(2)]
        return values if origin is list else tuple(values)
    if origin in (dict, Mapping):
        return {_value(arguments[0], f"{name} key"): _value(arguments[1], f"{name} value")}
    if dataclasses.is_dataclass(hint):
        return _instance(hint, is_full=True)
    if hasattr(hint, "_fields"):  # a named tuple
        return hint(*(_value(inner, f"{name} {key}") for key, inner in _hints(hint).items()))
    number = zlib.crc32(name.encode()) % 997
    plain = {str: f"{name} ß", int: number, float: number + 0.25, bool: True, bytes: b"\xc3\x9f"}
    return plain.get(hint, {"any": [number, None]})


def _texts(name: str) -> list[str]:
    return [json.dumps(build(name, is_full=is_full).to_json(), ensure_ascii=False) for is_full in (False, True)]


@pytest.mark.parametrize("name", TYPES)
def test_the_json_of_a_type_is_what_it_was(name):
    assert _texts(name) == json.loads(TEXTS.read_text(encoding="utf-8"))[name]


if __name__ == "__main__":
    TEXTS.write_text(
        json.dumps({name: _texts(name) for name in TYPES}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )
