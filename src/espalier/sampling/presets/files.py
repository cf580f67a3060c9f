"""One preset as a TOML file: `NAME.toml`, with the fields of `Preset`. It knows no folder and no other preset."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomli_w

from espalier.errors import EspalierError, InputError, OutputError
from espalier.sampling.presets.spec import Preset, check_name

SUFFIX = ".toml"


def read_preset(path: Path) -> Preset:
    """The preset of a file, named after it. Raises InputError with the path, and the line where it is no TOML."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"cannot read the preset {path}: {error.strerror or error}", field="preset") from error
    except UnicodeDecodeError as error:
        raise InputError(f"the preset {path} is not UTF-8 at byte {error.start}", field="preset") from error
    return parse_preset(text, name=path.stem, source=str(path))


def parse_preset(text: str, *, name: str | None, source: str) -> Preset:
    """From TOML. Raises InputError naming the source; a `name` in the text must be this one, or there where it is
    None."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:  # its message ends in the line and the column
        raise InputError(f"{source} is not TOML: {error}", field="preset") from error
    except RecursionError as error:
        raise InputError(f"{source} is nested too deeply", field="preset") from error
    except ValueError as error:  # a number of more digits than Python reads
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
    except (TypeError, ValueError, AttributeError, OverflowError) as error:  # a value of a kind nobody expects there
        raise InputError(f"{source}: {error}", field="preset") from error


def write_preset(preset: Preset, path: Path, *, replace: bool = False) -> None:
    """Whole or not at all: what is there stays until the new file has been read back and says the same.

    Raises InputError for a file that is there, or what TOML cannot say; OutputError for one that cannot be written.
    """
    text = preset_text(preset)
    target = Path(os.path.realpath(path))  # a link stays one
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    try:
        try:
            with part.open("x", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            if parse_preset(part.read_text(encoding="utf-8-sig"), name=preset.name, source=str(path)) != preset:
                raise OutputError(f"cannot write {path}: what was written reads otherwise")
            _put(part, target, replace=replace)
        finally:
            part.unlink(missing_ok=True)
    except FileExistsError as error:
        raise InputError(
            f"there is a preset {preset.name!r} already: {path}", hint="--force replaces it", field="name"
        ) from error
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _put(part: Path, target: Path, *, replace: bool) -> None:
    """Give the file its name, at once. Raises FileExistsError, also where somebody else was faster."""
    if not replace:
        try:
            os.link(part, target)
        except FileExistsError:
            raise
        except OSError:  # a file system without links
            if target.exists():
                raise FileExistsError from None
        else:
            return
    os.replace(part, target)


def preset_text(preset: Preset) -> str:
    """As TOML, without the name, which is the file's, and without what says nothing.

    Raises InputError naming the preset and the place for what TOML cannot say, as null.
    """
    values = preset.to_json()
    values["config"] = dict(preset.config)  # TOML has -inf, which JSON has not
    values["filters"] = [
        one.to_json() | {"options": {name: _listed(value) for name, value in one.options.items()}}
        for one in preset.filters
    ]
    try:
        said = {name: _said(value, name) for name, value in values.items() if name != "name" and value}
        for multiline in (True, False):  # carriage returns are lost between quotes that span lines
            text = tomli_w.dumps(said, multiline_strings=multiline)
            if parse_preset(text, name=preset.name, source=preset.name) == preset:
                return text
    except _Unsayable as error:
        raise InputError(f"the preset {preset.name!r} cannot be written as TOML: {error}", field="preset") from error
    except (EspalierError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the preset {preset.name!r} cannot be written as TOML: {getattr(error, 'message', error)}", field="preset"
        ) from error
    raise InputError(f"the preset {preset.name!r} cannot be written as TOML: it would read otherwise", field="preset")


class _Unsayable(Exception):
    """TOML has no such value; the message names the place."""


def _listed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _listed(one) for key, one in value.items()}
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


def _said(value: Any, place: str) -> Any:
    """As tomli_w takes it. Raises _Unsayable."""
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise _Unsayable(f"{place} has a key that is no text: {key!r}")
            _said(key, place)
        return {key: _said(one, f"{place}.{key}") for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_said(one, f"{place}[{index}]") for index, one in enumerate(value)]
    if value is None:
        raise _Unsayable(f"{place} is null")
    if isinstance(value, str) and any(0xD800 <= ord(c) < 0xE000 for c in value):
        raise _Unsayable(f"{place} is not valid Unicode")
    if not isinstance(value, str | int | float):
        raise _Unsayable(f"{place} is {type(value).__name__}")
    return value
