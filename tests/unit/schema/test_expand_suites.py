"""The normal form against two public collections, where they are present: the required part of JSON-Schema-Test-Suite
for draft 2020-12, and real schemas with instances. Nothing of either is kept here."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from espalier.errors import LimitExceeded, SchemaError, UnsupportedError
from espalier.schema.normal.expand import expand
from tests.oracle import validator
from tests.shapes import fits

pytestmark = pytest.mark.slow

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
SUITE = DATA / "json-schema-test-suite" / "draft2020-12.tar.gz"
REAL = DATA / "jsonschemabench-dev.jsonl.gz"


def groups() -> Iterator[tuple[str, dict[str, Any]]]:
    with tarfile.open(SUITE) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.name.endswith(".json") else None
            for group in json.load(file) if file else ():
                yield f"{Path(member.name).stem}: {group['description']}", group


@pytest.mark.skipif(not SUITE.exists(), reason="JSON-Schema-Test-Suite is not here")
def test_the_test_suite_of_draft_2020_12() -> None:
    seen: Counter[str] = Counter()
    why: list[str] = []
    for name, group in groups():
        try:
            shapes = expand(group["schema"])
            checked = shapes.contract.by_verdict("checked")
        except SchemaError:
            seen["unsatisfiable"] += 1
            assert not any(test["valid"] for test in group["tests"]), name
            continue
        except UnsupportedError as error:
            seen["refused"] += 1
            why.append(error.message)
            continue
        assert not checked, name
        seen["exact"] += 1
        for test in group["tests"]:
            assert fits(shapes, shapes.root, test["data"]) == test["valid"], (name, test["description"])
    assert all("another document" in message or "$schema" in message for message in why)
    assert seen == {"exact": 350, "refused": 22, "unsatisfiable": 11}


@pytest.mark.skipif(not REAL.exists(), reason="the schemas of JSONSchemaBench are not here")
def test_real_schemas() -> None:
    seen: Counter[str] = Counter()
    with gzip.open(REAL, "rt", encoding="utf-8") as lines:
        for line in lines:
            case = json.loads(line)
            try:
                shapes = expand(case["schema"])
                checked = shapes.contract.by_verdict("checked")
            except (SchemaError, UnsupportedError, LimitExceeded) as error:
                pytest.fail(f"{case['id']}: {error}")
            seen["checked" if checked else "exact"] += 1
            valid = validator(case["schema"])
            for test in case["tests"]:
                fitting = fits(shapes, shapes.root, test["data"])
                if valid(test["data"]):
                    assert fitting, case["id"]
                elif not checked:
                    assert not fitting, case["id"]
                seen["instances"] += 1
    assert seen["exact"] >= 599
    assert seen["exact"] + seen["checked"] == 600
    assert seen["instances"] > 1800
