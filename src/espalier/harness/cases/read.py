"""Reads a file of test cases: YAML, TOML or JSON, by the end of its name, within limits.

A file is a list of cases, as PedroCLI's is, or `cases:` with such a list; TOML has `[[cases]]`. Fields under `defaults`
hold for every case that does not state them. A key that stands twice is refused: readers would drop one of the two.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from espalier.errors import EspalierError, InputError
from espalier.files.json_shape import check_shape, check_toml
from espalier.files.limits import CASES
from espalier.files.reading import read_text
from espalier.harness.cases.case import TestCase

MOST_CASES = 10_000


def read_cases(path: str | Path) -> list[TestCase]:
    """The cases of a file. Raises InputError and its subclasses naming the file and the case, TooLarge."""
    name = str(path)
    reader = _READERS.get(Path(name).suffix.lower())
    if reader is None:
        raise InputError(f"{name}: a file of cases ends in {', '.join(_READERS)}", field="cases")
    return cases_of(reader(read_text(path, CASES), name), name)


def cases_of(data: Any, source: str) -> list[TestCase]:
    """Cases from the value of a file. Raises InputError naming the source and the case."""
    defaults: Any = {}
    if isinstance(data, Mapping):
        unknown = [key for key in data if key not in ("cases", "defaults")]
        if unknown or "cases" not in data:
            raise InputError(
                f"{source}: " + (f"there is no field {unknown[0]!r:.80} here" if unknown else "there are no `cases`"),
                hint="a list of cases, or `cases` with the list and `defaults` for all of them",
                field="cases",
            )
        data, defaults = data["cases"], data.get("defaults") or {}
    if not isinstance(data, list) or not isinstance(defaults, Mapping):
        raise InputError(f"{source}: cases are a list, and defaults a mapping", field="cases")
    if not data or len(data) > MOST_CASES:
        raise InputError(f"{source} has {len(data):,} cases, and 1 to {MOST_CASES:,} can run", field="cases")
    cases: list[TestCase] = []
    for number, entry in enumerate(data, 1):
        label = f" ({entry['name']})" if isinstance(entry, Mapping) and isinstance(entry.get("name"), str) else ""
        try:
            cases.append(TestCase.from_json({**defaults, **entry} if isinstance(entry, Mapping) else entry))
        except EspalierError as error:
            where = f"{source}, case {number}{label[:80]}"
            raise InputError(f"{where}: {error.message}", hint=error.hint, field=error.field) from error
    check_names(cases, source)
    return cases


def check_names(cases: Iterable[TestCase], source: str) -> None:
    """Raises InputError for two cases of one name: reports and comparisons go by names."""
    seen: set[str] = set()
    for case in cases:
        if case.name in seen:
            raise InputError(f"{source}: two cases are called {case.name!r:.80}", hint="rename one", field="name")
        seen.add(case.name)


def _json(text: str, source: str) -> Any:
    check_shape(text, CASES, source)
    try:
        return json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not JSON: {error}", field="cases") from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise ValueError(f"the key {key!r:.80} stands twice in one object")
        values[key] = value
    return values


def _toml(text: str, source: str) -> Any:
    check_toml(text, CASES, source)
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source} is not TOML: {error}", field="cases") from error


def _yaml(text: str, source: str) -> Any:
    from espalier.harness.cases.yaml_text import read_yaml  # noqa: PLC0415  # most runs read no YAML

    return read_yaml(text, CASES, source)


_READERS = {".yaml": _yaml, ".yml": _yaml, ".toml": _toml, ".json": _json}
