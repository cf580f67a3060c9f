"""The `espalier` command: its sub-commands, and the one place where errors become exit codes.

Exit codes: 0 done, 1 failed, 2 asked wrongly, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import click
import typer

from espalier.cli import chat, doctor, generate, output
from espalier.errors import EspalierError
from espalier.version import __version__

app = typer.Typer(
    name="espalier",
    help="Constrained decoding for your own models that shows what the constraint did.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        output.data(f"espalier {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Constrained decoding for your own models that shows what the constraint did."""


app.command("generate")(generate.command)
app.command("chat")(chat.command)
app.command("doctor")(doctor.command)


def run(arguments: list[str] | None = None) -> None:
    """The console script. Every error a user can meet ends in one clear line and an exit code."""
    sys.exit(main_code(arguments))


def main_code(arguments: list[str] | None = None) -> int:
    """Run and return the exit code."""
    try:
        code = app(args=arguments, prog_name="espalier", standalone_mode=False)
    except EspalierError as error:
        return output.fail(error)
    except click.exceptions.NoArgsIsHelpError as shown:
        output.note(shown.format_message())
        return 2
    except click.ClickException as error:
        output.console().print(f"error: {error.format_message()}", style="red", markup=False, soft_wrap=True)
        return error.exit_code
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:
        # The reader of our pipe has gone; point stdout elsewhere so that the interpreter's last flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0
