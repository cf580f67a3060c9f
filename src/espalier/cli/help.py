"""Help in groups with examples, nearest names for what is not known, and commands that are imported when they run.

It knows no command: `table.py` names them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, MutableMapping
from importlib import import_module
from typing import Any

import typer
from typer._click.shell_completion import CompletionItem
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from espalier.cli.table import COMMANDS, EXAMPLES, CommandEntry
from espalier.nearest import did_you_mean

COMMON, ARGUMENTS, EXAMPLE = "Options", "Arguments", "Examples"
OVERRIDE = ("-o", "--option")
BOLD, PLAIN = "\x1b[1m", "\x1b[0m"
THEIRS = {
    "--max-new-tokens": "--max-tokens",
    "--n-predict": "--max-tokens",
    "--predict": "--max-tokens",
    "-n": "--max-tokens",
    "--temp": "--temperature",
    "--json-schema": "--schema",
    "--guided-json": "--schema",
    "--output-type": "--schema",
    "--guided-regex": "--regex",
    "--guided-choice": "--choice",
    "--guided-grammar": "--grammar",
    "--grammar-file": "--grammar",
    "--prompt": "the prompt as an argument",
    "-p": "the prompt as an argument",
    "--system-prompt": "--system",
    "--json-mode": "--json-object",
    "--repeat-penalty": "--repetition-penalty",
}
"""What other programs call a flag -> ours."""


def heading(title: str) -> str:
    """A heading, bold on a terminal that takes it."""
    shows = sys.stdout is not None and sys.stdout.isatty() and "NO_COLOR" not in os.environ
    return f"{BOLD}{title}{PLAIN}" if shows and os.environ.get("TERM") != "dumb" else title


def write_examples(formatter: Any, path: str) -> None:
    """The examples of a command, as they are typed. path: `espalier trace show`."""
    lines = EXAMPLES.get(path.partition(" ")[2], ())
    if lines:
        with formatter.section(heading(EXAMPLE)):
            for line in lines:
                formatter.write(f"  {line}\n")


class GroupedCommand(TyperCommand):
    """A command whose help has its flags in groups, those that are used most first, and examples."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {ARGUMENTS: [], COMMON: []}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                panel = getattr(param, "rich_help_panel", None) or COMMON
                title = ARGUMENTS if param.param_type_name == "argument" else panel
                groups.setdefault(title, []).append(record)
        for title, rows in groups.items():
            if rows:
                with formatter.section(heading(title)):
                    formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        super().format_epilog(ctx, formatter)
        write_examples(formatter, ctx.command_path)


class WithOverrides(GroupedCommand):
    """A command that takes `-o KEY VALUE` as well as `-o KEY=VALUE`: typer itself has no option of repeated pairs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self.join_overrides(args))

    def join_overrides(self, args: list[str]) -> list[str]:
        """The arguments with each `-o KEY VALUE` as `-o KEY=VALUE`."""
        with_value = {name for param in self.params if not getattr(param, "is_flag", False) for name in param.opts}
        joined: list[str] = []
        rest = iter(args)
        for argument in rest:
            joined.append(argument)
            if argument == "--":
                break
            if argument in OVERRIDE:
                key = next(rest, None)
                value = None if key is None or "=" in key else next(rest, None)
                joined += [] if key is None else [key if value is None else f"{key}={value}"]
            elif argument in with_value:
                joined += [value for value in [next(rest, None)] if value is not None]
        return [*joined, *rest]


class OnDemand(MutableMapping[str, Any]):
    """The commands of a table by name, each imported when it is asked for."""

    def __init__(self, table: dict[str, CommandEntry]) -> None:
        self._table = table
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = _make_command(name, self._table[name])
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


class Root(TyperGroup):
    """The group `espalier`. Its help is written from the table: no command is imported for it."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = OnDemand(COMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_params(self, ctx: Any) -> list[Any]:
        """Without typer's two flags for completion, which is a command here."""
        return [param for param in super().get_params(ctx) if not str(param.name).endswith("_completion")]

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """The names of commands, with their help from the table: none is imported for it."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        return [CompletionItem(name, help=COMMANDS[name].help) for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        width = max(map(len, COMMANDS))
        for name, entry in COMMANDS.items():
            panels.setdefault(entry.panel, []).append((name.ljust(width), entry.help))
        for title, rows in panels.items():
            with formatter.section(heading(title)):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        write_examples(formatter, "espalier ")


def _make_command(name: str, entry: CommandEntry) -> Any:
    module, _, attribute = entry.target.partition(":")
    target = getattr(import_module(f"espalier.cli.{module}"), attribute)
    if isinstance(target, typer.Typer):
        group = get_group(target)
        group.name = name
        return group
    home, _, name_of_class = entry.command_class.partition(":")
    cls = getattr(import_module(f"espalier.cli.{home}"), name_of_class)
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.command(name, short_help=entry.help, cls=cls)(target)
    command = get_command(app)
    command.name = name
    return command


def flag_hint(error: Any) -> str | None:
    """What an unknown flag may have meant, or that several words need quotes; None for another error, and where nothing
    is similar."""
    if "unexpected extra argument" in str(getattr(error, "message", "")):
        command = getattr(getattr(error, "ctx", None), "command", None)
        if not any(param.param_type_name == "argument" for param in getattr(command, "params", ())):
            return "this command takes flags alone; --help lists them"
        return 'several words are one argument in quotes, such as "Generate user info"'
    wrong, ctx = getattr(error, "option_name", None), getattr(error, "ctx", None)
    if wrong is None or ctx is None:
        return None
    known = {name for param in ctx.command.get_params(ctx) for name in (*param.opts, *param.secondary_opts)}
    named = f"--{str(wrong).lstrip('-').replace('_', '-')}" if len(str(wrong).lstrip("-")) > 1 else str(wrong)
    theirs = THEIRS.get(named)
    if theirs is not None and (theirs.split()[0] in known or not theirs.startswith("-")):
        return f"here it is {theirs}"
    return did_you_mean(named, {option for option in known if option.startswith("--")})
