"""The only reader of the environment. Values, no behaviour: `wiring.py` turns them into an App."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from espalier.engines.options import DEFAULT, EngineOptions, Lora, parse_lora
from espalier.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """model: path or hub name used where none is given; None is the demo model. options: how a model is opened where a
    caller does not say; what an engine does not take of them it is not given. cache_dir: where token tries are kept
    between runs; None keeps none. wordlist_dir: a folder of word lists, `<lang>.txt`, which come before those that ship
    with Espalier. config_dir: where the user's own files are, presets among them."""

    model: str | None = None
    options: EngineOptions = DEFAULT
    cache_dir: Path | None = None
    wordlist_dir: Path | None = None
    config_dir: Path | None = None


OPTIONS = ("DEVICE", "DTYPE", "TOOL_FORMAT", "KV_TYPE", "FLASH_ATTENTION")
NUMBERS = ("CONTEXT", "SEQUENCES", "KV_SIZE", "BATCH_SIZE", "GPU_LAYERS", "THREADS")
"""Settings that are options of an engine: as they stand, and as whole numbers."""
KNOWN = ("MODEL", *OPTIONS, *NUMBERS, "LORA", "CACHE_DIR", "WORDLIST_DIR", "CONFIG_DIR")


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """From `ESPALIER_` and a name of KNOWN. `ESPALIER_CACHE_DIR=off` keeps nothing; `ESPALIER_LORA` is `PATH:SCALE`,
    the scale left out for 1, several with commas between them. What is empty is not set.

    An `ESPALIER_` name that is not known, and a value that cannot be, raise InputError naming it: a misspelt setting
    must not be ignored.
    """
    env = os.environ if environ is None else environ
    known = {f"ESPALIER_{name}" for name in KNOWN}
    for name in env:
        if name.startswith("ESPALIER_") and name not in known:
            raise InputError(f"unknown setting {name}", hint=f"known: {', '.join(sorted(known))}", field=name)
    given = env.get("ESPALIER_CACHE_DIR") or None
    base = Path(env.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    cache_dir = None if given == "off" else Path(given).expanduser() if given else base / "espalier"
    config = env.get("ESPALIER_CONFIG_DIR") or None
    config_base = Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return Settings(
        model=env.get("ESPALIER_MODEL") or None,
        options=_read_options(env),
        cache_dir=cache_dir,
        wordlist_dir=Path(words).expanduser() if (words := env.get("ESPALIER_WORDLIST_DIR")) else None,
        config_dir=Path(config).expanduser() if config else config_base / "espalier",
    )


def _read_options(env: Mapping[str, str]) -> EngineOptions:
    """One at a time, so that a value that cannot be is told by its variable."""
    found = DEFAULT
    for name in (*OPTIONS, *NUMBERS, "LORA"):
        variable = f"ESPALIER_{name}"
        text = env.get(variable)
        if not text:
            continue
        try:
            found = replace(found, **{name.lower(): _READ[name](text)})
        except InputError as error:
            raise InputError(f"{variable}: {error.message}", hint=error.hint, field=variable) from error
    return found


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"{text!r} is no whole number") from error


def _adapters(text: str) -> tuple[Lora, ...]:
    return tuple(parse_lora(one.strip()) for one in text.split(","))


_READ: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys(OPTIONS, str),
    **dict.fromkeys(NUMBERS, _number),
    "LORA": _adapters,
}
