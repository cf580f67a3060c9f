"""The only reader of the environment. Values, no behaviour: `wiring.py` turns them into an App."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from espalier.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """model: path or hub name used where none is given; None is the demo model. device, dtype: None lets the engine
    choose. cache_dir: where token tries are kept between runs; None keeps none. wordlist_dir: a folder of word lists,
    `<lang>.txt`, which come before those that ship with Espalier. tool_format: how models write tool calls whose chat
    template does not tell. config_dir: where the user's own files are, presets among them."""

    model: str | None = None
    device: str | None = None
    dtype: str | None = None
    cache_dir: Path | None = None
    wordlist_dir: Path | None = None
    tool_format: str | None = None
    config_dir: Path | None = None


KNOWN = ("MODEL", "DEVICE", "DTYPE", "CACHE_DIR", "WORDLIST_DIR", "TOOL_FORMAT", "CONFIG_DIR")


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """From `ESPALIER_MODEL`, `ESPALIER_DEVICE`, `ESPALIER_DTYPE`, `ESPALIER_CACHE_DIR` (`off` keeps nothing),
    `ESPALIER_WORDLIST_DIR`, `ESPALIER_TOOL_FORMAT` and `ESPALIER_CONFIG_DIR`.

    An `ESPALIER_` name that is not known raises InputError: a misspelt setting must not be ignored.
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
        device=env.get("ESPALIER_DEVICE") or None,
        dtype=env.get("ESPALIER_DTYPE") or None,
        cache_dir=cache_dir,
        wordlist_dir=Path(words).expanduser() if (words := env.get("ESPALIER_WORDLIST_DIR")) else None,
        tool_format=env.get("ESPALIER_TOOL_FORMAT") or None,
        config_dir=Path(config).expanduser() if config else config_base / "espalier",
    )
