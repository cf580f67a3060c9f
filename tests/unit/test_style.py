"""scripts/check_style.py on this tree, and on small trees with one planted violation each."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.check_style import BUDGETS, FOLDERS, MAX_LINES, check, lower_budgets, stamp

ROOT = Path(__file__).resolve().parents[2]


def plant(root: Path, path: str, source: str) -> None:
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(source, encoding="utf-8")


@pytest.mark.slow
def test_this_tree_has_no_findings() -> None:
    assert check(ROOT) == []


VAGUE = [
    ("class Taken: ...\n", "1 classes named by a participle, 0 at most"),
    ("def f():\n    found = 1\n", "1 `found` and `one` as bindings, 0 at most"),
    ("def f(one): ...\n", "1 `found` and `one` as bindings, 0 at most"),
    ("class Place: ...\n", "2 class names with several meanings, 0 at most"),
]


@pytest.mark.parametrize(("source", "problem"), VAGUE)
def test_a_name_that_says_nothing_is_over_the_budget(tmp_path: Path, source: str, problem: str) -> None:
    plant(tmp_path, "src/pkg/places.py", "class Place: ...\nclass Seed: ...\nclass Placed_(Place): ...\n")
    (tmp_path / BUDGETS).parent.mkdir()
    assert lower_budgets(tmp_path) == check(tmp_path) == []
    plant(tmp_path, "src/pkg/other.py", source)
    assert [finding.partition(": ")[2].partition(":")[0] for finding in check(tmp_path)] == [problem]
    assert lower_budgets(tmp_path) == check(tmp_path)  # a budget is never raised


def test_a_budget_falls_with_the_tree_and_stays_there(tmp_path: Path) -> None:
    (tmp_path / BUDGETS).parent.mkdir()
    plant(tmp_path, "src/a.py", "found = one = 1\n")
    assert lower_budgets(tmp_path) == []
    plant(tmp_path, "src/a.py", "found = 1\n")
    assert lower_budgets(tmp_path) == []
    plant(tmp_path, "src/a.py", "found = one = 1\n")
    assert len(check(tmp_path)) == 1


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_module_of_501_lines_is_found_and_one_of_500_is_not(tmp_path: Path, folder: str) -> None:
    plant(tmp_path, f"{folder}/fits.py", "x = 1\n" * MAX_LINES)
    plant(tmp_path, f"{folder}/long.py", "x = 1\n" * (MAX_LINES + 1))
    assert check(tmp_path) == [f"{folder}/long.py: 501 lines, 500 at most: split it"]


@pytest.mark.parametrize("name", ["utils", "helpers", "common"])
def test_a_nameless_module_or_package_is_found(tmp_path: Path, name: str) -> None:
    plant(tmp_path, f"src/pkg/{name}.py", "")
    plant(tmp_path, f"src/{name}/__init__.py", "")
    assert set(check(tmp_path)) == {
        f"src/{name}/__init__.py: the name {name!r} does not say what is inside",
        f"src/pkg/{name}.py: the name {name!r} does not say what is inside",
    }


def test_a_text_that_stands_for_code_is_found_in_the_sources_alone(tmp_path: Path) -> None:
    source = '"""As `"espalier.a:b"`."""\nHELP = "see espalier.a:b"\nRUN = "espalier.a.b:name"\n'
    plant(tmp_path, "src/espalier/a.py", source)
    plant(tmp_path, "tests/a.py", source)
    plant(tmp_path, "src/espalier/server/cluster/plan.py", source)
    found = check(tmp_path)
    assert found == [
        "src/espalier/a.py: line 3: 'espalier.a.b:name' stands for code: import it, in the function that needs it"
    ]


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    return 1\n",
        "x = 1\n",
        "__all__ = sorted(['b', 'a'])\n",
        "for i in ():\n    pass\n",
        "try:\n    import json\nexcept ImportError:\n    pass\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    x = 1\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import json\nelse:\n    import csv\n",
        "import sys\nif sys.version_info:\n    import json\n",
        "import json\n'a string that is not the docstring'\n",
    ],
)
def test_logic_in_an_init_is_found(tmp_path: Path, source: str) -> None:
    plant(tmp_path, "src/pkg/__init__.py", source)
    findings = check(tmp_path)
    assert len(findings) == 1
    assert "__init__.py holds a docstring, imports and __all__ only" in findings[0]


def test_a_bare_init_is_not_found(tmp_path: Path) -> None:
    plant(
        tmp_path,
        "src/pkg/__init__.py",
        '"""What it is."""\n\nfrom __future__ import annotations\n\nfrom typing import TYPE_CHECKING\n\n'
        "from pkg.exports import __getattr__\n\nif TYPE_CHECKING:\n    from pkg.api import load\n\n"
        '__all__ = ["load"]\n',
    )
    assert check(tmp_path) == []


@pytest.mark.parametrize("kernel", ["from espalier.kernels.compiled import kernel\n\n", ""])
def test_a_kernel_that_numba_would_not_compile_again_is_found(tmp_path: Path, kernel: str) -> None:
    inner = f"{kernel}x = 1\n"
    outer = "from espalier.kernels.compiled import kernel\nfrom pkg.inner import x\n\ny = x\n"
    plant(tmp_path, "src/pkg/inner.py", inner)
    plant(tmp_path, "src/pkg/outer.py", outer)
    plant(tmp_path, "src/pkg/plain.py", "from pkg.outer import y\n")
    found = ["src/pkg/outer.py: what its kernels are compiled with has changed: run scripts/check_style.py --stamp"]
    assert check(tmp_path) == found
    stamp(tmp_path)
    first = (tmp_path / "src/pkg/outer.py").read_text(encoding="utf-8")
    assert (check(tmp_path), first.count("# compiled with")) == ([], 1)
    plant(tmp_path, "src/pkg/inner.py", inner + "z = 2\n")
    assert check(tmp_path) == found
    stamp(tmp_path)
    second = (tmp_path / "src/pkg/outer.py").read_text(encoding="utf-8")
    assert (check(tmp_path), second == first, len(second)) == ([], False, len(first))
