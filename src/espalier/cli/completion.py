"""`espalier completion install|show`: completes commands, flags, models and presets in the user's shell.

`values.py` of `cli/flags/` lists the models and presets. The scripts are typer's; each runs `espalier` at a
press of Tab.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_shared import _get_shell_name, get_completion_script, install

from espalier.cli import output
from espalier.cli.flags.groups import sub_app
from espalier.errors import InputError, OutputError

PROGRAM, VARIABLE = "espalier", "_ESPALIER_COMPLETE"


class Shell(StrEnum):
    """The shells that have a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"
    POWERSHELL = "powershell"
    PWSH = "pwsh"


app = sub_app("Complete commands, flags, models and presets in your shell.")
ShellName = Annotated[
    Shell | None, typer.Argument(help="bash, zsh, fish, powershell or pwsh. Default: the shell that runs this.")
]


@app.command("install", short_help="Install completion for your shell.")
def install_command(shell: ShellName = None) -> None:
    """Install completion for your shell, in its start-up files in your home folder. A second time changes nothing."""
    asked = shell or _running_shell()
    try:
        _, path = install(shell=asked.value, prog_name=PROGRAM, complete_var=VARIABLE)
    except OSError as error:
        raise OutputError(f"cannot install completion for {asked}: {error.strerror or error}") from error
    output.note(f"completion for {asked} is in {path}; open a new shell, then try: espalier gen<Tab>")


@app.command("show", short_help="Print the script that completes.")
def show_command(shell: ShellName = None) -> None:
    """Print the script, to install it yourself: `eval "$(espalier completion show bash)"`."""
    asked = shell or _running_shell()
    output.data(get_completion_script(prog_name=PROGRAM, complete_var=VARIABLE, shell=asked.value))


def _running_shell() -> Shell:
    """Raises InputError where the shell cannot be found out."""
    name = _get_shell_name()
    if name not in set(Shell):
        which = f"{name} has no completion script" if name else "the shell cannot be found out"
        raise InputError(which, hint=f"name one: espalier completion install {Shell.BASH}", field="shell")
    return Shell(name)
