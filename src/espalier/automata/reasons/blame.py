"""`Blame`: the reason why a token was refused, made by matchers and shown by traces. It knows no matcher."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The reason a constraint gives for refusing one token.

    member: the kind of constraint that refused it (`json_schema`, `gbnf`, `regex`, `ban`, `budget`, ...).
    reason: one sentence for people.
    rule: the name of the grammar rule or the JSON pointer, if one is known.
    offset: how many bytes of the token are accepted; the byte at this offset is the first refused one.
    position: the position in the constraint's source (`line 3, column 5`), if one is known.
    expected: in words, what could have come instead.
    """

    member: str
    reason: str
    rule: str | None = None
    offset: int | None = None
    position: str | None = None
    expected: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name in NAMES if (value := getattr(self, name)) is not None}


NAMES = tuple(field.name for field in fields(Blame))
