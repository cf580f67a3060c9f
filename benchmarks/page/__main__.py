"""`python -m benchmarks.page`: measures everything, and writes the page.

`--compare REV` compares two commits, `--beside FILE` two runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.page import badges, compare, plots, quoted
from benchmarks.page.document import document
from benchmarks.page.measure import IDLE_SECONDS, ROOT, measure
from benchmarks.page.plan import PARTS

DOCS = ROOT / "docs"
DATA = DOCS / "images" / "bench.json"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few schemas, in under four minutes")
    parser.add_argument("--repetitions", type=int, help="5, and 3 of a quick run")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        choices=[part.title for part in PARTS],
        metavar="TITLE",
        help="measure these parts; the others stay as they are",
    )
    parser.add_argument(
        "--idle-seconds",
        type=float,
        help=f"how long to wait for an idle machine: {IDLE_SECONDS:g}, and 0 of a quick run",
    )
    parser.add_argument("--out", type=Path, default=DOCS, help="the folder of benchmarks.md and images/")
    parser.add_argument("--write", action="store_true", help="measure nothing: write the page from its data again")
    parser.add_argument(
        "--compare", metavar="REV", help="measure this commit beside the working tree, and write no page"
    )
    parser.add_argument(
        "--beside", type=Path, metavar="FILE", help="measure nothing: which ratios of another run's bench.json differ"
    )
    arguments = parser.parse_args()
    if arguments.repetitions is None:
        arguments.repetitions = 3 if arguments.quick else 5
    if arguments.idle_seconds is None:
        arguments.idle_seconds = 0.0 if arguments.quick else IDLE_SECONDS
    if arguments.compare:
        return compare.main(arguments.compare, arguments.only, arguments.repetitions, is_quick=arguments.quick)
    if arguments.beside:
        compare.show_other_run(*(json.loads(file.read_text(encoding="utf-8")) for file in (DATA, arguments.beside)))
        return 0
    if arguments.write:
        write(json.loads(DATA.read_text(encoding="utf-8")), arguments.out)
        return 0
    file = arguments.out / "images" / DATA.name
    before: dict[str, Any] = {"parts": []}
    if arguments.only and file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
    data: dict[str, Any] = {}
    for data in measure(
        is_quick=arguments.quick,
        repetitions=arguments.repetitions,
        names=arguments.only,
        idle_seconds=arguments.idle_seconds,
    ):
        write(with_others(data, before), arguments.out)  # what is measured is kept, if the rest is not
    if not data:
        parser.error("none of these parts has a quick way: leave --quick out")
    print(f"written: {arguments.out / 'benchmarks.md'}")
    return 0


def write(data: dict[str, Any], out: Path) -> None:
    """The page, its data and its pictures."""
    images = out / "images"
    images.mkdir(parents=True, exist_ok=True)
    (images / DATA.name).write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    names = plots.draw(data, images)
    (out / "benchmarks.md").write_text(document(data, names), encoding="utf-8")
    if out == DOCS:
        (images / "badges.svg").write_text(badges.svg(badges.facts(data, ROOT)), encoding="utf-8")
        quoted.write_quotations(data, ROOT)


def with_others(data: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The parts that were measured now, and of the page before those that were not."""
    measured = {part["title"]: part for part in (*before["parts"], *data["parts"])}
    return data | {"parts": [measured[part.title] for part in PARTS if part.title in measured]}


if __name__ == "__main__":
    sys.exit(main())
