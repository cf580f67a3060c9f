"""Measures the required tests of the JSON Schema Test Suite, by draft: how many groups are enforced exactly.

Groups whose references lead to another document are left out, published metaschemas excepted. Instances are written
compactly, with their properties in the order of the schema, and walked byte by byte. A valid one that is refused is
tried again in other spellings of the same value: usual numbers (1.0 as 1, and 1 as 1.0), a space after `,` and `:`,
`\\u` escapes, other orders of properties. A group is *right* where every instance is judged right as first written, and
*nearly right* where some spelling of each valid one is accepted and no invalid one is.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Literal

from benchmarks.schema.cases import DRAFTS, LATEST, Case, Missing, suite
from benchmarks.schema.judging import Outcome, by_kind, figures, measure, reasons
from benchmarks.schema.peers import llguidance_alone, ours

SHOWN = 12  # ids of refused schemas that are listed for one reason


def reason(error: Exception) -> str:
    """An error message without the details of its schema."""
    text = re.sub(r"\bat /\S*|\bof /\S*", "…", str(error))
    text = re.sub(r"(?<=\s)/(?:[^\s/,]+/)*([^\s/,]+)", r"\1", text)  # a pointer: its last key
    return " ".join(f"{type(error).__name__}: {text}".split())[:140]


def table(outcomes: list[Outcome], *, kinds: bool, listed: bool = True) -> None:
    """The totals, then the wrong judgements, then the reasons for refusals."""
    f = figures(outcomes)
    share = f.compiled / max(f.schemas, 1)
    print(f"schemas {f.schemas}, compiled {f.compiled} ({share:.1%}); {f.empty} rightly refused as empty")
    print(f"wrongly accepted {f.wrong} of {f.invalid} invalid instances")
    print(
        f"accepted {f.accepted} of {f.valid} valid instances as written; {f.spelled} more in another spelling; "
        f"{f.lost} lost; {f.broken} ended in an error"
    )
    print(f"entirely right {f.right}; {f.nearly_right} excusing spelling")
    for outcome in outcomes:
        for what, texts in (
            ("WRONGLY ACCEPTED", outcome.wrong),
            ("error", outcome.broken),
            ("lost", outcome.lost if listed else ()),
        ):
            for text in texts:
                print(f"  {what}: {outcome.case.id}: {text[:160]}")
    if kinds:
        print("by kind, as schemas/compiled/right excusing spelling:")
        print("  " + ", ".join(f"{kind} {total}/{done}/{right}" for kind, total, done, right in by_kind(outcomes)))
    if listed:
        for why, ids in reasons(outcomes, reason):
            more = f", and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
            print(f"  {len(ids):4d} refused: {why}: {', '.join(ids[:SHOWN])}{more}")


def show(cases: list[Case], *, kinds: bool, format: Literal["annotate", "assert"] = "annotate") -> None:  # noqa: A002
    print(f"-- Espalier, which {format}s `format` --")
    table(measure(cases, ours(format=format)), kinds=kinds)
    print("\n-- llguidance alone --", flush=True)
    table(measure(cases, llguidance_alone()), kinds=kinds, listed=False)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "archive",
        type=Path,
        nargs="?",
        help="draft2020-12.tar.gz, or for other drafts the source distribution of jsonschema "
        "(pip download --no-binary :all: --no-deps jsonschema); or BENCH_SCHEMA_SUITE",
    )
    parser.add_argument("--draft", choices=list(DRAFTS), default=LATEST)
    arguments = parser.parse_args([] if argv is None else argv)
    try:
        show(suite(arguments.archive, arguments.draft), kinds=True)
    except Missing as missing:
        print(f"left out: {missing}")


if __name__ == "__main__":
    main(sys.argv[1:])
