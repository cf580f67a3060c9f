"""`espalier batch`: the sub-commands. Those that look at batches open the store and no model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.batch import report, run
from espalier.cli.batch.store import known, opened, upload
from espalier.cli.flags.groups import sub_app
from espalier.cli.flags.server import EnvFile

if TYPE_CHECKING:
    from espalier.jobs.values import Batch

app = sub_app("Run many prompts: on the spot, or through the store that servers and workers share.")
app.command("run", short_help="Run a file of prompts on a model, without a server.")(run.command)
app.command("worker", short_help="Work on the batches of the store until a signal.")(run.worker_command)
app.command("report", short_help="Show what a batch cost, where and why.")(report.command)

DatabaseUrl = Annotated[str | None, typer.Option("--database", help="The store. [default: DATABASE_URL]")]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
BatchId = Annotated[str, typer.Argument(help="The batch.", metavar="BATCH")]
CALLER = "anonymous"
"""Whom a server without keys takes every client for."""
Caller = Annotated[str, typer.Option(help="The name of the API key whose batch it is.", metavar="NAME")]


@app.command("submit", short_help="Queue a file for the workers of the store.")
def submit_command(
    file: Annotated[Path, typer.Argument(help="JSON Lines, as OpenAI takes them.", metavar="FILE")],
    endpoint: Annotated[str, typer.Option(help="The route of every line.")] = "/v1/chat/completions",
    priority: Annotated[int, typer.Option(help="Higher ones are run first.")] = 0,
    hours: Annotated[float | None, typer.Option(help="Expire after so many hours. [default: never]", min=0.01)] = None,
    caller: Caller = CALLER,
    database_url: DatabaseUrl = None,
    env_file: EnvFile = None,
) -> None:
    """Put a file of requests into the store; a server or a worker on the same store runs it. Prints the batch's id."""
    with opened(database_url, env_file) as store:
        from espalier.jobs.values import BatchPlan  # noqa: PLC0415

        made = store.batches.create(
            BatchPlan(
                caller=caller,
                endpoint=endpoint,
                input_file=upload(store, file, caller),
                priority=priority,
                window=None if hours is None else hours * 3600,
            )
        )
        output.data(made.id)


@app.command("status", short_help="Show how a batch stands.")
def status_command(
    batch: BatchId, as_json: AsJson = False, database_url: DatabaseUrl = None, env_file: EnvFile = None
) -> None:
    """State, counts and faults of a batch. Exit code 1 if its input was refused."""
    with opened(database_url, env_file) as store:
        summary = known(store, batch)
        _show(summary, as_json)
    raise typer.Exit(1 if summary.errors else 0)


@app.command("list", short_help="List batches, newest first.")
def list_command(
    limit: Annotated[int, typer.Option(help="At most so many.", min=1)] = 20,
    as_json: AsJson = False,
    database_url: DatabaseUrl = None,
    env_file: EnvFile = None,
) -> None:
    """The batches of all callers."""
    with opened(database_url, env_file) as store:
        for batch in store.batches.page(caller=None, limit=limit):
            _show(batch, as_json)


@app.command("results", short_help="Write the results of a batch.")
def results_command(
    batch: BatchId,
    out: Annotated[Path | None, typer.Option("-o", "--output", help="File. [default: stdout]")] = None,
    errors: Annotated[bool, typer.Option("--errors", help="Only items without an answer.")] = False,
    database_url: DatabaseUrl = None,
    env_file: EnvFile = None,
) -> None:
    """A line of JSON for each item that has ended, in the order of the input; also while others still run."""
    from espalier.files.writing import replaced  # noqa: PLC0415
    from espalier.jobs.formats.rows import GOES_ON  # noqa: PLC0415

    with opened(database_url, env_file) as store:
        lines = store.results.lines(known(store, batch).id, "error" if errors else "all")
        if out is None:
            for line in lines:
                output.piece(line.decode("ascii"))
            return
        with replaced(out, hint=GOES_ON) as temporary, temporary.open("wb") as file:
            file.writelines(lines)


@app.command("cancel", short_help="Stop a batch.")
def cancel_command(batch: BatchId, database_url: DatabaseUrl = None, env_file: EnvFile = None) -> None:
    """Stop a batch; what has finished can still be fetched."""
    with opened(database_url, env_file) as store:
        _show(store.batches.cancel(known(store, batch).id, caller=None), False)


@app.command("pause", short_help="Stop a batch for now.")
def pause_command(batch: BatchId, database_url: DatabaseUrl = None, env_file: EnvFile = None) -> None:
    """Running items are given back, and run again after `espalier batch resume`."""
    with opened(database_url, env_file) as store:
        _show(store.batches.pause(known(store, batch).id, caller=None, paused=True), False)


@app.command("resume", short_help="Go on with a paused batch.")
def resume_command(batch: BatchId, database_url: DatabaseUrl = None, env_file: EnvFile = None) -> None:
    """Go on with a paused batch."""
    with opened(database_url, env_file) as store:
        _show(store.batches.pause(known(store, batch).id, caller=None, paused=False), False)


def _show(batch: Batch | None, as_json: bool) -> None:
    if batch is None:
        return
    counts = batch.counts
    if as_json:
        shown: dict[str, Any] = {
            "id": batch.id,
            "status": str(batch.state),
            "paused": batch.is_paused,
            "caller": batch.plan.caller,
            "endpoint": batch.plan.endpoint,
            "created_at": batch.created,
            "priority": batch.plan.priority,
            "total": counts.total,
            "completed": counts.completed,
            "invalid": counts.invalid,
            "failed": counts.failed,
            "running": counts.running,
            "pending": counts.pending,
            "stopped": counts.stopped,
            "errors": [error.to_json() for error in batch.errors],
        }
        output.data(json.dumps(shown))
        return
    state = f"{batch.state}, paused" if batch.is_paused else str(batch.state)
    ended = counts.completed + counts.failed + counts.stopped
    invalid = f", {counts.invalid} not valid" if counts.invalid else ""
    output.data(f"{batch.id}  {state:<12} {ended}/{counts.total} ended, {counts.failed} failed{invalid}")
    for fault in batch.errors:
        where = "" if fault.line is None else f"line {fault.line}: "
        output.data(f"  {where}{fault.message}")
