"""Texts that name options, for each edge in its own words: an argument of Python, a flag, a field of a request, an
argument of a tool of agents.

A hint is written once, with the options in it as values:

    OptionText("leave it out, or ", Setting("target", "truncated"))

As a text it is in Python's words (`leave it out, or target="truncated"`). An edge that has others asks for them with
`in_fields` or `in_flags`. This module knows names of options, flags and fields, and no error's cause.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from espalier.option_types import IN_ESPALIER, WITHOUT_FLAG

Edge = Literal["cli", "python", "http", "tool"]
USUAL_FOLDERS = ("home", "root", "Users", "private", "var", "tmp", "opt", "srv", "mnt", "media", "etc", "usr")
"""Where programs and data lie on servers, beside the folders that this process knows."""

OWN = IN_ESPALIER | {"allow", "safety", "soft", "trace"}
"""Settings that stand in the `espalier` of a request body; all others stand in the body itself."""
FLAGS: Mapping[str, str] = {
    "JsonSchema": "--schema SCHEMA",
    "Regex": "--regex PATTERN",
    "Choice": "--choice TEXT",
    "Gbnf": "--grammar FILE",
    "JsonObject": "--json-object",
    "Ban": "--ban TEXT",
}
"""Constraint -> its flag."""
FIELDS: Mapping[str, str] = {
    "JsonSchema": '"structured_outputs": {"json": ...}',
    "Regex": '"structured_outputs": {"regex": ...}',
    "Choice": '"structured_outputs": {"choice": [...]}',
    "Gbnf": '"structured_outputs": {"grammar": ...}',
    "JsonObject": '"structured_outputs": {"json_object": true}',
}
"""Constraint -> its field of a request body; others are an `espalier.constraint`."""
ANY_CONSTRAINT = '"espalier": {"constraint": {"kind": ...}}'


class _NoValue:
    """The value of a setting that is a name alone."""


NO_VALUE: Final[Any] = _NoValue()


@dataclass(frozen=True, slots=True)
class Setting:
    """An option, and the value that it is to have."""

    #: The option's name, as an argument of `generate`.
    option: str
    #: A plain value; NO_VALUE where a text names the option alone.
    value: Any = NO_VALUE
    #: How an edge says it, where that does not follow from name and value.
    others: Mapping[Edge, str] = field(default_factory=dict)

    def said(self, edge: Edge) -> str:
        """The setting in the words of an edge."""
        if edge in self.others:
            return self.others[edge]
        if self.value is NO_VALUE:
            return self.option
        if edge == "cli":
            return self._as_flag()
        if edge == "python":
            return f"{self.option}={self.value!r}".replace("'", '"')
        written = json.dumps({self.option: self.value})
        return f'"espalier": {written}' if edge == "http" and self.option in OWN else written[1:-1]

    def in_flags(self, flags: Collection[str]) -> str:
        """The setting as one of these flags, such as `--num-beams`; in Python's words if there is none."""
        said = self.others.get("cli") or (self._as_flag() if self.value is not NO_VALUE else self._flag)
        return said if said.partition(" ")[0] in flags else self.said("python")

    @property
    def _flag(self) -> str:
        return f"--{self.option.replace('_', '-')}"

    def _as_flag(self) -> str:
        value = ",".join(map(str, self.value)) if isinstance(self.value, list | tuple) else self.value
        if self.option in WITHOUT_FLAG:
            return f"-o {self.option} {value}"
        return self._flag if value is True else f"{self._flag} {value}"


def constraint(kind: str, arguments: str = "...") -> Setting:
    """The setting of a constraint. kind: its class. arguments: those of the class, as Python writes them."""
    written = f"constraint={kind}({arguments})"
    field_of_body = FIELDS.get(kind, ANY_CONSTRAINT)
    others: dict[Edge, str] = {"python": written, "http": field_of_body, "tool": field_of_body}
    return Setting("constraint", kind, others | ({"cli": FLAGS[kind]} if kind in FLAGS else {"cli": written}))


RAW = Setting("raw", True, {"http": "/v1/completions, whose prompt is used as it stands"})
ALLOW_CHECKED = Setting("allow", "checked", {"python": 'JsonSchema(schema, allow="checked")', "cli": "--allow-checked"})


class OptionText(str):
    """A text with settings in it. As a text, it says them in Python's words."""

    parts: tuple[str | Setting, ...]

    def __new__(cls, *parts: str | Setting) -> OptionText:
        words = (part if isinstance(part, str) else part.said("python") for part in parts)
        text = super().__new__(cls, "".join(words))
        text.parts = parts
        return text

    def __add__(self, more: str) -> OptionText:
        return OptionText(*self.parts, more)

    def __reduce__(self) -> tuple[Any, ...]:
        return OptionText, self.parts

    def said_by(self, say: Callable[[Setting], str]) -> str:
        """The text with each setting in the words of `say`."""
        return "".join(part if isinstance(part, str) else say(part) for part in self.parts)


def in_words(text: str, edge: Edge) -> str:
    """A text in the words of an edge; one without settings is itself, but for folders of this machine, which are for no
    reader elsewhere: only the names of files stay."""
    said = text.said_by(lambda setting: setting.said(edge)) if isinstance(text, OptionText) else text
    return without_folders(said) if edge in ("http", "tool") else said


def without_folders(text: str) -> str:
    """The text with the last name alone of each path below one of this machine's usual folders: in quotes with spaces,
    else up to one."""
    if "/" not in text:
        return text
    return _path_pattern().sub(lambda match: (match["quoted"] or match["bare"]).rstrip("/").rpartition("/")[2], text)


@cache
def _path_pattern() -> re.Pattern[str]:
    own = (Path.home(), Path.cwd(), Path(sys.prefix), Path(__file__).parents[1], Path(tempfile.gettempdir()))
    roots = {*USUAL_FOLDERS, *("/".join(path.parts[1:3]) for path in own if len(path.parts) > 1)}
    below = "|".join(sorted(map(re.escape, roots)))
    begins = rf"(?:(?<![\w.:/~-])|(?<=sqlite:///))/+(?:{below})/"
    quoted = rf"(?<=['\"`])(?P<quoted>/+(?:{below})/[^'\"`\n]*)(?=['\"`])"
    return re.compile(rf"{quoted}|(?P<bare>{begins}[^\s'\"`,;()]*[^\s'\"`,;().:])")


def in_flags(text: str, flags: Collection[str]) -> str:
    """A text with its settings as flags of a command. flags: those that it has."""
    return text.said_by(lambda setting: setting.in_flags(flags)) if isinstance(text, OptionText) else text
