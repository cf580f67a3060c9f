"""The command `python -m scripts.mutants`: changes a sample of each part's code, one place at a time, and counts which
changes no test notices.

Ends with 1 if a change survives that `parts.toml` does not explain, if an explanation names no change, or if less than
nine tenths of a part's changes were killed or explained.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # run as a program: then only this folder is on the path
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pytest

from scripts.mutants.mutations import Mutation, mutations_of
from scripts.mutants.running import Fate, MutantRunner

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path("scripts", "mutants", "parts.toml")
SEED = 43
GOAL = 0.9


@dataclass(frozen=True, kw_only=True)
class Part:
    """Modules that belong together, and the tests that guard them."""

    name: str
    #: Files below the root, and files of tests.
    sources: list[str]
    tests: list[str]


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Why a change may survive."""

    file: str
    #: The line, without its indent, and the change as `Mutation.change` writes it.
    source: str
    change: str
    reason: str
    #: The function, where only the line in this one is meant: as `Mutation.function`. Empty for every such line.
    function: str = ""

    def explains(self, mutation: Mutation) -> bool:
        """Whether this is about that change."""
        place = mutation.file, mutation.source, mutation.change
        return place == (self.file, self.source, self.change) and self.function in ("", mutation.function)


def read_table(root: Path) -> tuple[list[Part], list[Explanation]]:
    """The parts, and the explained changes."""
    table = tomllib.loads((root / TABLE).read_text(encoding="utf-8"))
    return [Part(**part) for part in table["part"]], [Explanation(**row) for row in table.get("explained", [])]


def all_mutations(root: Path, part: Part) -> list[Mutation]:
    """Every change of a part's modules."""
    return [mutation for file in part.sources for mutation in mutations_of(root, file)]


def sample(mutations: Sequence[Mutation], count: int, seed: str) -> list[Mutation]:
    """So many of the changes, the same for the same seed; 0 for all of them."""
    if not count or count >= len(mutations):
        return list(mutations)
    chosen = random.Random(seed).sample(range(len(mutations)), count)
    return [mutations[index] for index in sorted(chosen)]


def run_part(part: Part, count: int, seed: int, only: str) -> int:
    """Run one part in this process and print its row. Returns the exit code."""
    _, explanations = read_table(ROOT)
    mutations = [m for m in all_mutations(ROOT, part) if only in f"{m.file}:{m.line} {m.function} {m.change}"]
    chosen = sample(mutations, count, f"{seed}:{part.name}")
    counts: Counter[str] = Counter()

    def report(mutation: Mutation, fate: Fate, killer: str | None) -> None:
        if fate in (Fate.SURVIVED, Fate.NOT_REACHED):
            if any(row.explains(mutation) for row in explanations):
                counts["explained"] += 1
                return
            print(f"{fate}: {mutation.file}:{mutation.line} {mutation.function}", flush=True)
            print(f"    {mutation.source}\n    {mutation.change}", flush=True)
        elif only:
            print(f"{fate} by {killer}: {mutation.file}:{mutation.line} {mutation.change}", flush=True)
        counts[fate] += 1

    runner = MutantRunner(ROOT, chosen, report)
    with tempfile.TemporaryDirectory() as folder:
        options = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}/tests"]
        # A limit of its own for each test is the runner's; pytest-timeout would set the same timer.
        options += ["--hypothesis-profile=mutants", "--timeout=0"]
        pytest.main([*options, "-m", "not browser", *part.tests], plugins=[runner])
    for test in runner.failing:
        print(f"fails without a change: {test}")
    survived = counts[Fate.SURVIVED] + counts[Fate.NOT_REACHED]
    tried = counts[Fate.KILLED] + counts["explained"] + survived
    share = (counts[Fate.KILLED] + counts["explained"]) / max(1, tried)
    print(
        f"| {part.name} | {len(mutations)} | {tried} | {counts[Fate.KILLED]} | {counts['explained']} | {survived} | "
        f"{100 * share:.0f} % |",
        flush=True,
    )
    return int(bool(survived) or not tried or share < GOAL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", help="names of parts; all where none is named")
    parser.add_argument("--count", type=int, default=50, help="changes of each part; 0 for all")
    parser.add_argument("--seed", type=int, default=SEED, help="which ones")
    parser.add_argument("--only", default="", help="changes whose file, line, function or text has this")
    parser.add_argument("--within", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    parts = {part.name: part for part in read_table(ROOT)[0]}
    if unknown := [name for name in arguments.parts if name not in parts]:
        parser.error(f"{unknown[0]!r} is no part; there are {', '.join(parts)}")
    if arguments.within:
        return run_part(parts[arguments.parts[0]], arguments.count, arguments.seed, arguments.only)
    print("| part | changes | tried | killed | explained | survived | killed or explained |")
    print("|---|---|---|---|---|---|---|", flush=True)
    # Each part in a process of its own: what one part's tests import is not in the others' way. Examples are drawn the
    # same each time, and fewer of them; every row of a table runs, since it may be the one that notices.
    settings = {"CI": "1", "TEST_EXAMPLES": "0.1", "TEST_ROWS": "1", "OMP_NUM_THREADS": "1"}
    codes = []
    for name in arguments.parts or parts:
        command = [sys.executable, "-m", "scripts.mutants", name, "--within", f"--count={arguments.count}"]
        command += [f"--seed={arguments.seed}", f"--only={arguments.only}"]
        ended = subprocess.run(command, cwd=ROOT, env=os.environ | settings, check=False)
        codes.append(ended.returncode)
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
