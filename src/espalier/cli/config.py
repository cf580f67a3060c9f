"""`espalier config show`: prints every setting, its value and where the value comes from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.flags.groups import sub_app, with_flags
from espalier.cli.flags.server import EnvFile, ServerFlags, read_server, variables_of
from espalier.optional import check_extra
from espalier.server.settings import FIELDS, ServerSettings
from espalier.wiring import build_app

if TYPE_CHECKING:
    from espalier.server.environment import Environment

app = sub_app("Show the settings and where they come from.")
VALUE_COLUMNS = 48  # a longer value moves the origin in its own line only


@app.command("show")
@with_flags
def show_command(
    *,
    settings: ServerFlags,
    env_file: EnvFile = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print every setting, its value (secrets masked) and where the value comes from."""
    check_extra("server")
    rows = list(_rows(*read_server(variables_of(settings), env_file)))
    if as_json:
        output.data_json({name: {"value": value, "origin": origin} for name, value, origin in rows})
        return
    width = max(len(name) for name, _, _ in rows)
    texts = [(name, _text(value), origin) for name, value, origin in rows]
    middle = min(max(len(value) for _, value, _ in texts), VALUE_COLUMNS)
    output.data("\n".join(f"{name:<{width}}  {value:<{middle}}  {origin}" for name, value, origin in texts))


def _rows(environment: Environment, settings: ServerSettings) -> Iterator[tuple[str, Any, str]]:
    """Variable, value and origin: the server's settings, then the core's."""
    for field, entry in FIELDS.items():
        names = entry.variables
        value = getattr(settings, field)
        given = next((name for name in names if environment.values.get(name)), None)
        origin = "default" if given is None else environment.origins[given]
        as_name = f" ({given})" if given not in (None, names[0]) else ""
        yield names[0], "***" if entry.field.is_secret and value else value, f"{origin}{as_name}"
    for name, value in build_app(environ=environment.values).settings.shown().items():
        if name not in FIELDS["model_name"].variables:  # shown above
            yield name, value, environment.origins[name] if environment.values.get(name) else "default"


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "-"
    return "-" if value is None or value == "" else str(value).lower() if isinstance(value, bool) else str(value)
