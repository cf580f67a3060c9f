"""`espalier plugins`: lists what the plug-ins of installed packages add, and why one cannot be used."""

from __future__ import annotations

from typing import Annotated

import typer

from espalier import api
from espalier.cli import output
from espalier.columns import WIDTH, shown, wrapped

HEADER = ("KIND", "NAME", "PACKAGE", "STATE")


def command(
    builtin: Annotated[bool, typer.Option("--all", help="With the names that Espalier itself has.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List what the plug-ins of installed packages add, by kind, and why one cannot be used.

    Each is imported to see whether it works. ESPALIER_PLUGINS=0 switches all of them off (docs/plugins.md).
    """
    plugins = api.plugins(builtins=builtin)
    if as_json:
        output.data_json([plugin.to_json() for plugin in plugins])
        return
    if not plugins:
        output.note("no installed package has plug-ins for Espalier")
        return
    rows = [
        (plugin.kind, plugin.name, f"{plugin.package} {plugin.version}".strip(), plugin.state) for plugin in plugins
    ]
    texts = [tuple(map(shown, row)) for row in (HEADER, *rows)]
    widths = [max(len(row[column]) for row in texts) for column in range(len(HEADER))]
    lines = ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in texts]
    for number in range(len(plugins), 0, -1):
        reason = wrapped(shown(plugins[number - 1].reason), WIDTH - 4)
        lines[number + 1 : number + 1] = [f"    {line}" for line in reason]
    output.data("\n".join(lines))
