"""`TranslatedRequest`: a request of another API, asked as one of OpenAI's, mostly of `/v1/chat/completions`. Its errors
name the fields of its own body. `Talk`: the chat messages that such a body stands for. No body is known here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from espalier.errors import EspalierError
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.naming import NO_NAMES
from espalier.server.asking.openai import ask_chat
from espalier.server.bodies.base import read_body
from espalier.server.bodies.openai import ChatBody, ReasoningFields, SharedBody
from espalier.server.http.errors import BadRequest
from espalier.server.process.state import Process

_END = re.compile(r"[.\[]|$")
_INDEX = re.compile(r"^messages\[([0-9]+)\]")
SHARED = frozenset({*SharedBody.model_fields, *ReasoningFields.model_fields}) - {"stream_options"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedRequest(ParsedRequest):
    """places: from the beginning of a field's path in the chat body to where it is in the client's own."""

    places: Mapping[str, str] = field(default_factory=dict)

    def named(self, error: EspalierError) -> EspalierError:
        """The error, its field now as the body calls it."""
        return moved(ParsedRequest.named(self, error), self.places)


@dataclass(slots=True)
class Talk:
    """messages: of the chat route. places: from the beginning of a path in them to where the client gave it. warnings:
    for the client."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add(self, message: dict[str, Any], place: str) -> None:
        self.places[f"messages[{len(self.messages)}]"] = place
        self.messages.append(message)


AdaptedType = TypeVar("AdaptedType", bound=TranslatedRequest)


def ask_adapted(
    data: dict[str, Any],
    process: Process,
    make: Callable[..., AdaptedType],
    *,
    places: Mapping[str, str] = NO_NAMES,
    body: type[SharedBody] = ChatBody,
    ask: Callable[..., AdaptedType] = ask_chat,
) -> AdaptedType:
    """Ask a body of OpenAI's that was made from another one. make: a `TranslatedRequest`. body, ask: of the route that
    is asked. Raises what `ask` raises, naming the fields of the other body, and BadRequest for more than one output."""
    with moving(places):
        asked = ask(read_body(body, data), process, make=partial(make, places=places))
        if len(asked.requests) * asked.returned > 1:
            raise BadRequest("there is one output here", hint="use /v1/chat/completions for several", field="n")
    return asked


@contextmanager
def moving(places: Mapping[str, str]) -> Iterator[None]:
    """Rename the field of every EspalierError that is raised inside; see `moved`."""
    try:
        yield
    except EspalierError as error:
        moved(error, places)
        raise


def moved(error: EspalierError, places: Mapping[str, str]) -> EspalierError:
    """The error; the longest beginning of its field's path that `places` has is replaced."""
    path = error.field or ""
    ends = [match.start() for match in _END.finditer(path)]
    for end in reversed(ends):
        if path[:end] in places:
            error.field = (places[path[:end]] + path[end:]).removeprefix(".") or None
            break
    return error


def moved_by(path: str, count: int) -> str:
    """A path into the messages, with `count` more messages before it."""
    return _INDEX.sub(lambda match: f"messages[{int(match[1]) + count}]", path, count=1)


def shared_fields(body: SharedBody) -> dict[str, Any]:
    """The fields that every generating route has and this body gives, as JSON."""
    return body.model_dump(exclude_unset=True, exclude_none=True, by_alias=True, include=set(SHARED))
