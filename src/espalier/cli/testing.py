"""`espalier test`: runs test cases on a model, reports, compares, and exits with 1 where one fails."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.flags.answer import AnswerFlags
from espalier.cli.flags.constraint import ConstraintFlags
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.model import EngineFlags, Model, load
from espalier.cli.flags.safety import SafetyFlags
from espalier.cli.flags.store import app_with_store, opened, pruned
from espalier.cli.flags.words import WordFlags
from espalier.cli.progress import counting
from espalier.decoding.strategies import STRATEGIES
from espalier.errors import InputError, MissingDependency
from espalier.harness.cases.case import TestCase
from espalier.harness.cases.read import check_names, read_cases
from espalier.harness.cases.standard import STANDARD
from espalier.harness.compare.runs import Comparison, compared, comparison_text
from espalier.harness.report.junit import junit_text
from espalier.harness.results import Report
from espalier.harness.run import AT_ONCE, Harness
from espalier.trace.files import write_text
from espalier.trace.records import Trace

CALLER = "test"
"""Whose the traces of a run are, and their route."""
AGAINST = ("preset", "strategy", "model")
LISTED = 20


@with_flags
def command(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Cases in YAML, TOML or JSON. Default: the four standard cases.", metavar="[FILE]..."),
    ] = None,
    *,
    model: Model = None,
    constraint: ConstraintFlags,
    safety: SafetyFlags,
    vocab: WordFlags,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Run every case under this preset, instead of its own.")
    ] = None,
    strategy: Annotated[str | None, typer.Option("--strategy", help="Decode so, instead of as the cases say.")] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Of every case, instead of its own number.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Where neither the case nor its preset names one.")] = 0,
    at_once: Annotated[int, typer.Option("--at-once", min=1, max=256, help="Iterations in one batch.")] = AT_ONCE,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            help="Run a second time and compare: free, preset:NAME, strategy:NAME or model:NAME.",
            metavar="VARIANT",
        ),
    ] = None,
    compare: Annotated[
        str | None, typer.Option("--compare", help="Compare with an earlier run: its id, or last.", metavar="RUN")
    ] = None,
    runs: Annotated[bool, typer.Option("--runs", help="List the earlier runs, and test nothing.")] = False,
    keep_runs: Annotated[
        int | None,
        typer.Option("--keep-runs", min=1, help="Afterwards delete all stored runs but the newest N.", metavar="N"),
    ] = None,
    store: Annotated[bool, typer.Option("--store/--no-store", help="Keep the run in the database.")] = True,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML there.", metavar="FILE")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page there.", metavar="FILE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    engine: EngineFlags,
) -> None:
    """Prove a configuration before it is deployed: run test cases, and fail where one does.

    Constraints, filters and word lists of flags hold in every case, beside its own."""
    if runs:
        if keep_runs is not None:
            prune_runs(keep_runs)
        list_runs(as_json=as_json)
        return
    cases = cases_of(files or [], iterations)
    kind, _, name = read_variant(against)
    app = app_with_store()
    for wanted in (preset, name if kind == "preset" else None):
        if wanted is not None:
            app.presets.get(wanted)  # an unknown name is an error before the model is loaded
    for wanted in (strategy, name if kind == "strategy" else None):
        if wanted is not None:
            STRATEGIES.require(wanted)
    earlier = None if compare is None else read_run(compare)
    must = AnswerFlags(constraint=constraint, safety=safety, vocab=vocab).options(app)
    shared: dict[str, Any] = {"seed": seed, "at_once": at_once, "warm": against is not None, "options": must}
    usual: dict[str, Any] = {"preset": preset, "strategy": strategy}
    other: Report | None = None
    traces: list[tuple[Trace, float]] = []
    with load(model, engine, app) as loaded, counting("cases") as progress:
        report = (
            Harness(loaded, **shared, **usual, progress=progress, traced=lambda *answer: traces.append(answer))
            .add(*cases)
            .run()
        )
        if kind in ("free", "preset", "strategy"):
            changed = {"free": True} if kind == "free" else {kind: name}
            other = Harness(loaded, **shared, **(usual | changed), progress=progress).add(*cases).run()
    if kind == "model":
        with load(name, engine, app) as loaded, counting("cases") as progress:
            other = Harness(loaded, **shared, **usual, progress=progress).add(*cases).run()
    comparisons: list[Comparison] = []
    if other is not None:
        comparisons.append(compared(report, other, names=("this run", str(against))))
    if earlier is not None:
        comparisons.append(compared(earlier[1], report, names=(earlier[0], "this run")))
    if as_json:
        output.data_json(report.to_json() | {"comparisons": [comparison.to_json() for comparison in comparisons]})
    else:
        output.data("\n\n".join([str(report), *map(comparison_text, comparisons)]))
    if junit is not None:
        write_text(junit, junit_text(report))
        output.note(f"written: {junit}")
    if html is not None:
        from espalier.harness.report.page import report_page  # noqa: PLC0415  # the template engine, seldom needed

        write_text(html, report_page(report, comparisons))
        output.note(f"written: {html}")
    if store:
        keep(report, traces, preset=preset, strategy=strategy)
    if keep_runs is not None:
        prune_runs(keep_runs)
    raise typer.Exit(0 if report.passed else 1)


def cases_of(files: list[str], iterations: int | None) -> list[TestCase]:
    """The cases of all files, or the standard ones. Raises InputError."""
    cases = [case for file in files for case in read_cases(file)] if files else [*STANDARD]
    check_names(cases, ", ".join(files))
    if iterations is None:
        return cases
    return [TestCase.from_json(case.to_json() | {"iterations": iterations}) for case in cases]


def read_variant(text: str | None) -> tuple[str, str, str]:
    """`free`, or a kind and a name. Raises InputError."""
    if text is None:
        return "", "", ""
    kind, colon, name = text.partition(":")
    if text != "free" and (kind not in AGAINST or not name):
        raise InputError(
            f"--against {text!r:.80} is no variant",
            hint="free, preset:NAME, strategy:NAME, model:NAME",
            field="against",
        )
    return kind, colon, name


def read_run(run: str) -> tuple[str, Report]:
    """An earlier run. Raises InputError if there is none."""
    with opened() as store:
        name, data = store.test_run(run)
    return name, Report.from_json(data)


def keep(report: Report, traces: Sequence[tuple[Trace, float]], **fields: str | None) -> None:
    """Store a run and the sums of each answer, and say under which id. Without the extra [server] nothing is stored,
    and a note says so. traces: with the seconds that each answer took."""
    try:
        with opened() as store:
            name = store.save_test_run(report.to_json(), **fields)
            for index, (trace, seconds) in enumerate(traces):
                store.save_trace(
                    trace.to_json(), request_id=name, caller=CALLER, index=index, route=CALLER, total=seconds
                )
    except MissingDependency as error:
        output.note(f"the run is not stored: {error}")
        return
    output.note(f"stored: {name}; a later run compares itself with --compare {name}")


def prune_runs(rows: int) -> None:
    """Delete all stored runs but the newest, and say how many."""
    with opened() as store:
        output.note(pruned(store.pruning, "test_runs", seconds=None, rows=rows))


def list_runs(*, as_json: bool) -> None:
    with opened() as store:
        runs = store.test_runs(limit=LISTED)
    if as_json:
        output.data_json([dict(test_run) for test_run in runs])
        return
    output.data(f"{'run':<32}{'when':<18}{'cases':>8}{'iterations':>12}")
    for stored_run in runs:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(stored_run["created"]))
        cases, iterations = (f"{stored_run[f'{name}_passed']}/{stored_run[name]}" for name in ("cases", "iterations"))
        output.data(f"{stored_run['id']:<32}{when:<18}{cases:>8}{iterations:>12}")
