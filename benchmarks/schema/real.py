"""Measures 600 schemas from the wild with their instances: how many compile, and whether they are enforced.

Instances are written and retried as in the test suite (`suite.py`). Unlike there, `format` is asserted: some instances
are invalid only because of it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from benchmarks.schema.cases import Case, Missing, real
from benchmarks.schema.judging import measure
from benchmarks.schema.peers import CompileSchema, ours
from benchmarks.schema.spelling import canonical, compact, in_order
from benchmarks.schema.suite import show, table


def show_in_order(cases: list[Case], order: str) -> None:
    """The same with another order of properties, and what is refused as written, with the change that it takes."""
    compile_schema = ours(format="assert", order=order)
    outcomes = measure(cases, compile_schema, as_given=True)
    print(f"-- Espalier, order {order!r}, instances in their own order --")
    table(outcomes, kinds=False)
    for outcome in outcomes:
        for text in outcome.spelled:
            data = next(one.data for one in outcome.case.instances if compact(one.data) == text)
            print(
                f"  refused as written: {outcome.case.id}: {change(data, outcome.case, compile_schema)}: {text[:160]}"
            )


def change(data: Any, case: Case, compile_schema: CompileSchema) -> str:
    """What is to be changed in the text of a valid instance so that it is accepted."""
    compiled, ordered = compile_schema(case.schema), in_order(data, case.schema)
    ways = {"order": compact(ordered), "numbers": canonical(data), "order and numbers": canonical(ordered)}
    return next((name for name, text in ways.items() if compiled.accepts(text)), "another spelling")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="a .jsonl.gz, or BENCH_REAL_SCHEMAS")
    parser.add_argument("--order", help="the order of properties; instances are then written in their own order")
    arguments = parser.parse_args([] if argv is None else argv)
    try:
        cases = real(arguments.file)
        if arguments.order is None:
            show(cases, kinds=True, format="assert")
        else:
            show_in_order(cases, arguments.order)
    except Missing as missing:
        print(f"left out: {missing}")


if __name__ == "__main__":
    main(sys.argv[1:])
