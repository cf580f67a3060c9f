"""`python -m benchmarks.fuzz KIND --seconds N --seed S`: look for texts on which matcher and oracle disagree.

Exit 1 if there is one. `--case N` runs one case again, by the number that a finding names. The kind `parsers` tries
every parser in a process of its own, and its findings are files; with `--coverage` atheris looks for inputs that reach
new code.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from importlib import import_module

from tests.fuzz.session import Fuzzer, Totals, feature_lines, run, try_case

KINDS = {
    "grid": "tests.fuzz.schema_grid.run:GridFuzzer",
    "schema": "tests.fuzz.schema.run:SchemaFuzzer",
    "regex": "tests.fuzz.regexes:RegexFuzzer",
    "gbnf": "tests.fuzz.grammars:GrammarFuzzer",
    "tools": "tests.fuzz.tools:ToolFuzzer",
    "turns": "tests.fuzz.turns:TurnFuzzer",
    "safety": "tests.fuzz.safety:SafetyFuzzer",
    "words": "tests.fuzz.words:WordFuzzer",
    "files": "tests.fuzz.files.run:FileFuzzer",
    "merge": "tests.fuzz.merge.run:MergeFuzzer",
    "batches": "tests.fuzz.batches.run:BatchFuzzer",
    "edges": "tests.fuzz.edges.run:EdgeFuzzer",
}
SHOWN = 50


def fuzzer(kind: str) -> Fuzzer:
    module, _, name = KINDS[kind].partition(":")
    made: Callable[[], Fuzzer] = getattr(import_module(module), name)
    return made()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__)
    parser.add_argument("kind", choices=[*KINDS, "parsers"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--cpu", action="store_true", help="count seconds of CPU time, not of the clock")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, help="run this one case again")
    parser.add_argument(
        "--coverage", action="store_true", help="of parsers: guided by atheris, which must be installed"
    )
    parser.add_argument(
        "--inputs", type=int, default=0, help="of parsers: go on with each only to so many in all its runs"
    )
    options = parser.parse_args(arguments)
    kind, seconds, seed = options.kind, options.seconds, options.seed
    if kind == "parsers":
        if options.case is not None or options.cpu:
            parser.error("--case and --cpu are not for parsers: what one did not read is a file in out/fuzz/findings")
        from tests.fuzz.parsers.processes import fuzz_parsers

        return fuzz_parsers(seconds, seed, options.inputs, is_guided=options.coverage)
    if options.coverage or options.inputs:
        parser.error("--coverage and --inputs are for parsers")
    if options.case is not None:
        totals = Totals()
        try_case(fuzzer(kind), options.case, totals)
        print(f"{kind}, case {options.case}")
    else:
        clock = time.process_time if options.cpu else time.monotonic
        totals = run(fuzzer(kind), seed, seconds=seconds, clock=clock)
        print(f"{kind}, seed {seed}, {seconds:g} s{' of CPU' if options.cpu else ''}")
    for name, count in sorted(totals.counts.items()):
        print(f"  {name:40}{count:>8}")
    for line in feature_lines(totals.features):
        print(f"  {line}")
    for finding in totals.findings[:SHOWN]:
        print(finding)
    print(f"{len(totals.findings)} wrong")
    return 1 if totals.findings else 0


if __name__ == "__main__":
    sys.exit(main())
