"""Measures the code: how much there is, and how many names and mechanisms a reader has to hold.

    python scripts/measure_code.py            one line a figure
    python scripts/measure_code.py --names    the classes, bindings and strings behind the figures
    python scripts/measure_code.py --warm     the functions and files that one warm token touches
    python scripts/measure_code.py --http     the same of one warm streamed chat request

Without the last two it reads source text only. `check_style.py` holds some of these figures to a budget that only
falls.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "benchmarks", "scripts", "examples")
VAGUE = frozenset({"found", "one"})
"""Names of locals that say nothing of what they hold."""
PARTICIPLE = re.compile(
    r"(?<![A-Z])(?:[A-Z][a-z]*ed|Built|Chosen|Drawn|Given|Held|Kept|Known|Laid|Left|Made|Met|Read|Said|Seen|Sent|Shown|Spent|Split"
    r"|Spoken|Taken|Told|Understood|Written|Found)$"
)
NOUNS = re.compile(r"(?:Seed|Need|Speed|Feed|Embed|Bed|Shed|Breed|Deed)$")
CODE_NAME = re.compile(r"^espalier\.[a-z_.]+:[A-Za-z_.]+$")
OPTIONS = ("min_p", "num_beams", "schema_order")


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def bindings(tree: ast.AST) -> Iterator[str]:
    """Every name that is bound: assigned, looped over, received as an argument, caught."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def participle_classes(tree: ast.AST) -> Iterator[str]:
    """Classes named by a participle, which names no thing."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and PARTICIPLE.search(node.name) and not NOUNS.search(node.name):
            yield node.name


def code_strings(tree: ast.AST) -> Iterator[str]:
    """Strings that stand for code: `"espalier.module:name"`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE_NAME.match(node.value):
            yield node.value


def number_constants(tree: ast.Module) -> Iterator[str]:
    """Numeric constants at module level."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if isinstance(value, ast.Constant) and type(value.value) in (int, float):
            yield from map(ast.unparse, targets)


def functions(tree: ast.AST) -> int:
    return sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))


def trees_of(root: Path) -> dict[Path, ast.Module]:
    """The syntax trees of the modules in `root/src`, by path."""
    return {path: ast.parse(path.read_text("utf-8")) for path in sorted((root / "src").rglob("*.py"))}


def vague_names(trees: Iterable[ast.Module]) -> dict[str, Counter[str]]:
    """Names that a reader cannot understand alone, by figure: the figures that `check_style.py` holds to a budget."""
    trees = list(trees)
    classes = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {
        "classes named by a participle": Counter(name for tree in trees for name in participle_classes(tree)),
        "`found` and `one` as bindings": Counter(name for tree in trees for name in bindings(tree) if name in VAGUE),
        "class names with several meanings": Counter({name: count for name, count in classes.items() if count > 1}),
    }


def measure() -> tuple[dict[str, int], dict[str, Counter[str]]]:
    """The figures by name, and the names behind those that count names."""
    figures: dict[str, int] = {}
    for folder in FOLDERS:
        figures[f"lines in {folder}"] = sum(len(path.read_text("utf-8").splitlines()) for path in modules(folder))
    texts = {path: path.read_text("utf-8") for path in modules("src")}
    trees = trees_of(ROOT)
    names: dict[str, Counter[str]] = {
        **vague_names(trees.values()),
        "strings that stand for code": Counter(
            name for path, tree in trees.items() if path.name != "exports.py" for name in code_strings(tree)
        ),
        "numeric constants at module level": Counter(
            name for tree in trees.values() for name in number_constants(tree)
        ),
    }
    figures["modules in src"] = len(texts)
    figures["functions in src"] = sum(functions(tree) for tree in trees.values())
    figures |= {figure: counts.total() for figure, counts in names.items()}
    figures["`# fmt: skip`"] = sum(
        path.read_text("utf-8").count("# fmt: " + "skip") for folder in FOLDERS for path in modules(folder)
    )
    for option in OPTIONS:
        word = re.compile(rf"\b{option}\b")
        figures[f"files that know {option}"] = sum(1 for text in texts.values() if word.search(text))
    return figures, names


class Calls:
    """Counts the calls of our functions, as `file: function`, in every thread that starts after it was made; those of
    the fake model are left out."""

    def __init__(self) -> None:
        import espalier  # noqa: PLC0415  # the other figures need no import
        from espalier.engines import fake  # noqa: PLC0415

        self.counts, self.is_on = Counter[str](), False
        self._source, self._model, self._depth = str(Path(espalier.__file__).parent), fake.__file__, threading.local()
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def close(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not self.is_on or event not in ("call", "return"):
            return
        in_model = getattr(self._depth, "calls", 0)
        if code.co_filename == self._model:
            self._depth.calls = max(0, in_model + (1 if event == "call" else -1))
        elif event == "call" and not in_model and code.co_filename.startswith(self._source):
            self.counts[f"{code.co_filename[len(self._source) + 1 :]}: {code.co_qualname}"] += 1


def touched_by_token(trace: str = "steps") -> Counter[str]:
    """The functions that one warm token of a schema calls, at a trace level, with how often."""
    import espalier  # noqa: PLC0415

    schema = {"type": "array", "items": {"type": "string"}, "minItems": 500}
    options: Any = {"trace": trace, "max_tokens": 200, "seed": 1}
    with espalier.load("fake") as engine:
        events = engine.stream("x", constraint=espalier.JsonSchema(schema), **options)
        for _ in range(60):
            next(events)
        calls = Calls()
        calls.is_on = True
        next(events)
        calls.close()
        events.close()  # type: ignore[attr-defined]  # it is a generator
    return calls.counts


def touched_by_request() -> Counter[str]:
    """The functions that a warm streamed chat request calls, in all threads of a server that stores nothing and
    runs no batch jobs."""
    from starlette.testclient import TestClient  # noqa: PLC0415

    import espalier  # noqa: PLC0415
    from espalier.server.apps import create_app  # noqa: PLC0415
    from espalier.server.settings import settings_of  # noqa: PLC0415

    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, "max_tokens": 20, "seed": 1}
    off = {"BATCH_JOBS": "false", "TRACE_LEVEL": "off", "STORE_RESPONSES": "false"}
    settings = settings_of({"MODEL_ALIAS": "fake", "SECRET_TOKEN": "x" * 32, "STEP_SECONDS": "60"} | off)
    calls = Calls()
    with espalier.load("fake") as engine, TestClient(create_app(settings, engine=engine)) as client:
        for is_on in (False, False, True):
            calls.is_on = is_on
            reply = client.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {'x' * 32}"})
            reply.raise_for_status()
        calls.is_on = False  # what closes the server is not the request's
        calls.close()
    return calls.counts


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="also the names behind the figures")
    parser.add_argument("--warm", action="store_true", help="what one warm token touches; it runs the fake model")
    parser.add_argument("--http", action="store_true", help="what one warm streamed chat request touches")
    options = parser.parse_args(arguments)
    if options.warm or options.http:
        calls = touched_by_request() if options.http else touched_by_token()
        for name, count in sorted(calls.items()):
            print(f"{count:4}  {name}")
        print(f"{len(calls)} functions in {len({name.split(':')[0] for name in calls})} files")
        return 0
    figures, names = measure()
    for figure, count in figures.items():
        print(f"{figure:40}{count:>9,}")
        if options.names and figure in names:
            print("    " + ", ".join(f"{name} {count}" for name, count in names[figure].most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
