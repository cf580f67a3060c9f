"""The `espalier` command: registers the commands, and turns errors into messages and exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from espalier.cli import (
    activations,
    chat,
    check,
    config,
    doctor,
    evaluate,
    explain,
    generate,
    grammar,
    logs,
    mcp,
    output,
    plugins,
    presets,
    proxy,
    reconstruct,
    safety,
    serve,
    testing,
    vocab,
    wordlist,
)
from espalier.cli.batch import commands as batch
from espalier.cli.flags.sampling import WithOverrides
from espalier.cli.trace import commands as trace
from espalier.errors import EspalierError, OutputError
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


app.command("generate", short_help="Generate text under a constraint.", cls=WithOverrides)(generate.command)
app.command("explain", short_help="Explain what a constraint costs, where and why.", cls=WithOverrides)(explain.command)
app.command("chat", short_help="Talk with a model.", cls=WithOverrides)(chat.command)
app.command("check", short_help="Show what an engine enforces of a JSON Schema.")(check.command)
app.add_typer(grammar.app, name="grammar", short_help="Check, print, sample, try and convert GBNF grammars.")
app.add_typer(wordlist.app, name="wordlist", short_help="Build, list and check against word lists.")
app.add_typer(trace.app, name="trace", short_help="Show, merge, compare and replay traces.")
app.add_typer(logs.app, name="logs", short_help="List, show and search the log of generations.")
app.add_typer(presets.app, name="presets", short_help="List, show, add and remove presets.")
app.add_typer(safety.app, name="safety", short_help="Show what safety filters catch.")
app.command("reconstruct", short_help="Rebuild an inference file from logged requests.")(reconstruct.command)
app.command("test", short_help="Prove a configuration with test cases.")(testing.command)
app.add_typer(evaluate.app, name="eval", short_help="Judge generated answers.")
app.add_typer(activations.app, name="activations", short_help="Capture hidden states and look after their stores.")
app.command("vocab", short_help="Show what is in a tokenizer's vocabulary.")(vocab.command)
app.command("serve", short_help="Serve a model over HTTP, to any OpenAI client.")(serve.command)
app.command("proxy", short_help="Trace what constraints do in a llama-server.")(proxy.command)
app.command("mcp", short_help="Offer the verbs to agents as MCP tools.")(mcp.command)
app.add_typer(batch.app, name="batch", short_help="Run many prompts, on the spot or in the background.")
app.add_typer(config.app, name="config", short_help="Show the settings and where they come from.")
app.command("plugins", short_help="List the plug-ins of installed packages.")(plugins.command)
app.command("doctor", short_help="Show what is installed and what can run.")(doctor.command)


def run(arguments: list[str] | None = None) -> None:
    """The console script: runs the command line and exits with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")  # data is UTF-8 whatever the locale says
    sys.exit(main_code(arguments))


def main_code(arguments: list[str] | None = None) -> int:
    """Run and return the exit code."""
    try:
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
        output.console().print(f"error: {where}{message}", style="red", markup=False, soft_wrap=True)
    return 2
