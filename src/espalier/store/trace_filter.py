"""Which traces a list has: one value for the HTTP route, the command line, agents' tools and the page. It knows no
database: `trace_conditions.py` does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

PREFIX = "trc"
Verdict = Literal["valid", "invalid", "unknown", "flagged"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilter:
    """What the traces of a list have in common; None stands for anything."""

    #: The name of the API key.
    caller: str | None = None
    request_id: str | None = None
    #: By its exact name.
    model: str | None = None
    #: The constraint's kind, its fingerprint, or how its title begins; `none`: free text.
    constraint: str | None = None
    #: `valid`, `invalid`, `unknown` (not judged), or `flagged`: invalid, or with feedback of a client.
    verdict: Verdict | None = None
    #: Why the output ended.
    finish: str | None = None
    #: Unix seconds: not older than this.
    since: float | None = None
    #: Unix seconds: older than this.
    until: float | None = None
    #: At least so many tokens.
    min_tokens: int | None = None
    #: At least this tax, in nats.
    min_tax: float | None = None
    #: The worst path is this one, or below it.
    path: str | None = None
    #: Words to search for, as `search/query.py` reads them.
    query: str | None = None
    #: Older than this id.
    after: str | None = None
