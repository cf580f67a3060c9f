"""The tool that changes the code to see whether a test notices (`scripts/mutants`): its changes, and what it says."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scripts.mutants.__main__ import Explanation, Part, read_table, sample
from scripts.mutants.mutations import mutations_of

ROOT = Path(__file__).parents[2]
PARTS, EXPLANATIONS = read_table(ROOT)
TOY = '''"""A module of two functions that are tested and one that is not."""

LIMIT = 3


def fits(size: int, *, taken: int = 0) -> bool:
    """Whether as much fits."""
    log = []
    log.append("asked")
    return size + taken <= LIMIT


def first(items: list[int]) -> int:
    for item in items:
        if item > 0:
            return item
    raise ValueError(f"none of {len(items) + 1}")


def never() -> int:
    return 1 + 1
'''
TESTS = """
import pytest
from toy import first, fits

def test_fits():
    assert fits(3)
    assert not fits(4)

def test_first():
    assert first([0, 2]) == 2
    with pytest.raises(ValueError):
        first([0])
"""
RUN = """
import json, sys
from pathlib import Path
import pytest
from scripts.mutants.mutations import mutations_of
from scripts.mutants.running import MutantRunner
fates, root = [], Path(sys.argv[1])

def report(mutation, fate, killer):
    fates.append([mutation.function, mutation.change, fate])

runner = MutantRunner(root, mutations_of(root, "toy.py"), report)
pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(root), str(root)], plugins=[runner])
print(json.dumps(fates))
"""


def change_texts(text: str, tmp_path: Path) -> list[str]:
    (tmp_path / "toy.py").write_text(text, encoding="utf-8")
    return [mutation.change for mutation in mutations_of(tmp_path, "toy.py")]


@pytest.mark.parametrize(
    ("body", "changes"),
    [
        ("return a < b", ["a < b -> None", "< -> <="]),
        ("return a[::2]", ["a[::2] -> None", "a[::2] -> a", "2 -> 3"]),
        ("a.pop(b)", ["a.pop(b) -> pass"]),
        ("return not a", ["not a -> None", "not a -> a"]),
        ("return not (c := a)", ["not (c := a) -> None", "not (c := a) -> (c := a)"]),
        ("if a or b: b = (a) - (b)", ["a or b -> not (a or b)", "or -> and", ") - ( -> ) + ("]),
        ("return max(a, key=lambda x: (x, b))", None),
        ("log.warning('%s', a + b)", []),
        ("raise ValueError(a + b)", ["raise ValueError(a + b) -> pass"]),
        ("a.b = b", ["a.b = b -> pass"]),
        ("a += b", ["+= -> -="]),
    ],
)
def test_a_statement_is_changed_in_these_ways(body: str, changes: list[str] | None, tmp_path: Path) -> None:
    texts = change_texts(f"def toy(a, b):\n    {body}\n", tmp_path)
    if changes is None:
        assert "(x, b) -> (b, x)" in texts
        assert "max -> min" in texts
    else:
        assert sorted(texts) == sorted(changes)


def test_what_runs_at_the_import_and_kernels_are_left_alone(tmp_path: Path) -> None:
    assert change_texts("LIMIT = 3 + 4\n\n\nclass A:\n    size = 1 + 2\n", tmp_path) == []
    assert (
        change_texts("from espalier.kernels.compiled import kernel\n\n\ndef a():\n    return 1 + 2\n", tmp_path) == []
    )


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_a_part_names_files_that_exist_and_its_changes_are_python(part: Part) -> None:
    rng = random.Random(1)
    for test in part.tests:
        assert (ROOT / test).is_file(), test
    for file in part.sources:
        text = (ROOT / file).read_bytes()
        mutations = mutations_of(ROOT, file)
        for mutation in rng.sample(mutations, min(4, len(mutations))):
            compile(mutation.applied(text), file, "exec")


def test_each_explanation_is_of_a_change_that_is_made_and_says_why() -> None:
    for row in EXPLANATIONS:
        assert any(map(row.explains, mutations_of(ROOT, row.file))), row
        assert len(row.reason) > 20, row


def test_an_explanation_of_a_line_in_one_function_leaves_the_same_line_of_another_unexplained(tmp_path: Path) -> None:
    text = "def begin():\n    wake.set()\n\n\nclass Worker:\n    def end(self):\n        wake.set()\n"
    (tmp_path / "toy.py").write_text(text, encoding="utf-8")
    mutations = mutations_of(tmp_path, "toy.py")
    row = Explanation(file="toy.py", source="wake.set()", change="wake.set() -> pass", reason="")
    assert [row.explains(mutation) for mutation in mutations] == [True, True]
    assert [replace(row, function="Worker.end").explains(mutation) for mutation in mutations] == [False, True]


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    mutations = mutations_of(ROOT, PARTS[0].sources[0])
    chosen = sample(mutations, 10, "a")
    assert chosen == sample(mutations, 10, "a") != sample(mutations, 10, "b")
    assert len(chosen) == 10
    assert sample(mutations, 0, "a") == mutations


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_a_change_that_a_test_notices_is_killed_and_others_survive(tmp_path: Path) -> None:
    (tmp_path / "toy.py").write_text(TOY, encoding="utf-8")
    (tmp_path / "test_toy.py").write_text(TESTS, encoding="utf-8")
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    run = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path)], env=env, capture_output=True, text=True, check=True, timeout=300
    )
    fates = {(function, change): fate for function, change, fate in json.loads(run.stdout.splitlines()[-1])}
    survived = {change for change, fate in fates.items() if fate == "survived"}
    assert survived == {("fits", 'log.append("asked") -> pass'), ("fits", "+ -> -"), ("first", "0 -> 1")}
    assert {fate for (function, _), fate in fates.items() if function == "never"} == {"not reached"}
    assert fates["fits", "<= -> <"] == "killed"
    assert fates["first", "> -> >="] == "killed"
    assert fates["first", 'raise ValueError(f"none of {len(items) + 1}") -> pass'] == "killed"
