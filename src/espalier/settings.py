"""Reads the settings in `ESPALIER_…` variables, from one table of fields and the table of engine options.

Values, no behaviour: `wiring.py` turns them into an App. The server's own settings are in `server/settings.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from espalier.engines.options import DEFAULT, EngineOptions
from espalier.engines.request_options import FROM_ENVIRONMENT, Markers, PropertyOrder
from espalier.errors import InputError
from espalier.fields import DeclaredField, Field, entries, read_variable
from espalier.files.limits import SETTINGS
from espalier.files.reading import read_text
from espalier.sampling.fields import Option

LOG_LEVELS = ("off", "figures", "content")
LOG_SWITCH = "logs"
"""The file in the user's folder that `espalier logs on` writes: one of LOG_LEVELS."""


def _folder(text: str) -> Path:
    return Path(text).expanduser()


def _cache_folder(text: str) -> Path | None:
    return None if text == "off" else _folder(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """Values of the settings. options: defaults for opening a model; an engine is given those that it takes. Without a
    cache_dir nothing is kept between runs; without a config_dir there are no presets of the user's."""

    model: Annotated[str | None, Field("Path or hub name, where none is given; the demo model if empty.")] = None
    options: EngineOptions = DEFAULT
    cache_dir: Annotated[
        Path | None, Field("Folder of kept tries, filters and kernels; `off`: none.", parse=_cache_folder)
    ] = None
    wordlist_dir: Annotated[Path | None, Field("Word lists of your own, `<lang>.txt`.", parse=_folder)] = None
    config_dir: Annotated[Path | None, Field("Where the user's own files are, such as presets.", parse=_folder)] = None
    logs: Annotated[
        str | None,
        Field(
            "What is logged of each generation: off, figures, content; none: as `espalier logs on` says.",
            choices=LOG_LEVELS,
        ),
    ] = None
    #: Values of options of requests that hold where nothing else states one, by name.
    request_defaults: Mapping[str, Any] = field(default_factory=dict)

    plugins: Annotated[bool, Field("Whether plug-ins of installed packages are used.")] = True

    def default_of(self, option: Option) -> Any:
        """The value of an option of a request where nothing else states one; None if the settings do not either."""
        return self.request_defaults.get(option.name)

    def shown(self) -> dict[str, Any]:
        """The value of each variable for display: an adapter is `PATH:SCALE`."""
        values = {}
        for variable, entry in VARIABLES.items():
            if entry.name in REQUEST:
                value = self.request_defaults.get(entry.name)
            else:
                value = getattr(self if entry.name in entries(KernelSettings) else self.options, entry.name)
            values[variable] = tuple(map(str, value)) if isinstance(value, tuple) else value
        return values


def _request_field(option: PropertyOrder | Markers) -> DeclaredField:
    return DeclaredField(
        name=option.name,
        type=str,
        is_list=False,
        is_optional=True,
        choices=option.known,
        default=None,
        field=Field(option.help),
    )


REQUEST = {option.name: _request_field(option) for option in FROM_ENVIRONMENT}
"""The options of requests that the environment may state, as fields of a table."""


def _table() -> dict[str, DeclaredField]:
    own, options = entries(KernelSettings), entries(EngineOptions)
    first = {"model": own["model"]}
    every = first | dict(options) | dict(own) | REQUEST
    return {f"ESPALIER_{name.upper()}": entry for name, entry in every.items()}


VARIABLES: Mapping[str, DeclaredField] = MappingProxyType(_table())
"""Each variable, and the field of KernelSettings or EngineOptions that it is read into."""


def read_settings(environ: Mapping[str, str] | None = None) -> KernelSettings:
    """Settings from the variables in VARIABLES. An empty variable is not set; items of a list are separated by commas.

    Raises InputError naming the variable for a wrong value, and for an unknown `ESPALIER_…` name: a misspelt setting
    must not be ignored.
    """
    env = os.environ if environ is None else environ
    for name in env:
        if name.startswith("ESPALIER_") and name not in VARIABLES:
            raise InputError(f"unknown setting {name}", hint=f"known: {', '.join(sorted(VARIABLES))}", field=name)
    given = {
        entry.name: read_variable(entry, variable, env[variable])
        for variable, entry in VARIABLES.items()
        if env.get(variable)
    }
    options = {name: given.pop(name) for name in entries(EngineOptions) if name in given}
    requests = MappingProxyType({name: given.pop(name) for name in REQUEST if name in given})
    folders = {
        "cache_dir": Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "espalier",
        "config_dir": Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "espalier",
    }
    return KernelSettings(**folders | given, options=replace(DEFAULT, **options), request_defaults=requests)


def log_level(settings: KernelSettings) -> str:
    """One of LOG_LEVELS: what the settings say, else the file that `espalier logs on` writes, else `off`. Raises
    InputError for a file that says something else."""
    if settings.logs is not None:
        return settings.logs
    path = log_switch(settings)
    if path is None or not path.is_file():
        return "off"
    said = read_text(path, SETTINGS).strip()
    if said not in LOG_LEVELS:
        raise InputError(
            f"{path} says {said!r:.40}, not {' or '.join(LOG_LEVELS)}", hint="`espalier logs on`, or off", field="logs"
        )
    return said


def log_switch(settings: KernelSettings) -> Path | None:
    """The file that `espalier logs on` writes; None without a folder of the user's."""
    return None if settings.config_dir is None else settings.config_dir / LOG_SWITCH


Settings = KernelSettings
"""Its older name."""
