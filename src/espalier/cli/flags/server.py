"""Server flags: those of `espalier serve`, from the table of the server's settings, and the settings they give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from espalier.cli import output
from espalier.cli.flags.groups import FlagsOf
from espalier.server.settings import FIELDS, ServerSettings, settings_of
from espalier.wiring import build_app

if TYPE_CHECKING:
    from espalier.server.environment import Environment

ServerFlags: TypeAlias = Annotated[dict[str, Any], FlagsOf(ServerSettings, is_checked=True)]
EnvFile = Annotated[str | None, typer.Option(help="File with settings. [default: .env, where there is one]")]


def variables_of(flags: Mapping[str, Any]) -> dict[str, str]:
    """The environment variables that flags set."""
    return {FIELDS[name].variables[0]: str(value) for name, value in flags.items()}


def read_server(flags: Mapping[str, str], env_file: str | None) -> tuple[Environment, ServerSettings]:
    """Settings from flags, environment and `.env`, with notes on stderr for what is not read. Raises InputError."""
    from espalier.server.environment import read_environment, unread_names  # noqa: PLC0415

    environment = read_environment(env_file=env_file, flags=flags)
    settings = settings_of(environment.values)
    build_app(environ=environment.values)  # raises for an unknown `ESPALIER_…`
    for note in environment.notes:
        output.note(note)
    known = {name for entry in FIELDS.values() for name in entry.variables} | {"ENV_FILE"}
    for name in unread_names(environment, known):
        output.note(f"{environment.file}: {name} is not a setting, and is ignored")
    return environment, settings
