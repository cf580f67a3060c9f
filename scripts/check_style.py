"""Rules of the tree that neither ruff nor import-linter has: length, names and bare `__init__.py` files.

It reads source text only; it knows nothing of what the code does.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FOLDERS = ("src", "tests", "scripts", "benchmarks")
MAX_LINES = 500
NAMELESS = frozenset({"util", "utils", "helper", "helpers", "common", "misc"})
"""Names that say nothing of what is inside. They hold for modules and for packages."""


def check(root: Path) -> list[str]:
    """What is wrong below `root`, one line a finding, in order of path."""
    modules = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    return [f"{path.relative_to(root)}: {problem}" for path in modules for problem in _problems(path, root)]


def _problems(path: Path, root: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8")
    lines = len(source.splitlines())
    if lines > MAX_LINES:
        yield f"{lines} lines, {MAX_LINES} at most: split it"
    for name in sorted(NAMELESS & {*path.relative_to(root).parts[:-1], path.stem}):
        yield f"the name {name!r} does not say what is inside"
    if path.name == "__init__.py":
        for index, node in enumerate(ast.parse(source).body):
            known = (_is_docstring(node, index), _is_import(node), _is_all(node), _is_type_checking(node))
            if not any(known):
                yield f"line {node.lineno}: __init__.py holds a docstring, imports and __all__ only"


def _is_docstring(node: ast.stmt, index: int) -> bool:
    return index == 0 and isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def _is_import(node: ast.stmt) -> bool:
    return isinstance(node, ast.Import | ast.ImportFrom)


def _is_all(node: ast.stmt) -> bool:
    """`__all__ = [...]`, all literals; nothing computed."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.List | ast.Tuple):
        return False
    names = [ast.unparse(target) for target in node.targets]
    return names == ["__all__"] and all(isinstance(value, ast.Constant) for value in node.value.elts)


def _is_type_checking(node: ast.stmt) -> bool:
    """`if TYPE_CHECKING:` over imports, without an else."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    guarded = ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING"
    return guarded and all(_is_import(child) for child in node.body)


def main() -> int:
    findings = check(Path(__file__).resolve().parent.parent)
    for finding in findings:
        print(finding)
    print(f"check_style: {len(findings)} findings" if findings else "check_style: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
