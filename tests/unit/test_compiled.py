"""What wheels for a platform hold compiled: the modules that `pyproject.toml` names, and `espalier doctor` shows."""

from __future__ import annotations

import tomllib
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from espalier.automata.masks import stacks
from espalier.distribution import compiled_modules

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PATTERNS = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["mypyc"]


def named() -> list[str]:
    left_out = {path for pattern in PATTERNS["exclude"] for path in ROOT.glob(pattern.lstrip("/"))}
    paths = {path for pattern in PATTERNS["include"] for path in ROOT.glob(pattern.lstrip("/"))} - left_out
    names = [path.relative_to(ROOT / "src").with_suffix("") for path in paths if path.stem != "__init__"]
    return sorted(".".join(name.parts) for name in names)


def test_every_pattern_names_a_module() -> None:
    for pattern in (*PATTERNS["include"], *PATTERNS["exclude"]):
        assert pattern == "__init__.py" or [*ROOT.glob(pattern.lstrip("/"))], pattern


def test_doctor_names_the_modules_that_are_compiled() -> None:
    is_compiled = str(stacks.__file__).endswith(tuple(EXTENSION_SUFFIXES))
    assert compiled_modules() == (named() if is_compiled else [])


def test_no_compiled_module_hides_the_source_of_a_clone() -> None:
    assert [*(ROOT / "src").rglob("*.so")] == []
