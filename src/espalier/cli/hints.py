"""Errors in the language of the command line: what Python calls an argument is a flag here.

It knows names of arguments and flags, and no error's cause.
"""

from __future__ import annotations

from collections.abc import Collection

from espalier.errors import EspalierError
from espalier.wording import Setting, in_flags


def say_in_flags(error: EspalierError, flags: Collection[str]) -> None:
    """Rewrite the names and settings of the error's message and hint as flags of the command. flags: those that it
    has, such as `--top-k`."""
    if error.hint:
        error.hint = in_flags(error.hint, flags)
    message = in_flags(error.message, flags)
    name = error.field
    if name and message.startswith((f"{name}:", f"{name} ")):
        message = Setting(name).in_flags(flags) + message.removeprefix(name)
    error.message = message
