"""WORDLIST_SERVER_COMPAT: replies on two routes as the word-list server gave them.

Its statuses and `{"detail": ...}` errors, any model name, buckets of `max_tokens`, unknown fields ignored. Its faults
are not repeated, and features that it did not have, such as streams, work.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastapi import Request
from starlette.responses import Response

from espalier.engines.base import Result
from espalier.errors import EspalierError, Forbidden, SpecError, Unauthorized, UnknownName
from espalier.server.answering.replies import Head, whole_chat
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.openai import ask_chat
from espalier.server.asking.words import FIELDS, PAIR
from espalier.server.bodies.base import read_body
from espalier.server.bodies.openai import ChatBody
from espalier.server.bodies.wordlist_server import BEAM_FIELDS, InvalidWordlistBody, read_wordlist_body
from espalier.server.http.body import read_object
from espalier.server.http.errors import (
    BadRequest,
    MethodNotAllowed,
    NotFound,
    UnknownParameter,
    WrongMediaType,
    error_headers,
    openai_shape,
    path_of,
    tell_cause,
)
from espalier.server.http.query import READS
from espalier.server.http.wire import JsonResponse
from espalier.server.process.state import Process
from espalier.server.settings import COMPAT_SWITCH, ServerSettings
from espalier.wording import without_folders

log = logging.getLogger(__name__)
ROUTES = ("/v1/models", "/v1/chat/completions")
OWN = frozenset({*FIELDS, *BEAM_FIELDS})
"""Fields by which a client of the word-list server is known."""
KNOWN = frozenset(field.alias or name for name, field in ChatBody.model_fields.items())
NO_WORDS = "Constrained vocabulary configuration failed for language '{lang}'."
USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
DETAILS: dict[type[EspalierError], str] = {
    Unauthorized: "Forbidden",
    Forbidden: "Forbidden",
    MethodNotAllowed: "Method Not Allowed",
}


async def read_wordlist_chat(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """A body of the word-list server, with fields of ours. Raises InvalidWordlistBody, and what `read_object` raises
    for size and time."""
    try:
        data = await read_object(request, settings)
    except (BadRequest, WrongMediaType) as error:
        raise InvalidWordlistBody(
            [{"type": "json_invalid", "loc": ["body"], "msg": f"JSON decode error: {error}"}]
        ) from None
    body = adapt_wordlist_chat(data, getattr(request.state, "request_id", None))
    request.state.vocab_lang = body["vocab_lang"]
    return body


def adapt_wordlist_chat(data: dict[str, Any], request_id: str | None = None) -> dict[str, Any]:
    """The body of the word-list server as one of ours. Raises InvalidWordlistBody."""
    body = _adapt_body(data)
    ignored = sorted(name[:60] for name in data if name not in body)
    if ignored:
        log.warning("ignored fields: %s", ", ".join(ignored[:20]), extra={"fields": {"request_id": request_id}})
    return body


def compat_remedy(data: dict[str, Any], process: Process, error: EspalierError) -> str | None:
    """What COMPAT_SWITCH would do about the refusal of a body with fields of the word-list server: None where it would
    be refused all the same, or is read so already."""
    settings = process.settings
    if settings.wordlist_server_compat or OWN.isdisjoint(data) or "lmdb_path" in data:
        return None
    try:
        body = _adapt_body(data)
        ask_chat(read_body(ChatBody, body), replace(process, settings=replace(settings, wordlist_server_compat=True)))
    except EspalierError:
        return None
    if body["messages"] != data["messages"] and (error.field or "").startswith("messages"):
        return f"{COMPAT_SWITCH}=true puts system messages first, as the word-list server did"
    try:
        ask_chat(read_body(ChatBody, data, strict=settings.strict_fields), process)
    except EspalierError:
        return f"{COMPAT_SWITCH}=true takes this, as the word-list server did"
    return None  # what is wrong is found later, and the same under the switch


def _adapt_body(data: dict[str, Any]) -> dict[str, Any]:
    """The body without what that server did not know. Raises InvalidWordlistBody."""
    own = read_wordlist_body(data)
    body = {name: value for name, value in data.items() if name in KNOWN} | own
    if body.get("max_tokens") is not None:
        body["max_tokens"] = max(1, body["max_tokens"])  # which gives the smallest bucket
    if not body.get("vocab_lang"):
        body["vocab_lang"] = None
    body["messages"] = _system_first(body["messages"])
    return body


def _system_first(messages: list[Any]) -> list[Any]:
    """System messages are moved to the front, as in that server, which dropped all but the first: here they are
    joined."""
    system = [message for message in messages if isinstance(message, dict) and message.get("role") == "system"]
    if not system or (len(system) == 1 and messages[0] is system[0]):
        return messages
    rest = [message for message in messages if not any(message is two for two in system)]
    texts = [text for message in system if isinstance(text := message.get("content"), str)]
    if len(texts) == len(system):
        system = [{**system[0], "content": "\n\n".join(texts)}]
    return [*system, *rest]


def whole_wordlist_chat(parsed: ParsedRequest, head: Head, results: Sequence[Result]) -> dict[str, Any]:
    """The word-list server's reply, in which absent values are left out instead of null."""
    reply = whole_chat(parsed, head, results)
    del reply["system_fingerprint"]
    reply.pop("request_id", None)
    reply["usage"] = {name: reply["usage"][name] for name in USAGE}
    for choice in reply["choices"]:
        del choice["message"]["refusal"]
        if choice["logprobs"] is None:
            del choice["logprobs"]
    return reply


def wordlist_models(process: Process) -> dict[str, Any]:
    """The reply of `/v1/models`."""
    return {"object": "list", "data": [{"id": process.names[0], "object": "model", "owned_by": "owner"}]}


def _loc(path: str) -> list[str | int]:
    """`messages[0].content` as FastAPI has it: `["messages", 0, "content"]`."""
    return [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]


def wordlist_server_shape(error: EspalierError, request: Request) -> Response:
    """The reply to an error: `{"detail": ...}` on the word-list server's routes, OpenAI's shape elsewhere."""
    write = wordlist_server_error if path_of(request) in ROUTES else openai_shape
    return write(error, request)


def wordlist_server_error(error: EspalierError, request: Request) -> Response:
    """`{"detail": ...}`, with the word-list server's statuses."""
    status, detail = _status_and_detail(error, request)
    if status >= 500:
        tell_cause(error, request)
    headers = {name: value for name, value in error_headers(error).items() if name == "retry-after"}
    return JsonResponse({"detail": detail}, status_code=status, headers=headers)


def _status_and_detail(error: EspalierError, request: Request) -> tuple[int, Any]:
    if isinstance(error, InvalidWordlistBody):
        return 422, error.found
    if isinstance(error, Unauthorized | Forbidden):  # a key in the URL that is not allowed says how to allow it
        return 403, f"{DETAILS[Forbidden]}: {error}" if error.field == "token" else DETAILS[Forbidden]
    if isinstance(error, SpecError | UnknownName) and error.field in PAIR:
        return 500, NO_WORDS.format(lang=getattr(request.state, "vocab_lang", None))
    if isinstance(error, BadRequest | UnknownParameter) and error.field not in FIELDS:
        place = "query" if request.method in READS else "body"
        return 422, [
            {"type": "value_error", "loc": [place, *_loc(error.field or "")], "msg": without_folders(str(error))}
        ]
    if type(error) is NotFound and error.message == NotFound().message:
        return 404, "Not Found"
    return error.http_status, DETAILS.get(type(error), without_folders(str(error)))
