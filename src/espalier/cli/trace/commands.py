"""`espalier trace ...`: show traces, rejection logs and server replies; merge, compare, export and diagnose them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from espalier.cli import output
from espalier.cli.flags.groups import sub_app, with_flags
from espalier.cli.flags.moments import read_since
from espalier.cli.trace import list as trace_list
from espalier.cli.trace import replay as trace_replay
from espalier.cli.trace import show as trace_show
from espalier.cli.trace.read import DatabaseUrl, SourceFlags, TraceArgument, read_trace
from espalier.errors import InputError, UnknownName
from espalier.store.trace_filter import VERDICTS
from espalier.trace import page
from espalier.trace.files import write_text
from espalier.trace.foreign.merge import CombinedTrace, check_target, estimate, merge_files, read_bytes, save, text_of
from espalier.trace.foreign.read import has_gaps
from espalier.trace.foreign.responses import read_response
from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.export import EXPORTERS, exported

app = sub_app("Show traces, rejection logs and server replies; merge, compare and replay them.")
app.command("replay", short_help="Replay a run, as it was or with changes.")(trace_replay.replay_command)
app.command("diff", short_help="Compare two traces: first difference and costs.")(trace_replay.diff_command)

DEFAULT_OUT = "combined_output.json"
"""The same name as in the rejection tracer's own script."""
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]


@app.command("show", short_help="Draw a trace in the terminal.")
@with_flags
def show_command(
    *,
    trace: TraceArgument,
    step: Annotated[int | None, typer.Option(help="Show the stages of one step as bars.", metavar="N")] = None,
    limit: Annotated[int | None, typer.Option(help="At most N tokens and table rows; 0: all.", metavar="N")] = None,
    source: SourceFlags,
) -> None:
    """Draw a trace: its cost, its tokens, the most expensive places, findings and remedies."""
    if limit is not None and limit < 0:
        raise InputError(f"--limit: {limit} must be at least 0", field="limit")
    read = read_trace(trace, source)
    if step is None:
        trace_show.show(read, trace_show.terminal(), limit=limit)
    else:
        trace_show.show_step(read, step, trace_show.terminal(), limit=limit)


@app.command("html", short_help="Write a trace as a page.")
@with_flags
def html_command(
    *,
    trace: TraceArgument,
    out: Annotated[str | None, typer.Argument(help="Default: TRACE with .html; `-` is stdout.")] = None,
    beside: Annotated[
        str | None, typer.Option("--with", help="A second trace, shown beside it.", metavar="TRACE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
    source: SourceFlags,
) -> None:
    """Write a trace, or two side by side, as one self-contained HTML file."""
    target = Path(out or f"{trace}.html" if source.database else out or Path(trace).with_suffix(".html")).expanduser()
    if out != "-":
        inputs = [
            source_path for source_path in (None if source.database else trace, beside) if source_path is not None
        ]
        check_target(str(target), inputs, force=force)
    read = read_trace(trace, source)
    if beside is None:
        text = page.render(read.to_json(), findings=_list_findings(read))
    else:
        # --choice, --task, --slot are for the first file; a second one that needs them can be merged before.
        other = read_trace(beside, SourceFlags(database=source.database))
        text = page.render_pair(read.to_json(), other.to_json(), titles=(Path(trace).name, Path(beside).name))
    if out == "-":
        output.data(text)
    else:
        write_text(target, text)
        output.note(f"page: {target}")


@app.command("diagnose", short_help="Find what went wrong, and what to do.")
@with_flags
def diagnose_command(*, trace: TraceArgument, as_json: AsJson = False, source: SourceFlags) -> None:
    """List the findings of a trace, faults first, and a remedy for each."""
    read = read_trace(trace, source)
    if has_gaps(read):
        raise InputError(
            "a rejection log by itself has no run of tokens to diagnose",
            hint="espalier trace merge RESPONSE LOG, and diagnose what it writes",
            field="trace",
        )
    if as_json:
        output.data_json({"findings": _list_findings(read)})
    else:
        trace_show.show_findings(diagnose(read), trace_show.terminal())


@app.command("export", short_help="Print a trace as CSV, JSON, JSON lines or SVG.")
@with_flags
def export_command(
    *,
    trace: TraceArgument,
    kind: Annotated[
        str, typer.Option("--format", help=f"{', '.join(EXPORTERS.builtins())}, a plug-in's.", metavar="NAME")
    ] = "csv",
    source: SourceFlags,
) -> None:
    """Print a trace: a row or line for each step, the whole as JSON, or a drawing of its cost."""
    try:
        EXPORTERS.require(kind)
    except UnknownName as error:
        raise InputError(f"--format: unknown format {kind!r}", hint=error.hint, field="format") from error
    output.piece(exported(read_trace(trace, source), kind))


@app.command("list", short_help="List and search the stored traces, or those of a folder.")
def list_command(
    folder: Annotated[
        str | None, typer.Argument(help="Its files, in place of the store's traces.", show_default=False)
    ] = None,
    *,
    query: Annotated[
        str | None,
        typer.Option("-q", "--query", help="Words of prompt and output, as of `logs search`.", metavar="QUERY"),
    ] = None,
    request_id: Annotated[str | None, typer.Option("--request", help="Of this request id.", metavar="ID")] = None,
    model: Annotated[str | None, typer.Option("-m", "--model", help="Of this model alone.")] = None,
    constraint: Annotated[
        str | None, typer.Option(help="Kind, fingerprint, or beginning of the title; none: free text.")
    ] = None,
    verdict: Annotated[str | None, typer.Option(help="valid, invalid, unknown, or flagged.")] = None,
    finish: Annotated[str | None, typer.Option(help="Why the output ended.", metavar="REASON")] = None,
    since: Annotated[str | None, typer.Option(help="A date, a time, or an age: 2026-11-23, 90m, 7d.")] = None,
    until: Annotated[str | None, typer.Option(help="The same: older than this.")] = None,
    min_tokens: Annotated[
        int | None, typer.Option(help="At least so many tokens.", min=0, max=10**12, metavar="N")
    ] = None,
    min_tax: Annotated[float | None, typer.Option(help="At least this tax.", min=0, metavar="NATS")] = None,
    path: Annotated[str | None, typer.Option(help="The worst path: /items/*/unit, or one below it.")] = None,
    after: Annotated[str | None, typer.Option(help="Go on after this id, the last of a page.", metavar="ID")] = None,
    database: DatabaseUrl = None,
    limit: Annotated[int, typer.Option(help="The newest N.", metavar="N")] = 20,
    as_json: AsJson = False,
) -> None:
    """List stored traces, newest first: when, model, constraint, verdict, tokens, tax, worst path, texts. With a
    folder, list its files: model, steps, cost, rejected steps, finish reason."""
    if limit < 1:
        raise InputError(f"--limit: {limit} must be at least 1", field="limit")
    if verdict not in (None, *VERDICTS):
        raise InputError(f"--verdict {verdict}: one of {', '.join(VERDICTS)}", field="verdict")
    now = time.time()
    wanted = {
        "query": query,
        "request_id": request_id,
        "model": model,
        "constraint": constraint,
        "verdict": verdict,
        "finish": finish,
        "since": None if since is None else read_since(since, now),
        "until": None if until is None else read_since(until, now, flag="until"),
        "min_tokens": min_tokens,
        "min_tax": min_tax,
        "path": path,
        "after": after,
    }
    asks_store = database is not None or any(value is not None for value in wanted.values())
    if folder is not None and asks_store:
        raise InputError("a folder and --database, or a filter, exclude one another", hint="give one", field="database")
    rows = (
        trace_list.rows_of_folder(folder)
        if folder is not None
        else trace_list.stored_rows(database, wanted, limit=limit)
    )
    if as_json:
        output.data_json(rows)
    elif not rows:
        output.note("no traces")
    elif folder is not None:
        trace_list.draw(rows, trace_show.terminal())
    else:
        for line in trace_list.lines_of(rows):
            output.data(line)


def _list_findings(trace: Trace) -> list[dict[str, object]]:
    return [] if has_gaps(trace) else [finding.to_json() for finding in diagnose(trace)]


@app.command("merge", short_help="Merge a reply and a rejection log.")
def merge_command(
    response: Annotated[str, typer.Argument(help="The reply of a server, or a recorded stream.")],
    log: Annotated[str | None, typer.Argument(help="The rejection log.", show_default=False)] = None,
    out: Annotated[str | None, typer.Argument(help=f"Default: {DEFAULT_OUT}; `-` is stdout.")] = None,
    task: Annotated[int | None, typer.Option(help="The task of the log that the reply belongs to.")] = None,
    slot: Annotated[int | None, typer.Option(help="The slot of the log that the reply belongs to.")] = None,
    request: Annotated[str | None, typer.Option(help="The request_id of the log that the reply belongs to.")] = None,
    choice: Annotated[int, typer.Option(help="Index of the choice in the reply.")] = 0,
    estimated: Annotated[
        bool,
        typer.Option("--estimate", help="Without a log: rejections that the reply alone proves, marked as estimated."),
    ] = False,
    temperature: Annotated[float | None, typer.Option(help="Temperature of the reply, if it does not say.")] = None,
    most_recent: Annotated[
        bool, typer.Option("--most-recent", help="Of several tasks that contradict nothing, take the last.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Overwrite the file. With --task, --slot, --request or --most-recent: also take a "
            "task that contradicts the reply.",
        ),
    ] = False,
    overwrite_merged: Annotated[bool, typer.Option("--overwrite-merged", hidden=True)] = False,
) -> None:
    """Merge a reply and a rejection log into the rejection tracer's combined form.

    The task of the log is found by what it has in common with the reply. Where that is weak, the only task that
    contradicts nothing is taken, and the file says so. Exit code 1, and no file, if there is none.
    """
    if estimated and out is not None:
        raise InputError("--estimate takes no log", hint="espalier trace merge --estimate RESPONSE [OUT]", field="log")
    if estimated and (most_recent or (task, slot, request) != (None, None, None)):
        raise InputError(
            "--task, --slot, --request and --most-recent choose from a log, and --estimate takes none", field="task"
        )
    if not estimated and log is None:
        raise InputError("there is no rejection log", hint="--estimate does without one", field="log")
    target = (log if estimated else out) or DEFAULT_OUT
    inputs = [response] if estimated or log is None else [response, log]
    check_target(target, inputs, force=force, is_own_free=overwrite_merged)
    if estimated or log is None:
        made = estimate(read_response(read_bytes(response)), choice=choice, temperature=temperature)
    else:
        made = merge_files(
            response,
            log,
            choice=choice,
            request=request,
            task=task,
            slot=slot,
            temperature=temperature,
            most_recent=most_recent,
            force=force,
        )
    _write(made, target)


def _write(combined: CombinedTrace, target: str) -> None:
    combined.check()
    for warning in combined.warnings:
        output.note(f"note: {warning}")
    if combined.link is not None:
        output.note(f"link: {combined.link.reason}")
    if target == "-":
        output.data(text_of(combined))
    else:
        save(combined, target)
    summary = combined.data["summary"]
    where = "" if target == "-" else f"{target}: "
    label = "estimated as rejected" if "estimated" in summary else "rejected"
    unknown = f", {summary['unknown_steps']} unknown" if summary["unknown_steps"] else ""
    rate = summary["rejection_rate"]
    share = "" if rate is None else f" ({100 * rate:.1f} %)"
    output.note(f"{where}{summary['total_steps']} steps, {summary['rejected_steps']} {label}{share}{unknown}")
