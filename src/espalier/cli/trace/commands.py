"""`espalier trace ...`: look at traces, rejection logs and replies of servers, put them together, compare, replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from espalier.cli import output
from espalier.cli.trace import list as trace_list
from espalier.cli.trace import replay as trace_replay
from espalier.cli.trace import show as trace_show
from espalier.cli.trace.read import Choice, DatabaseUrl, Slot, Task, Temperature, TraceArgument, read_trace
from espalier.errors import InputError
from espalier.trace import page
from espalier.trace.files import write_text
from espalier.trace.foreign.merge import Combined, estimate, merge_files, read_bytes, save, text_of
from espalier.trace.foreign.read import has_gaps
from espalier.trace.foreign.responses import read_response
from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.export import FORMATS

app = typer.Typer(
    help="Look at traces, rejection logs and replies of servers; merge, compare and replay them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("replay", short_help="Go through a run once more, as it was or otherwise.")(trace_replay.replay_command)
app.command("diff", short_help="Say where two traces part, and what each cost.")(trace_replay.diff_command)

DEFAULT_OUT = "combined_output.json"
"""As the rejection tracer's own script."""
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command("show", short_help="Draw a trace in the terminal.")
def show_command(
    trace: TraceArgument,
    step: Annotated[int | None, typer.Option(help="One step, its stages as bars.", metavar="N")] = None,
    limit: Annotated[int | None, typer.Option(help="Tokens and rows of tables; 0 is all.", metavar="N")] = None,
    choice: Choice = 0,
    task: Task = None,
    slot: Slot = None,
    temperature: Temperature = None,
    database: DatabaseUrl = None,
) -> None:
    """Draw a trace: what it cost, its tokens, where it was dear, what was found and what to do about it."""
    if limit is not None and limit < 0:
        raise InputError(f"--limit: {limit} must be at least 0", field="limit")
    read = read_trace(trace, choice=choice, task=task, slot=slot, temperature=temperature, database=database)
    if step is None:
        trace_show.show(read, trace_show.terminal(), limit=limit)
    else:
        trace_show.show_step(read, step, trace_show.terminal(), limit=limit)


@app.command("html", short_help="Write a trace as a page.")
def html_command(
    trace: TraceArgument,
    out: Annotated[str | None, typer.Argument(help="Default: TRACE with .html; `-` is stdout.")] = None,
    beside: Annotated[
        str | None, typer.Option("--with", help="A second trace, shown beside it.", metavar="TRACE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    choice: Choice = 0,
    task: Task = None,
    slot: Slot = None,
    temperature: Temperature = None,
    database: DatabaseUrl = None,
) -> None:
    """Write a trace, or two side by side, as one HTML file that needs nothing else."""
    target = Path(out or f"{trace}.html" if database else out or Path(trace).with_suffix(".html")).expanduser()
    if out != "-" and target.exists() and not force:
        raise InputError(f"{target} is there already", hint="--force overwrites it", field="out")
    read = read_trace(trace, choice=choice, task=task, slot=slot, temperature=temperature, database=database)
    if beside is None:
        text = page.render(read.to_json(), findings=_found(read))
    else:
        # What says which part of a file to read is said of the first; a second one that needs it can be merged before.
        other = read_trace(beside, database=database)
        text = page.render_pair(read.to_json(), other.to_json(), titles=(Path(trace).name, Path(beside).name))
    if out == "-":
        output.data(text)
    else:
        write_text(target, text)
        output.note(f"page: {target}")


@app.command("diagnose", short_help="Say what went wrong, and what to do.")
def diagnose_command(
    trace: TraceArgument,
    as_json: AsJson = False,
    choice: Choice = 0,
    task: Task = None,
    slot: Slot = None,
    temperature: Temperature = None,
    database: DatabaseUrl = None,
) -> None:
    """Say what was found in a trace, faults first, and what to do about each."""
    read = read_trace(trace, choice=choice, task=task, slot=slot, temperature=temperature, database=database)
    if has_gaps(read):
        raise InputError(
            "a rejection log by itself has no run of tokens to diagnose",
            hint="espalier trace merge RESPONSE LOG, and diagnose what it writes",
            field="trace",
        )
    if as_json:
        output.data_json({"findings": _found(read)})
    else:
        trace_show.show_findings(diagnose(read), trace_show.terminal())


@app.command("export", short_help="Print a trace as CSV, JSON, JSON lines or SVG.")
def export_command(
    trace: TraceArgument,
    kind: Annotated[str, typer.Option("--format", help=f"{', '.join(FORMATS)}.", metavar="NAME")] = "csv",
    choice: Choice = 0,
    task: Task = None,
    slot: Slot = None,
    temperature: Temperature = None,
    database: DatabaseUrl = None,
) -> None:
    """Print a trace: a row or line for each step, the whole as JSON, or its cost over time as a drawing."""
    if kind not in FORMATS:
        raise InputError(f"--format: unknown format {kind!r}", hint=f"known are {', '.join(FORMATS)}", field="format")
    read = read_trace(trace, choice=choice, task=task, slot=slot, temperature=temperature, database=database)
    output.piece(FORMATS[kind](read))


@app.command("list", short_help="List the traces of a folder or a database.")
def list_command(
    folder: Annotated[str | None, typer.Argument(help="Default: this one.", show_default=False)] = None,
    database: DatabaseUrl = None,
    limit: Annotated[int, typer.Option(help="Of a database, the newest N.", metavar="N")] = 100,
    as_json: AsJson = False,
) -> None:
    """List what `show` can show: file or id, model, steps, cost, rejected steps, how it ended."""
    if folder is not None and database is not None:
        raise InputError("a folder and --database are two places", hint="give one", field="database")
    if limit < 1:
        raise InputError(f"--limit: {limit} must be at least 1", field="limit")
    if database is None:
        rows = trace_list.rows_of_folder(folder or ".")
    else:
        rows = trace_list.rows_of_database(database, limit=limit)
    if as_json:
        output.data_json(rows)
    elif rows:
        trace_list.draw(rows, trace_show.terminal())
    else:
        output.note("no traces")


def _found(trace: Trace) -> list[dict[str, object]]:
    return [] if has_gaps(trace) else [one.to_json() for one in diagnose(trace)]


@app.command("merge", short_help="A reply and a rejection log become one.")
def merge_command(
    response: Annotated[str, typer.Argument(help="The reply of a server, or a recorded stream of one.")],
    log: Annotated[str | None, typer.Argument(help="The rejection log.", show_default=False)] = None,
    out: Annotated[str | None, typer.Argument(help=f"Default: {DEFAULT_OUT}; `-` is stdout.")] = None,
    task: Annotated[int | None, typer.Option(help="The task of the log that the reply belongs to.")] = None,
    slot: Annotated[int | None, typer.Option(help="Its slot.")] = None,
    choice: Annotated[int, typer.Option(help="Of several choices, which.")] = 0,
    estimated: Annotated[
        bool, typer.Option("--estimate", help="No log: what the reply alone proves, marked as estimated.")
    ] = False,
    temperature: Annotated[
        float | None, typer.Option(help="With --estimate, where the reply does not tell it.")
    ] = None,
) -> None:
    """Put a reply with log probabilities and a rejection log together, in the rejection tracer's combined form."""
    if estimated and out is not None:
        raise InputError("--estimate takes no log", hint="espalier trace merge --estimate RESPONSE [OUT]", field="log")
    if estimated and (task is not None or slot is not None):
        raise InputError("--task and --slot choose from a log, and --estimate takes none", field="task")
    if temperature is not None and not estimated:
        raise InputError("--temperature is for --estimate", field="temperature")
    if estimated:
        made = estimate(read_response(read_bytes(response)), choice=choice, temperature=temperature)
        target = log or DEFAULT_OUT
    elif log is None:
        raise InputError("there is no rejection log", hint="--estimate does without one", field="log")
    else:
        made = merge_files(response, log, choice=choice, task=task, slot=slot)
        target = out or DEFAULT_OUT
    _write(made, target)


def _write(made: Combined, target: str) -> None:
    for warning in made.warnings:
        output.note(f"note: {warning}")
    if target == "-":
        output.data(text_of(made))
    else:
        save(made, target)
    summary = made.data["summary"]
    where = "" if target == "-" else f"{target}: "
    found = "estimated as rejected" if "estimated" in summary else "rejected"
    output.note(
        f"{where}{summary['total_steps']} steps, {summary['rejected_steps']} {found} "
        f"({100 * summary['rejection_rate']:.1f} %)"
    )
