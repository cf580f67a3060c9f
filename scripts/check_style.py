"""Rules of the tree that neither ruff nor import-linter has: length, names, bare `__init__.py` files, code named by
text, kernels.

numba keeps a compiled kernel until the file that defines it changes, and does not notice that a kernel of another file,
which it calls, or a number of another file, has changed. A module of kernels that imports others of ours therefore has
a line `# compiled with:` with a digest of those files: a change there is a change here too. `--stamp` writes the lines.

Names that say nothing are counted (classes named by a participle, class names that several classes have, variables
`found` and `one`): no more of them than `style_budgets.json` allows, whose numbers only fall. `--budgets` lowers them
to what the tree has; `measure_code.py --names` lists the names.

It reads source text only; it knows nothing of what the code does.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

if not __package__:  # run as a program: then only this folder is on the path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.measure_code import trees_of, vague_names  # see above

BUDGETS = Path("scripts", "style_budgets.json")
"""The most names of each kind, by the figure of `measure_code.vague_names`."""
FOLDERS = ("src", "tests", "scripts", "benchmarks")
MAX_LINES = 500
NAMELESS = frozenset({"util", "utils", "helper", "helpers", "common", "misc"})
"""Names that say nothing of what is inside. They hold for modules and for packages."""
CODE_NAME = re.compile(r"""(["'])espalier\.[a-z_.]+:[A-Za-z_.]+\1""")
"""A text that stands for code, as `"espalier.module:name"`: no type checker sees that it is wrong."""
NAMED_FOR_OTHERS = frozenset({"src/espalier/server/cluster/plan.py"})
"""Modules that may hold such texts, because a program of others imports by them: Ray, as its YAML file does."""
STAMP = re.compile(r"^# compiled with: (\w+)\n\n?", re.MULTILINE)
IMPORTED = re.compile(r"^from ([\w.]+) import", re.MULTILINE)
KERNELS = re.compile(r"^from espalier\.kernels\.compiled import", re.MULTILINE)


def check(root: Path) -> list[str]:
    """What is wrong below `root`, one line a finding, in order of path."""
    modules = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.py"))
    findings = [(path, problem) for path in modules for problem in _problems(path, root)]
    for path, digest in stamps(root).items():
        if STAMP.findall(path.read_text(encoding="utf-8")) != [digest]:
            findings.append(
                (path, "what its kernels are compiled with has changed: run scripts/check_style.py --stamp")
            )
    return [f"{path.relative_to(root)}: {problem}" for path, problem in sorted(findings)] + _over_budget(root)


def stamps(root: Path) -> dict[Path, str]:
    """The digest that each module of kernels has to name, by path; only those that import other modules of ours."""
    source = root / "src"
    texts = {path: path.read_text(encoding="utf-8") for path in source.rglob("*.py")}
    modules = {".".join(path.relative_to(source).with_suffix("").parts): path for path in texts}
    found = {}
    for path in (path for path, text in texts.items() if KERNELS.search(text)):
        inner, left = set[Path](), [path]
        while left:
            imported = {modules[name] for name in IMPORTED.findall(texts[left.pop()]) if name in modules}
            left += imported - inner
            inner |= imported
        if inner:
            parts = "".join(STAMP.sub("", texts[other]) for other in sorted(inner))
            found[path] = hashlib.sha256(parts.encode()).hexdigest()[:8]
    return found


def stamp(root: Path) -> None:
    for path, digest in stamps(root).items():
        text = STAMP.sub("", path.read_text(encoding="utf-8"))
        end = [found.end() for found in re.finditer(r"^(from .*|import .*|\))\n\n", text, re.MULTILINE)][-1]
        path.write_text(f"{text[:end]}# compiled with: {digest}\n\n{text[end:].lstrip()}", encoding="utf-8")


def lower_budgets(root: Path) -> list[str]:
    """Lower each budget to what the tree has, and never raise one. Returns what is over its budget."""
    counts, path = _vague_counts(root), root / BUDGETS
    budgets = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    lowered = {figure: min(count, budgets.get(figure, count)) for figure, count in counts.items()}
    path.write_text(json.dumps(lowered, indent=2) + "\n", encoding="utf-8")
    return _over_budget(root)


def _vague_counts(root: Path) -> dict[str, int]:
    return {figure: names.total() for figure, names in vague_names(trees_of(root).values()).items()}


def _over_budget(root: Path) -> list[str]:
    path = root / BUDGETS
    if not path.is_file():
        return []
    budgets = json.loads(path.read_text(encoding="utf-8"))
    return [
        f"{BUDGETS}: {count} {figure}, {budgets.get(figure, 0)} at most: name things by what they are "
        "(scripts/measure_code.py --names lists them)"
        for figure, count in _vague_counts(root).items()
        if count > budgets.get(figure, 0)
    ]


def _problems(path: Path, root: Path) -> Iterator[str]:
    source = path.read_text(encoding="utf-8")
    lines = len(source.splitlines())
    if lines > MAX_LINES:
        yield f"{lines} lines, {MAX_LINES} at most: split it"
    for name in sorted(NAMELESS & {*path.relative_to(root).parts[:-1], path.stem}):
        yield f"the name {name!r} does not say what is inside"
    file = path.relative_to(root).as_posix()
    if file.startswith("src/") and file not in NAMED_FOR_OTHERS and CODE_NAME.search(source):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Constant) and CODE_NAME.fullmatch(repr(node.value)):
                yield f"line {node.lineno}: {node.value!r} stands for code: import it, in the function that needs it"
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
    root = Path(__file__).resolve().parent.parent
    if "--stamp" in sys.argv[1:]:
        stamp(root)
    if "--budgets" in sys.argv[1:]:
        lower_budgets(root)
    findings = check(root)
    for finding in findings:
        print(finding)
    print(f"check_style: {len(findings)} findings" if findings else "check_style: nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
