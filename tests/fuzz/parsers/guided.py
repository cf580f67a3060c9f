"""The process of one parser, under atheris: `python -m tests.fuzz.parsers.guided NAME FOLDER [option of libFuzzer …]`.
With `--unguided RUNS SECONDS SEED` instead of options, inputs that once reached new code are changed at random, and
nobody looks at what the changes reach: two to four times as many in the same time.

What breaks the law is written to FOLDER, one input for each cause, and the run goes on; what ends the process, or never
ends, libFuzzer writes there itself. `NAME.costs` in FOLDER says how long the slowest input took, and how far the
process grew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import resource
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.fuzz.files.changes import damaged
from tests.fuzz.files.child import ROOM
from tests.fuzz.parsers.target import CORPUS, GROWN

STRUCTURED = 0.5
"""The share of changes that know JSON, lines and numbers; the others are libFuzzer's, of bytes that it saw compared."""

INNER = ("espalier.time_limit", "espalier.grammar.ranges", "espalier.grammar.ast")
"""Modules of inner loops that know nothing of what is parsed: looking at their steps took a third of the time."""


def change(data: bytes, most: int, seed: int) -> bytes:
    """The mutator of libFuzzer: its own, or that of damaged files."""
    import atheris

    random = Random(seed)
    if random.random() < STRUCTURED and data:
        return damaged(data, random, most)
    return bytes(atheris.Mutate(data, most))


def unseen_modules() -> list[str]:
    """Modules whose code is not looked at: those that numba compiles, which knows no instrumented code, and INNER."""
    sources = Path(__file__).parents[3] / "src"
    return [
        *INNER,
        *(
            ".".join(path.relative_to(sources).with_suffix("").parts)
            for path in sources.rglob("*.py")
            if "numba" in (text := path.read_text("utf-8")) or "kernels.compiled" in text
        ),
    ]


def read_changes(name: str, try_input: Callable[[bytes], None], runs: int, seconds: int, seed: int) -> None:
    """Changes of the parser's inputs, up to so many or for so long. Prints what libFuzzer would of its end."""
    from tests.fuzz.parsers.run import draw_input
    from tests.fuzz.parsers.table import PARSERS

    random, most = Random(seed), PARSERS[name].longest
    inputs = [path.read_bytes() for folder in (CORPUS, GROWN) for path in sorted((folder / name).iterdir())]
    start, done = time.monotonic(), 0
    while done < runs and time.monotonic() < start + seconds:
        data = draw_input(name, random, inputs)
        for _ in range(random.choice((0, 0, 1, 3))):
            data = damaged(data, random, most)
        try_input(data)
        done += 1
    sys.stdout.write(f"Done {done} runs in {time.monotonic() - start:.0f} second(s)\n")


def keeper(name: str, folder: Path) -> Callable[[bytes], None]:
    """Reads an input, and writes what breaks the law to the folder, once for each cause."""
    from tests.fuzz.parsers.law import judge
    from tests.fuzz.parsers.run import reader_of

    read = reader_of(name)
    causes: set[str] = set()
    slowest, grown = 0.0, 0

    def try_input(data: bytes) -> None:
        nonlocal slowest, grown
        verdict = judge(read, data)
        if verdict.seconds > slowest or verdict.grown:
            slowest, grown = max(slowest, verdict.seconds), grown + verdict.grown
            (folder / f"{name}.costs").write_text(json.dumps({"slowest": slowest, "grown": grown}))
        if verdict.fault and verdict.cause not in causes:
            causes.add(verdict.cause)
            path = folder / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
            path.write_bytes(data)
            path.with_suffix(".fault").write_text(json.dumps({"fault": verdict.fault, "cause": verdict.cause}))

    return try_input


def limit_memory() -> None:
    """Lets this process grow by twice what the law allows for one input."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2 * ROOM, hard))


def main() -> None:
    name, folder, *options = sys.argv[1:]
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if options[0] == "--unguided":
        try_input = keeper(name, Path(folder))
        limit_memory()
        read_changes(name, try_input, *map(int, options[1:]))
        return
    import atheris

    with atheris.instrument_imports(include=["espalier"], exclude=unseen_modules()):
        try_input = keeper(name, Path(folder))
    limit_memory()
    atheris.Setup([name, *options, f"-artifact_prefix={folder}/{name}-"], try_input, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
