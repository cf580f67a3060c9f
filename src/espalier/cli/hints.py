"""Errors in the language of the command line: what Python calls an argument is a flag here.

It knows names of arguments and flags, and no error's cause.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from espalier.errors import EspalierError
from espalier.wording import FLAGS, replaced

NEEDS = re.compile(r"^(\w+)( needs )(\w+)$")


def in_flags(error: EspalierError, flags: Collection[str]) -> None:
    """Rewrite the message's names and the hint's arguments (`num_beams=4`) as flags of the command. flags: those that
    it has, such as `--num-beams`; any other argument becomes `-o NAME VALUE` if the command has that."""
    if error.hint:
        error.hint = replaced(error.hint, lambda name, value: _flag(name, value, flags))
    message = NEEDS.sub(
        lambda match: _name_flag(match[1], flags) + match[2] + _name_flag(match[3], flags), error.message
    )
    name = error.field
    if name and message.startswith((f"{name}:", f"{name} ")):
        message = _name_flag(name, flags) + message.removeprefix(name)
    error.message = message


def _flag(name: str, written: str, flags: Collection[str]) -> str | None:
    value = written.strip("\"'")
    if name in ("constraint", "json_schema"):
        return next((flag for kind, flag in FLAGS.items() if value.startswith(f"{kind}(")), None)
    flag = f"--{name.replace('_', '-')}"
    if flag in flags:
        return flag if value == "True" else f"{flag} {value}"
    return f"-o {name} {value}" if "-o" in flags and value[:1].isdigit() else None


def _name_flag(name: str, flags: Collection[str]) -> str:
    flag = f"--{name.replace('_', '-')}"
    return flag if flag in flags else name
