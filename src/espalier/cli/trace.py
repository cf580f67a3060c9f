"""`espalier trace ...`: look at traces, rejection logs and replies of servers, put them together, compare, replay."""

from __future__ import annotations

from typing import Annotated

import typer

from espalier.cli import output
from espalier.errors import InputError
from espalier.trace.merge import Combined, estimate, merge_files, read_bytes, save, text_of
from espalier.trace.responses import read_response

app = typer.Typer(
    help="Look at traces, rejection logs and replies of servers; merge, compare and replay them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DEFAULT_OUT = "combined_output.json"
"""As the rejection tracer's own script."""


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
