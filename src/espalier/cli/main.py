"""The `espalier` command: turns errors into messages and exit codes. `table.py` names the commands.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import Annotated

import typer

from espalier.cli import output
from espalier.cli.help import Root, flag_hint
from espalier.errors import EspalierError, OutputError
from espalier.optional import optional_imports

app = typer.Typer(
    name="espalier",
    cls=Root,
    help="Constrained decoding for your own models that shows what the constraint did.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


GARBAGE = 200_000
"""New objects between two looks for cycles. Importing a model library makes millions of objects and hardly a cycle: a
cold `generate` spends a sixth of its CPU time on looking if that is done every 700 objects, as by default."""


def _version(asked: bool) -> None:
    if asked:
        from espalier.version import __version__  # noqa: PLC0415  # reading metadata takes 40 ms

        output.data(f"espalier {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Constrained decoding for your own models that shows what the constraint did."""


def run(arguments: list[str] | None = None) -> None:
    """The console script: runs the command line and exits with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # data is UTF-8 whatever the locale says
    gc.set_threshold(GARBAGE, 20, 20)
    code = main_code(arguments)
    gc.freeze()  # by now all is closed: Python's last look for cycles in all that was imported takes a second
    sys.exit(code)


def main_code(arguments: list[str] | None = None) -> int:
    """Run and return the exit code."""
    try:
        with optional_imports():
            code = app(args=arguments, prog_name="espalier", standalone_mode=False)
    except EspalierError as error:
        return output.fail(error)
    except typer.TyperException as error:
        return _wrong_usage(error)
    except typer.Exit as leaving:
        return leaving.exit_code
    except (KeyboardInterrupt, typer.Abort):
        output.LINES.before_message()
        return 130
    except BrokenPipeError:
        # The reader of our pipe has gone; point stdout elsewhere so that the interpreter's last flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        # Reading has its own errors (cli/flags/inputs.py): this one comes from writing to stdout.
        return output.fail(OutputError(f"cannot write to standard output: {error.strerror or error}"))
    return code if isinstance(code, int) else 0


def _wrong_usage(error: typer.TyperException) -> int:
    """Print what typer says of a wrong flag or value: a help text, or one line. Returns the exit code."""
    message = str(getattr(error, "message", "") or error)
    parameter = getattr(error, "param", None)
    where = f"{'/'.join(parameter.opts)}: " if parameter is not None and parameter.opts else ""
    if message.lower().startswith("usage:"):
        output.console().print(message, markup=False, soft_wrap=True)
    else:
        lines = output.console()
        lines.print(f"error: {where}{message}", style="red", markup=False, soft_wrap=True)
        if hint := flag_hint(error):
            lines.print(f"hint: {hint}", markup=False, soft_wrap=True)
    return 2
