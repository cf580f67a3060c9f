"""Read and write one preset as a TOML file, `NAME.toml`, with the fields of `Preset`. It knows no folder."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from espalier.errors import EspalierError, InputError, OutputError
from espalier.files.json_shape import check_toml
from espalier.files.limits import PRESET
from espalier.files.reading import read_text
from espalier.files.writing import replaced
from espalier.sampling.presets.spec import Preset, check_name

SUFFIX = ".toml"


def read_preset(path: Path) -> Preset:
    """The preset in a file, named after the file. Raises InputError with the path, and with the line of a TOML
    error, TooLarge."""
    return parse_preset(read_text(path, PRESET), name=path.stem, source=str(path))


def parse_preset(text: str, *, name: str | None, source: str) -> Preset:
    """Parse TOML. name: what the text's `name` must be, if it has one; with None the text must have one. Raises
    InputError naming the source, TooLarge."""
    check_toml(text, PRESET, source)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # the message ends with line and column
        raise InputError(f"{source} is not TOML: {error}", field="preset") from error
    except RecursionError as error:
        raise InputError(f"{source} is nested too deeply", field="preset") from error
    except ValueError as error:  # a number with more digits than Python reads
        raise InputError(f"{source} is not TOML: {error}", field="preset") from error
    if name is None:
        if "name" not in data:
            raise InputError(f"{source}: a preset needs a `name`", hint='name = "mine"', field="name")
        name = data["name"]
    if data.get("name", name) != name:
        raise InputError(f"{source} names its preset {data['name']!r}", hint=f"rename one of the two: {name!r}")
    try:
        return Preset.from_json({**data, "name": check_name(name)})
    except EspalierError as error:
        raise InputError(f"{source}: {error.message}", hint=error.hint, field=error.field) from error
    except RecursionError as error:
        raise InputError(f"{source} is nested too deeply", field="preset") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:  # a value of an unexpected type
        raise InputError(f"{source}: {error}", field="preset") from error


def write_preset(preset: Preset, path: Path, *, replace: bool = False) -> None:
    """Write the file whole or not at all: an old file stays until the new one has been read back and is equal.

    Raises InputError if the file exists, or for values that TOML cannot express; OutputError if it cannot be written.
    """
    text = preset_text(preset)
    target = Path(os.path.realpath(path))  # keep a symbolic link
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        with replaced(target, is_new=not replace) as part:
            part.write_text(text, encoding="utf-8", newline="\n")
            if parse_preset(part.read_text(encoding="utf-8-sig"), name=preset.name, source=str(path)) != preset:
                raise OutputError(f"cannot write {path}: what was written reads otherwise")
    except FileExistsError as error:
        raise InputError(
            f"there is a preset {preset.name!r} already: {path}", hint="--force replaces it", field="name"
        ) from error


def preset_text(preset: Preset) -> str:
    """A preset as TOML, without the name, which is the file's, and without empty fields.

    Raises InputError naming the preset and the position for values that TOML cannot express, such as null.
    """
    values = preset.to_json()
    values["config"] = dict(preset.config)  # TOML has -inf, JSON does not
    values["filters"] = [
        spec.to_json() | {"options": {name: _as_lists(value) for name, value in spec.options.items()}}
        for spec in preset.filters
    ]
    try:
        table = {name: _as_toml(value, name) for name, value in values.items() if name != "name" and value}
        for multiline in (True, False):  # multi-line strings lose carriage returns
            text = tomli_w.dumps(table, multiline_strings=multiline)
            if parse_preset(text, name=preset.name, source=preset.name) == preset:
                return text
    except _NotToml as error:
        raise InputError(f"the preset {preset.name!r} cannot be written as TOML: {error}", field="preset") from error
    except (EspalierError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the preset {preset.name!r} cannot be written as TOML: {getattr(error, 'message', error)}", field="preset"
        ) from error
    raise InputError(f"the preset {preset.name!r} cannot be written as TOML: it would read otherwise", field="preset")


class _NotToml(Exception):
    """TOML cannot express the value; the message names its position."""


def _as_lists(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _as_lists(inner) for key, inner in value.items()}
    return [_as_lists(inner) for inner in value] if isinstance(value, list | tuple) else value


def _as_toml(value: Any, position: str) -> Any:
    """The value as tomli_w takes it. Raises _NotToml."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _NotToml(f"{position} has a key that is no text: {key!r}")
            _as_toml(key, position)
        return {key: _as_toml(inner, f"{position}.{key}") for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_toml(inner, f"{position}[{index}]") for index, inner in enumerate(value)]
    if value is None:
        raise _NotToml(f"{position} is null")
    if isinstance(value, str) and any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise _NotToml(f"{position} is not valid Unicode")
    if not isinstance(value, str | int | float):
        raise _NotToml(f"{position} is {type(value).__name__}")
    return value
