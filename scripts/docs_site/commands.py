"""Pages of the command line's reference, made from the help of each command. It knows no command by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

WIDTH = 100
FOLDER = "reference/cli"


def pages() -> dict[str, str]:
    """Path in the site -> Markdown: one page for each command, with its sub-commands, and an index."""
    os.environ["COLUMNS"] = str(WIDTH)
    os.environ["NO_COLOR"] = "1"
    import typer.rich_utils  # noqa: F401, PLC0415  # what typer formats help with
    from typer.main import get_command  # noqa: PLC0415

    from espalier.cli.main import app  # noqa: PLC0415

    root: Any = get_command(app)
    context = root.make_context("espalier", [], resilient_parsing=True)
    made, rows = {}, []
    for name in root.list_commands(context):
        parts = list(helps(root, context, name))
        made[f"{FOLDER}/{name}.md"] = "\n".join(
            [f"# espalier {name}\n", "This page is made from `--help`.\n", *(section(*part) for part in parts)]
        )
        rows.append(f"| [{name}]({name}.md) | {escaped(parts[0][2])} |")
    table = "\n".join(["| command | what it does |", "|---|---|", *rows])
    made[f"{FOLDER}/index.md"] = (
        "# Command line\n\nEach page is made from the `--help` of its command. Data goes to stdout and everything else"
        f" to stderr. Exit code 0: done; 1: failed; 2: wrong usage.\n\n{table}\n"
    )
    return made


def helps(parent: Any, above: Any, name: str) -> Iterator[tuple[str, str, str]]:
    """(path, help, first line) of a command and of every command below it."""
    command = parent.get_command(above, name)
    context = command.make_context(name, [], parent=above, resilient_parsing=True)
    first = (command.help or "").partition("\n")[0]
    yield context.command_path, command.get_help(context), first
    for below in getattr(command, "commands", {}):
        yield from helps(command, context, below)


def section(path: str, text: str, _: str) -> str:
    return f"## {path}\n\n```text\n{text.rstrip()}\n```\n"


def escaped(text: str) -> str:
    return text.replace("|", "\\|")
