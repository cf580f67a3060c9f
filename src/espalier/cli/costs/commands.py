"""`espalier costs ...`: what constraints cost over time."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from espalier.cli import output
from espalier.cli.costs import trying
from espalier.cli.costs.lines import change_lines, cost_lines, path_lines
from espalier.cli.costs.window import WhoseFlags, WindowFlags, span_of, window_of
from espalier.cli.flags.groups import sub_app, with_flags
from espalier.cli.trace.read import DatabaseUrl, store_at
from espalier.errors import InputError, UnknownName
from espalier.store.costs.report import path_changes
from espalier.store.costs.window import CostWindow

app = sub_app("Show what constraints cost over time: those of the last 7 days, or a command.")
app.info.no_args_is_help = False

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Fingerprint = Annotated[str, typer.Argument(help="Of the constraint, as `costs list` shows it.", show_default=False)]


@app.callback(invoke_without_command=True)
def costs(context: typer.Context) -> None:
    """Show what constraints cost over time: those of the last 7 days, or a command."""
    if context.invoked_subcommand is None:
        show_list(window_of(), None, as_json=False)


@app.command("list", short_help="List constraints, the dearest first.")
@with_flags
def list_command(
    *, window: WindowFlags, whose: WhoseFlags, database: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List what each constraint cost: answers, verdicts, tax, its change against the window before, speed, trend."""
    show_list(window_of(window, whose), database, as_json=as_json)


def show_list(window: CostWindow, database: str | None, *, as_json: bool) -> None:
    """Print the constraints of a window."""
    with store_at(database) as store:
        rows = store.costs(window)
    if as_json:
        output.data_json([row.to_json() for row in rows])
    elif not rows:
        output.note("no answers in this time")
    else:
        for line in cost_lines(rows):
            output.data(line)


@app.command("show", short_help="Show the paths of one constraint.")
@with_flags
def show_command(
    fingerprint: Fingerprint,
    *,
    window: WindowFlags,
    whose: WhoseFlags,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show where a constraint costs: each path's share of the tax, and what the model wanted there instead."""
    wanted = window_of(window, whose)
    with store_at(database) as store:
        if store.cost_constraint(fingerprint, caller=whose.caller) is None:
            raise UnknownName(
                f"no answer of the constraint {fingerprint!r:.80} is in the sums",
                hint="espalier costs list shows those that there are",
                field="fingerprint",
            )
        paths = store.cost_paths(wanted, fingerprint)
    if as_json:
        total = sum(path.tax for path in paths)
        output.data_json([path.to_json(total) for path in paths])
    elif not paths:
        output.note("nothing in this time")
    else:
        for line in path_lines(paths):
            output.data(line)


@app.command("diff", short_help="Compare two windows of time, path by path.")
@with_flags
def diff_command(
    fingerprint: Fingerprint,
    *,
    before: Annotated[
        str, typer.Option(help="A window, as FROM..TO: 14d..7d, 2026-11-01..2026-11-08.", metavar="WINDOW")
    ],
    after: Annotated[str, typer.Option(help="The later window, such as 7d..now.", metavar="WINDOW")] = "7d..now",
    limit: Annotated[
        float | None,
        typer.Option(
            help="Exit with 1 if a path became dearer by more than this, in percent.", min=0, metavar="PERCENT"
        ),
    ] = None,
    whose: WhoseFlags,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show which paths of a constraint became dearer, by how much, with an interval of 95 %."""
    now = time.time()
    windows = [span_of(text, now, flag, whose) for text, flag in ((before, "before"), (after, "after"))]
    with store_at(database) as store:
        sums = [store.cost_windows(window).get(fingerprint) for window in windows]
        old, new = (store.cost_paths(window, fingerprint) for window in windows)
    for flag, side in zip(("before", "after"), sums, strict=True):
        if side is None or not side.measured:
            raise InputError(f"--{flag}: no answer of {fingerprint!r:.80} in this time", field=flag)
    changes = path_changes(old, new, tuple(side.measured for side in sums if side is not None))
    if as_json:
        output.data_json([change.to_json() for change in changes])
    else:
        for line in change_lines(changes):
            output.data(line)
    over = [] if limit is None else [change for change in changes if change.is_dearer and change.percent > limit]
    if over:
        output.note(f"dearer by more than {limit:g} %: {', '.join(change.path for change in over)}")
        raise typer.Exit(1)


app.command("try", short_help="Try remedies with the model on kept prompts.")(trying.try_command)
