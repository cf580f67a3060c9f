"""`espalier presets list|show|add|remove|path`: list presets, and write files of your own.

`constraints/joining/presets.py` says what a preset's constraints mean. Tables are laid out by hand: rich cuts a text
between the marks that isolate right-to-left text, and drops whole columns where a line is too long.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size

from espalier import api
from espalier.api.preset_rows import preset_rows
from espalier.cli import output
from espalier.cli.flags.constraint import read_grammar
from espalier.cli.flags.groups import sub_app
from espalier.cli.flags.inputs import read_text
from espalier.cli.flags.sampling import read_fields
from espalier.cli.flags.schema import read_schema_argument
from espalier.cli.flags.store import app_with_store
from espalier.cli.flags.values import complete_preset
from espalier.cli.help import WithOverrides
from espalier.cli.vocab.command import visible
from espalier.columns import END_ISOLATE, ISOLATE
from espalier.constraints.joining.presets import CONSTRAINING, over_config, preset_parts
from espalier.errors import EspalierError, InputError
from espalier.files.json_shape import check_shape
from espalier.files.limits import PRESET
from espalier.sampling.presets.catalogue import STORE, Presets
from espalier.sampling.presets.files import SUFFIX, parse_preset, preset_text
from espalier.sampling.presets.spec import BUILTIN, Preset

app = sub_app("List, show, add and remove presets: sampling and constraint under one name.")

AsJson = Annotated[bool, typer.Option("--json", help="As JSON.")]
Name = Annotated[str, typer.Argument(help="The name of a preset.", metavar="NAME", autocompletion=complete_preset)]
COLUMNS = 80
NAME_COLUMNS = 24


@app.command("list", short_help="List the presets.")
def list_command(as_json: AsJson = False) -> None:
    """List the presets, and the reason why one cannot be used."""
    rows = preset_rows(_presets())
    if as_json:
        output.data_json(rows)
        return
    output.data("\n".join(table(rows)))


def table(rows: list[dict[str, Any]]) -> list[str]:
    """The list for people, in 80 columns."""
    wide = min(max([cell_len(visible(row["name"])) for row in rows] + [4]), NAME_COLUMNS)
    lines = [f"{'name':<{wide}}   temp  top_k  text"]
    for row in rows:
        own = {"built-in": "", STORE: "+"}.get(row["source"], "*")
        config = row.get("config", {})
        text = row["description"] if row["problem"] is None else f"unusable: {_reason(row)}"
        name = _clip(row["name"], wide)
        name += " " * (wide - cell_len(name))
        numbers = f"{_number(config, 'temperature'):>5} {_number(config, 'top_k'):>6}"
        start = f"{name} {own:<1}{numbers}  "
        lines.append((start + _clip(text, COLUMNS - cell_len(start))).rstrip())
    sources = {row["source"] for row in rows}
    notes = ["* your own, in a file"] if sources - {"built-in", STORE} else []
    notes += ["+ your own, in the store"] if STORE in sources else []
    return [*lines, *(["", *notes] if notes else [])]


def _number(config: dict[str, Any], name: str) -> str:
    return f"{config[name]:g}" if name in config else "-"


def _reason(row: dict[str, Any]) -> str:
    """Why a preset cannot be used, without its name."""
    reason = str(row["problem"])
    for subject in (
        f"cannot read the preset {row['source']}",
        f"the preset {row['source']}",
        row["source"],
        f"the preset {row['name']!r}",
    ):
        if reason.startswith(subject):
            return reason.removeprefix(subject).removeprefix(":").lstrip()
    return reason


def _clip(text: str, columns: int) -> str:
    """A text cut to so many columns, with every character visible; spaces stay spaces."""
    line = visible(text.rstrip("\n")).replace("␠", " ")
    bare = line.removeprefix(ISOLATE).removesuffix(END_ISOLATE)
    clipped = bare if cell_len(bare) <= columns else set_cell_size(bare, columns - 1) + "…"
    return clipped if bare == line else f"{ISOLATE}{clipped}{END_ISOLATE}"


@app.command("show", short_help="Print a preset.")
def show_command(name: Name, as_json: AsJson = False) -> None:
    """Print a preset as TOML, which `add` reads, or as JSON."""
    preset = _presets().get(name)
    if as_json:
        output.data_json(preset.to_json())
    else:
        output.data(preset_text(preset))
    try:
        preset_parts(preset)
    except EspalierError as error:
        output.note(f"cannot be used: {error.message}")


@app.command("add", short_help="Save a preset of your own.", cls=WithOverrides)
def add_command(
    source: Annotated[str, typer.Argument(help="A name, or a TOML or JSON file; `-` is stdin.", metavar="NAME|FILE")],
    description: Annotated[str, typer.Option(help="What the preset is for.")] = "",
    like: Annotated[str | None, typer.Option(help="Start from another preset.", metavar="NAME")] = None,
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", help="A sampling field; repeat it.", metavar="KEY VALUE")
    ] = None,
    grammar: Annotated[str | None, typer.Option(help="A GBNF grammar file, or @NAME.", metavar="FILE")] = None,
    root: Annotated[
        str | None, typer.Option(help="With --grammar: its start rule (default: root).", metavar="RULE")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(help="A JSON Schema: a file, JSON, or `name, age int`.", metavar="SCHEMA")
    ] = None,
    store: Annotated[
        bool, typer.Option("--store", help="Keep it in the database that servers share, and not in a file.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace your own preset of that name.")] = False,
) -> None:
    """Save a preset of your own, from a file or from flags: `espalier presets add mine -o temperature 0.2`."""
    presets = _presets()
    flags = {"--description": description, "--like": like, "-o": option, "--grammar": grammar, "--schema": schema}
    given = [flag for flag, value in flags.items() if value]
    if root is not None and grammar is None:
        raise InputError("--root needs --grammar", field="root")
    if source == "-" or Path(source).suffix in (SUFFIX, ".json"):
        if given:
            raise InputError(f"{given[0]} is for a preset by name, and {source} is a file", field="preset")
        preset = read_file(source)
    else:
        base = presets.get(like).to_json() if like else {}
        if base and (grammar is not None or schema is not None):  # in the place of the other one's; its bans stay
            filters = [entry for entry in base["filters"] if entry["type"] not in CONSTRAINING]
            base |= {"grammar": None, "json_schema": None, "filters": filters}
        preset = Preset.from_json(
            base
            | {"name": source, "config": over_config(base.get("config", {}), read_fields(option))}
            | ({"description": description} if description else {})
            | _grammar_fields(grammar, root, base.get("filters", []))
            | ({} if schema is None else {"json_schema": read_schema_argument(schema, read_text)})
        )
    for note in api.try_preset(preset):  # what cannot be used is not kept
        output.note(note)
    if store:
        output.note(f"wrote {preset.name} to {presets.store(preset, replace=force)}")
    else:
        output.note(f"wrote {presets.save(preset, replace=force)}")


def _grammar_fields(grammar: str | None, root: str | None, filters: list[Any]) -> dict[str, Any]:
    """The fields of a preset that name a grammar; one with another start rule is a filter."""
    if grammar is None:
        return {}
    text = grammar if grammar.startswith(BUILTIN) else read_grammar(grammar)
    if root is None:
        return {"grammar": text}
    return {"filters": [*filters, {"type": "grammar", "options": {"grammar": text, "root": root}}]}


def read_file(path: str) -> Preset:
    """A preset from TOML or JSON, named in the text or by the file; `-` is stdin. Raises InputError with the path."""
    text, stem = read_text(path, "preset"), None if path == "-" else Path(path).stem
    source = path if stem else "standard input"
    is_json = text.lstrip().startswith("{") if stem is None else Path(path).suffix == ".json"
    if not is_json:
        return parse_preset(text, name=stem, source=source)
    check_shape(text, PRESET, source)
    try:
        data = json.loads(text)
        return Preset.from_json(({"name": stem} if stem else {}) | data if isinstance(data, dict) else data)
    except json.JSONDecodeError as error:
        raise InputError(f"{source} is not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from error
    except RecursionError as error:
        raise InputError(f"{source} is nested too deeply") from error
    except (TypeError, ValueError, AttributeError) as error:  # a value of a kind nobody expects there
        raise InputError(f"{source}: {error}", field="preset") from error


@app.command("remove", short_help="Delete a preset of your own.")
def remove_command(name: Name) -> None:
    """Delete a preset of your own: its file or, without a file, what the store has."""
    output.note(f"removed {_presets().remove(name)}")


@app.command("path", short_help="Print the folder of your own presets.")
def path_command() -> None:
    """Print the folder of your own presets, in ESPALIER_CONFIG_DIR or ~/.config/espalier."""
    output.data(str(_presets().folder))


def _presets() -> Presets:
    return app_with_store().presets
