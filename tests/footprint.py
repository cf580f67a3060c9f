"""Which modules of `src` know a name: as an identifier, or as a word of a text that is no docstring."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / "src" / "espalier"
WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


def modules_that_know(name: str) -> set[str]:
    """Paths below `src/espalier`."""
    paths = sorted(SOURCES.rglob("*.py"))
    return {path.relative_to(SOURCES).as_posix() for path in paths if name in _names(path)}


@cache
def _names(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "asname"):
            value = getattr(node, field, None)
            if isinstance(value, str):
                found.update(value.split("."))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            found.update(WORD.findall(node.value))
    return frozenset(found)
