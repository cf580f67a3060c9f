"""Reads the moments that flags such as `--since` name."""

from __future__ import annotations

import re
from datetime import datetime

from espalier.errors import InputError
from espalier.server.settings import AGE_UNITS


def read_since(text: str, now: float, *, flag: str = "since") -> float:
    """Unix seconds of a date, a local time, or an age before now. Raises InputError."""
    age = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smhdw])", text.strip())
    if age is not None:
        return now - float(age[1]) * AGE_UNITS[age[2]]
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"--{flag} {text!r:.40} is no time", hint="2026-11-23, 2026-11-23T08:00, 90m, 2h, 7d", field=flag
        ) from error
