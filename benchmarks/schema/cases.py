"""Loads the schemas to measure, with instances that are known to be valid or invalid.

They come from two files: the required tests of the JSON Schema Test Suite, and schemas from the wild with instances.
`Missing` is raised where a file is not there. This module does not know the engines that enforce the schemas.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
SUITE = "json-schema-test-suite/draft2020-12.tar.gz"
REAL = "jsonschemabench-dev.jsonl.gz"
LATEST = "draft2020-12"
DRAFTS = {
    LATEST: "https://json-schema.org/draft/2020-12/schema",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft4": "http://json-schema.org/draft-04/schema#",
}
METASCHEMAS = ("https://json-schema.org/", "http://json-schema.org/")


class Missing(Exception):
    """The data of a measure is missing; the message says where it was expected."""


class Number(str):
    """A number with its spelling: `1.0` and `1` are one value and two texts."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """data: JSON whose numbers are `Number`s."""

    data: Any
    valid: bool
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One schema and its instances. kind: the file of the suite, or the source of the schema."""

    id: str
    kind: str
    schema: Any
    instances: tuple[Instance, ...]


def suite(path: Path | None = None, draft: str = LATEST) -> list[Case]:
    """The groups of the test suite that need no other document. Raises Missing."""
    return [case for case in whole_suite(path, draft) if not needs_remote(case.schema)]


def whole_suite(path: Path | None = None, draft: str = LATEST) -> list[Case]:
    """Every group of the required tests of one draft, in the order of the files. The archive holds this draft's files
    alone, or several drafts, each in a folder `tests/<draft>`, as the source distribution of `jsonschema` does. A
    schema without `$schema` gets that of the draft. Raises Missing."""
    cases = []
    wanted = re.compile(rf".*/tests/{draft}/[^/]+\.json")
    with tarfile.open(_found(path, "BENCH_SCHEMA_SUITE", SUITE), "r:gz") as archive:
        members = [m for m in archive if m.name.endswith(".json")]
        several = any("tests/draft" in m.name for m in members)
        if not several and draft != LATEST:
            raise Missing(f"{archive.name} holds no other drafts: give the source distribution of jsonschema")
        for member in sorted(members, key=lambda m: m.name):
            if several and not wanted.fullmatch(member.name):
                continue
            file = archive.extractfile(member)
            assert file is not None
            text = file.read().decode()
            kind = Path(member.name).stem
            for i, (group, spelled) in enumerate(zip(json.loads(text), as_spelled(text), strict=True)):
                cases.append(
                    Case(
                        id=f"{kind}/{i} {group['description']}",
                        kind=kind,
                        schema=_of_draft(group["schema"], draft),
                        instances=_instances(spelled["tests"]),
                    )
                )
    return cases


def _of_draft(schema: Any, draft: str) -> Any:
    if not isinstance(schema, dict) or "$schema" in schema or draft == LATEST:
        return schema
    return {"$schema": DRAFTS[draft]} | schema


def real(path: Path | None = None) -> list[Case]:
    """Schemas from the wild, with instances. Raises Missing."""
    cases = []
    with gzip.open(_found(path, "BENCH_REAL_SCHEMAS", REAL), "rt", encoding="utf-8") as file:
        for line in file:
            row, spelled = json.loads(line), as_spelled(line)
            kind = row["id"].split("---")[0].split("_")[0]
            cases.append(Case(id=row["id"], kind=kind, schema=row["schema"], instances=_instances(spelled["tests"])))
    return cases


def as_spelled(text: str) -> Any:
    """Parse JSON, keeping the spelling of numbers."""
    return json.loads(text, parse_int=Number, parse_float=Number)


def _instances(tests: list[dict[str, Any]]) -> tuple[Instance, ...]:
    return tuple(Instance(data=t["data"], valid=t["valid"], name=t.get("description", "")) for t in tests)


def _found(path: Path | None, variable: str, name: str) -> Path:
    given = path or (Path(os.environ[variable]) if variable in os.environ else DATA / name)
    if not given.is_file():
        raise Missing(f"{given} is not there: give its path, or set {variable}")
    return given


def needs_remote(schema: Any) -> bool:
    """Whether a reference or `$schema` names a document that is neither embedded in the schema nor a published
    metaschema."""
    here = {uri for uri, _ in _documents("", schema)}
    return any(
        _absolute(base, reference) not in here and not _absolute(base, reference).startswith(METASCHEMAS)
        for base, node in _documents("", schema)
        for reference in _references(node)
    )


def _documents(base: str, node: Any) -> Iterator[tuple[str, Any]]:
    """The schema and those embedded in it, by their absolute `$id`."""
    base = _absolute(base, node["$id"]) if _has_id(node) else base
    yield base, node
    for child in _below(node):
        yield from _documents(base, child) if _has_id(child) else _embedded(base, child)


def _absolute(base: str, reference: str) -> str:
    """The address of a reference, without its fragment. `urljoin` mishandles a lone fragment on a URN."""
    document = reference.partition("#")[0]
    return urljoin(base, document) if document else base


def _embedded(base: str, node: Any) -> Iterator[tuple[str, Any]]:
    for child in _below(node):
        yield from _documents(base, child) if _has_id(child) else _embedded(base, child)


def _references(node: Any) -> Iterator[str]:
    """The references of this document, without those of documents embedded in it."""
    if not isinstance(node, Mapping | list):
        return
    if isinstance(node, Mapping):
        for key in ("$ref", "$dynamicRef", "$schema"):
            if isinstance(node.get(key), str):
                yield node[key]
    for child in _below(node):
        if not _has_id(child):
            yield from _references(child)


def _has_id(node: Any) -> bool:
    return isinstance(node, Mapping) and isinstance(node.get("$id"), str)


def _below(node: Any) -> Iterator[Any]:
    """The values inside a node, without those that are not schemas (`enum`, `const`)."""
    if isinstance(node, Mapping):
        yield from (value for key, value in node.items() if key not in ("enum", "const"))
    elif isinstance(node, list):
        yield from node
