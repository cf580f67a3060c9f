"""`espalier test`: runs test cases on a model, reports, and exits with 1 where one fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from espalier.cli import output
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.model import EngineFlags, Model, load
from espalier.harness.cases.case import TestCase
from espalier.harness.cases.read import check_names, read_cases
from espalier.harness.cases.standard import STANDARD
from espalier.harness.report.junit import junit_text
from espalier.harness.report.terminal import report_text
from espalier.harness.run import AT_ONCE, Harness, Progressed
from espalier.trace.files import write_text
from espalier.wiring import build_app


@with_flags
def command(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Cases in YAML, TOML or JSON. Default: the four standard cases.", metavar="[FILE]..."),
    ] = None,
    *,
    model: Model = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Run every case under this preset, instead of its own.")
    ] = None,
    strategy: Annotated[str | None, typer.Option("--strategy", help="Decode so, instead of as the cases say.")] = None,
    iterations: Annotated[
        int | None, typer.Option("--iterations", min=1, help="Of every case, instead of its own number.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Where neither the case nor its preset names one.")] = 0,
    at_once: Annotated[int, typer.Option("--at-once", min=1, max=256, help="Iterations in one batch.")] = AT_ONCE,
    junit: Annotated[Path | None, typer.Option("--junit", help="Write JUnit XML there.", metavar="FILE")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    engine: EngineFlags,
) -> None:
    """Prove a configuration before it is deployed: run test cases, and fail where one does."""
    cases = cases_of(files or [], iterations)
    app = build_app()
    if preset is not None:
        app.presets.get(preset)  # an unknown name is an error before the model is loaded
    with load(model, engine, app) as loaded, progress_bar() as progress:
        harness = Harness(loaded, preset=preset, strategy=strategy, seed=seed, at_once=at_once, progress=progress)
        report = harness.add(*cases).run()
    if junit is not None:
        write_text(junit, junit_text(report))
        output.note(f"written: {junit}")
    if as_json:
        output.data_json(report.to_json())
    else:
        output.data(report_text(report))
    raise typer.Exit(0 if report.passed else 1)


def cases_of(files: list[str], iterations: int | None) -> list[TestCase]:
    """The cases of all files, or the standard ones. Raises InputError."""
    found = [one for file in files for one in read_cases(file)] if files else [*STANDARD]
    check_names(found, ", ".join(files))
    if iterations is None:
        return found
    return [TestCase.from_json(one.to_json() | {"iterations": iterations}) for one in found]


@contextmanager
def progress_bar() -> Iterator[Progressed]:
    """A bar on stderr while cases run; nothing where stderr is no terminal."""
    console = output.console()
    columns = ("cases", BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("")

        def tell(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of)

        yield tell
