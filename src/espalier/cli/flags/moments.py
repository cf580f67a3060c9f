"""Reads the moments that flags such as `--since` name."""

from __future__ import annotations

from datetime import datetime

from espalier.errors import InputError
from espalier.server.settings import read_age


def read_since(text: str, now: float, *, flag: str = "since") -> float:
    """Unix seconds of a date, a local time, or an age before now. Raises InputError."""
    age = read_age(text.strip())
    if age is not None:
        return now - age
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"--{flag} {text!r:.40} is no time", hint="2026-11-23, 2026-11-23T08:00, 90m, 2h, 7d", field=flag
        ) from error
