"""What an engine keeps in memory: over a vocabulary of 131,072 ids, and after a hundred schemas, a text of each.

    python -m benchmarks memory

Each engine in a process of its own: what it holds more than when libraries were imported and the vocabulary and the
texts were read. The schemas are from the wild; what was compiled is kept, as in a server that may be asked for it
again.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.cold import ENGINES, Refused, Text, schema_texts
from benchmarks.figures import OURS, note
from benchmarks.harness import Table, resident_megabytes
from benchmarks.schema.cases import Missing, real
from benchmarks.tekken import Tekken, tekken
from espalier.constraints.spec import JsonSchema
from espalier.errors import EspalierError
from tests.tokenizers import tekken_vocab

SCHEMAS = 100
MEASURES = ("the vocabulary and one schema", f"and after {SCHEMAS} schemas")


def kept(name: str, file: Path) -> tuple[float, float, int]:
    """Megabytes after the first text and after all of them, and how many schemas the engine refused."""
    texts = [
        Text(spec=JsonSchema(row["schema"]), tokens=row["tokens"], lark=row["lark"], xgrammar=tuple(row["xgrammar"]))
        for row in json.loads(file.read_text(encoding="utf-8"))
    ]
    vocab = tekken_vocab()
    before = held()
    made = Tekken(vocab)
    if name != OURS:  # its trie is no part of what another engine keeps
        before = held()
    engine = ENGINES[name][1](made)
    compiled, found, refused = [], [], 0
    for count, text in enumerate(texts):
        try:
            start = engine.compiled(text)
            walk(start(), text)
            compiled.append(start)
        except (Refused, EspalierError, ValueError, RuntimeError):  # the last two are how the others refuse
            refused += 1
        if count in (0, len(texts) - 1):
            found.append(held() - before)
    return found[0], found[-1], refused


def held() -> float:
    gc.collect()
    return resident_megabytes(os.getpid())


def walk(steps: tuple, text: Text) -> None:  # type: ignore[type-arg]
    mask, advance = steps
    for token in text.tokens:
        mask()
        advance(token)


def main(argv: Sequence[str] = ()) -> None:
    if argv[:1] == ["one"]:
        print(json.dumps(kept(argv[1], Path(argv[2]))))
        return
    try:
        texts = list(schema_texts(tekken(), real()[:: max(1, len(real()) // SCHEMAS)]))[:SCHEMAS]
    except Missing as missing:
        print(f"left out: {missing}")
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "texts.json"
        rows = [
            {"schema": text.spec.schema, "tokens": list(text.tokens), "lark": text.lark, "xgrammar": text.xgrammar}
            for text in texts
            if isinstance(text.spec, JsonSchema)
        ]
        file.write_text(json.dumps(rows), encoding="utf-8")
        compare(file)


def compare(file: Path) -> None:
    """Print and note what each engine keeps of the texts in a file."""
    table = Table({"engine": "<14", "one schema, MB": ">16.1f", f"{SCHEMAS} schemas, MB": ">18.1f", "refused": ">10"})
    rows = {}
    for name, (is_there, _) in ENGINES.items():
        if not is_there():
            print(f"{name} is not installed")
            continue
        command = [sys.executable, "-m", "benchmarks.memory", "one", name, str(file)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows[name] = json.loads(done.stdout.splitlines()[-1])
        table.row(name, *rows[name])
    for number, measure in enumerate(MEASURES):
        note("Memory, 131,072 ids", measure, "MB", {name: row[number] for name, row in rows.items()})


if __name__ == "__main__":
    main(sys.argv[1:])
