"""Fit the remedies of a finding to the request: what there is nothing to apply to, or is in force, is left out.

It reads the constraint as the JSON of its spec, and no steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from espalier.sampling.samplers.registry import SAMPLERS
from espalier.schema.pointers import dereference, split
from espalier.trace.paths import JSON_KINDS, member_specs
from espalier.trace.records import Trace
from espalier.trace.report import findings as f
from espalier.trace.report.findings import Remedy

PROSE = ("wordlist", "ban", "safety", "free", "soft_json", "soft_wordlist")
"""Kinds under which the whole text is prose already."""
OF_SCHEMA = (f.SHOW_THE_SCHEMA, f.OWN_ORDER, f.BOUND_NUMBERS, f.BOUND_LENGTH, f.RENAME_KEYS)
OF_JSON = (f.BOUNDED_WHITESPACE, f.NATURAL_LAYOUT)
SHOWN_OPTIONS = 3
MAX_DEPTH = 4
"""Branches within branches that are looked into."""


def fit(remedies: Sequence[Remedy], trace: Trace) -> tuple[Remedy, ...]:
    """The remedies that apply to the request of a trace, in the same order."""
    specs = [*walk_specs(trace.constraint)]
    kinds = {spec["kind"] for spec in specs}
    innermost = {spec["kind"] for spec in specs if not any(member_specs(spec))}
    schemas = [spec for spec in specs if spec["kind"] == "json_schema"]
    fitting = []
    for remedy in remedies:
        if remedy is f.SHOW_THE_SCHEMA and len(schemas) != 1:
            continue  # `schema_in_prompt` takes exactly one
        if remedy in OF_SCHEMA and not schemas:
            continue
        if remedy in OF_JSON and not any(
            spec["kind"] in JSON_KINDS and spec.get("whitespace") != remedy.change["whitespace"] for spec in specs
        ):
            continue
        if remedy is f.PROSE_FIRST and (innermost <= {*PROSE} or kinds & {"after", "thinking"}):
            continue
        if remedy.action in ("another_strategy", "jump") and trace.strategy != "mask":
            continue
        if remedy is f.ANOTHER_STRATEGY:
            if trace.sampling.get("temperature") == 0:
                continue  # nothing is drawn
            if _truncates(trace.sampling):
                remedy = replace(remedy, change={**remedy.change, "target": "truncated"})
        fitting.append(remedy)
    return tuple(fitting)


def _truncates(sampling: Mapping[str, Any]) -> bool:
    """Whether a sampler removes tokens from the distribution, as `SamplingConfig` has it in JSON."""
    switches = [sampler.switch for sampler in SAMPLERS.values() if sampler.truncates]
    return bool(sampling.get("mirostat")) or any(sampling.get(one.name, one.off) != one.off for one in switches)


def walk_specs(constraint: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """A spec and all specs within it. constraint: `Spec.to_json()`, None for no spec."""
    if constraint is not None and "kind" in constraint:
        yield constraint
        for member in member_specs(constraint):
            yield from walk_specs(member)


def widen(trace: Trace, path: str, wish: str | None) -> tuple[Remedy, ...]:
    """How to widen what the schema allows at a JSON pointer of the document; () where no schema says anything of it.
    wish: what the model wanted there, None if unknown."""
    for spec in walk_specs(trace.constraint):
        schemas = [*_schemas_at(spec.get("schema"), spec.get("schema"), split(path))]
        if spec["kind"] == "json_schema" and schemas:
            break
    else:
        return ()
    options = [option for schema in schemas for option in schema.get("enum", ())]
    if options:
        known = ", ".join(map(repr, options[:SHOWN_OPTIONS])) + (", …" if len(options) > SHOWN_OPTIONS else "")
        wanted = f"what the model wants, such as {wish!r}" if wish else "what the model wants"
        return (Remedy(action="widen", about=f"add to the enum at {path} ({known}) {wanted}"),)
    if any("const" in schema for schema in schemas):
        return (Remedy(action="widen", about=f"allow more than the one value of {path}: an enum instead of const"),)
    bounds = [name for name in f.BOUNDS if any(name in schema for schema in schemas)]
    if bounds:
        return (Remedy(action="widen", about=f"widen {' and '.join(bounds)} of {path}"),)
    types = {name for schema in schemas for name in _as_list(schema.get("type"))}
    if types and "null" not in types:
        return (Remedy(action="widen", about=f"allow null at {path} where the prompt does not tell the value"),)
    return ()


def _schemas_at(schema: Any, document: Any, steps: Sequence[str], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """The subschemas that speak of the value at the end of the steps. depth: of branches, which may run in a circle."""
    schema = dereference(schema, document)
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return
    for name in ("allOf", "anyOf", "oneOf"):
        for branch in _as_list(schema.get(name)):
            yield from _schemas_at(branch, document, steps, depth + 1)
    if not steps:
        yield schema
        return
    step, *rest = steps
    properties = schema.get("properties")
    items = schema.get("prefixItems")
    if isinstance(properties, Mapping) and step in properties:
        below = properties[step]
    elif step.isdigit() and isinstance(items, list) and int(step) < len(items):
        below = items[int(step)]
    elif step.isdigit() and "items" in schema:
        below = schema["items"]
    else:
        below = schema.get("additionalProperties")
    yield from _schemas_at(below, document, rest)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
