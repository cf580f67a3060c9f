"""`Blame`: the reason why a token was refused, made by matchers and shown by traces. It knows no matcher."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from espalier.json_record import OMITTED, JsonRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame(JsonRecord):
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
    rule: Annotated[str | None, OMITTED] = None
    offset: Annotated[int | None, OMITTED] = None
    position: Annotated[str | None, OMITTED] = None
    expected: Annotated[str | None, OMITTED] = None
