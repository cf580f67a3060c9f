"""OpenAI's `/v1/responses`: create a response, whole or as a stream; stored ones, with their items."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import InputError
from espalier.server.answering.responses.again import events_of
from espalier.server.answering.responses.compact import whole_compaction
from espalier.server.answering.responses.keeping import keep_streamed, keep_whole
from espalier.server.answering.responses.reply import ResponsesChunks, responses_head, whole_response
from espalier.server.answering.route import Dialect, answer
from espalier.server.asking.responses.ask import ParsedResponsesRequest, ask_responses
from espalier.server.asking.responses.compact import ask_compact
from espalier.server.bodies.base import Body
from espalier.server.bodies.openapi import STREAM
from espalier.server.bodies.responses import CompactBody, ResponsesBody
from espalier.server.http.body import read_object
from espalier.server.http.errors import (
    GENERATION_ERRORS,
    READING_ERRORS,
    BadRequest,
    NotFound,
    PreviousResponseNotFound,
    documented,
)
from espalier.server.http.query import AFTER, ORDER, limit_of, limit_parameter, parameter, query_of
from espalier.server.http.sse import HEADERS, event
from espalier.server.http.wire import JsonResponse, to_bytes_by_parts
from espalier.server.ports import ResponseStore
from espalier.server.process.deps import caller_of, process_of
from espalier.server.process.state import Process
from espalier.server.routes.batch_store import PRIVATE
from espalier.server.routes.counting import COUNTED, answer_count
from espalier.server.routes.stored import from_store
from espalier.server.settings import ServerSettings

Json = dict[str, Any]
T = TypeVar("T")
B = TypeVar("B", bound=Body)
ROUTE = "/v1/responses"
REPLY: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "OpenAI's response object.",
        "content": {"application/json": {"schema": {"type": "object"}}, **STREAM},
    }
}
STATUSES = (*READING_ERRORS, 429)
LIMIT, MOST = 20, 100
RESPONSES = Dialect(
    route=ROUTE,
    operation="chat",
    body=ResponsesBody,
    ask=ask_responses,
    head=responses_head,
    whole=whole_response,
    chunks=ResponsesChunks,
    finish=keep_whole,
    writes=True,
    ended=keep_streamed,
    done=b"",
)
COMPACT = Dialect(
    route=f"{ROUTE}/compact",
    operation="chat",
    body=CompactBody,
    ask=ask_compact,
    head=responses_head,
    whole=whole_compaction,
    chunks=ResponsesChunks,
)
COMPACTED: dict[int | str, dict[str, Any]] = {
    200: {"description": "OpenAI's compaction.", "content": {"application/json": {"schema": {"type": "object"}}}}
}
INCLUDE = tuple(
    parameter(name, "Has no effect: what is stored is shown whole.")
    for name in ("include", "include[]", "include_obfuscation")
)
READ_PARAMETERS = (
    parameter("stream", "The events of the response.", kind="boolean", default=False),
    parameter("starting_after", "With stream: the number of the last event that is left out.", kind="integer"),
    *INCLUDE,
)

router = APIRouter(tags=["openai"])


@router.post(
    ROUTE,
    responses={**REPLY, **documented(*GENERATION_ERRORS)},
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/ResponsesBody"}},
)
async def create_response(request: Request) -> Response:
    """Reply to items of a conversation, under a format, with functions and custom tools, whole or as a stream."""
    return await answer(request, _with_history(RESPONSES, ask_responses))


@router.post(
    ROUTE + "/input_tokens",
    responses={**COUNTED, **documented(*GENERATION_ERRORS)},
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/ResponsesBody"}},
)
async def count_input_tokens(request: Request) -> Response:
    """How many tokens the prompt of a response has. Nothing is generated."""
    return await answer_count(request, _with_history(RESPONSES, ask_responses), object="response.input_tokens")


@router.post(
    COMPACT.route,
    responses={**COMPACTED, **documented(*GENERATION_ERRORS)},
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/CompactBody"}},
)
async def compact_response(request: Request) -> Response:
    """A shorter conversation that goes on as this one: the user's messages, and a summary that the model writes."""
    return await answer(request, _with_history(COMPACT, ask_compact))


def _with_history(dialect: Dialect[B], ask: Callable[..., ParsedResponsesRequest]) -> Dialect[B]:
    """The dialect, which also reads the items of the response before. ask: takes them as `history`."""
    history: list[Json] = []

    async def read(http: Request, settings: ServerSettings) -> Json:
        data = await read_object(http, settings)
        history.extend(await _history(http, data.get("previous_response_id")))
        return data

    return replace(dialect, read=read, ask=partial(ask, history=history))


@router.get(
    ROUTE + "/{response_id}", responses={**REPLY, **documented(*STATUSES)}, openapi_extra=query_of(*READ_PARAMETERS)
)
async def get_response(request: Request, response_id: str) -> Response:
    """One stored response, or with `?stream=true` its events, from the one after `starting_after` on."""
    again, after = request.query_params.get("stream", "false"), request.query_params.get("starting_after")
    if again not in ("true", "false"):
        raise InputError("stream is true or false", field="stream")
    if after is not None and (again == "false" or not re.fullmatch(r"[0-9]{1,9}", after)):
        raise InputError("starting_after is the number of an event of a stream", field="starting_after")

    def work(store: ResponseStore, caller: str) -> bytes:
        response = _load_response(store, response_id, caller)["response"]
        if again == "false":
            return to_bytes_by_parts(response)
        first = 0 if after is None else int(after) + 1
        return b"".join(
            event(event_data, name=event_data["type"], by_parts=True)
            for event_data in islice(events_of(response), first, None)
        )

    body = await _in_store(request, work)
    if again == "true":
        return Response(body, media_type="text/event-stream", headers={**HEADERS, **PRIVATE})
    return JsonResponse(body, headers=PRIVATE)


@router.delete(ROUTE + "/{response_id}", responses=documented(*STATUSES))
async def delete_response(request: Request, response_id: str) -> Response:
    """Delete one response for good. Responses that go on from it stay whole."""
    if not await _in_store(request, lambda store, caller: store.delete_response(response_id, caller=caller)):
        raise _unknown()
    return JsonResponse({"id": response_id, "object": "response", "deleted": True}, headers=PRIVATE)


@router.get(
    ROUTE + "/{response_id}/input_items",
    responses=documented(*STATUSES),
    openapi_extra=query_of(limit_parameter(default=LIMIT, most=MOST), AFTER, ORDER, *INCLUDE),
)
async def list_input_items(request: Request, response_id: str) -> Response:
    """The items that a stored response answers, those of earlier responses included, newest first."""
    limit, after = limit_of(request, default=LIMIT, most=MOST), request.query_params.get("after")
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InputError("order is asc or desc", field="order")
    items = await _in_store(request, lambda store, caller: _load_response(store, response_id, caller)["items"])
    items = items if order == "asc" else items[::-1]
    if after is not None:
        places = [place for place, item in enumerate(items) if item["id"] == after]
        if not places:
            raise InputError("`after` is not an id of this list", field="after")
        items = items[places[0] + 1 :]
    shown = items[:limit]
    ends = {"first_id": shown[0]["id"] if shown else "", "last_id": shown[-1]["id"] if shown else ""}
    page = {"object": "list", "data": shown, **ends, "has_more": len(items) > limit}
    return JsonResponse(to_bytes_by_parts(page), headers=PRIVATE)


@router.post(ROUTE + "/{response_id}/cancel", responses=documented(*STATUSES))
async def cancel_response(request: Request, response_id: str) -> Response:
    """Always an error, as OpenAI's for a response that is not in the background: close the connection instead."""
    await _in_store(request, lambda store, caller: _load_response(store, response_id, caller))
    raise BadRequest(
        "only background responses can be cancelled, and there are none here",
        hint="close the connection to end a response",
        field="response_id",
    )


async def _history(request: Request, previous: Any) -> list[Json]:
    """The items of the response before, and its output. Raises PreviousResponseNotFound."""
    if not isinstance(previous, str):
        return []
    process, caller = process_of(request), caller_of(request)
    return await process.pools.reading.run(lambda: history_of(previous, process, caller.name), owner=caller.name)


def history_of(previous: Any, process: Process, caller: str) -> list[Json]:
    """The items of the response before, and its output; none without one. Blocks. Raises PreviousResponseNotFound."""
    if not isinstance(previous, str):
        return []
    store = process.responses
    if store is None:
        raise PreviousResponseNotFound(
            "no responses are stored here",
            hint="set STORE_RESPONSES=true, or send the items",
            field="previous_response_id",
        )
    stored = store.response(previous, caller=caller)
    if stored is None:
        raise PreviousResponseNotFound(f"there is no response {previous!r:.60}", field="previous_response_id")
    return [*stored["items"], *stored["response"]["output"]]


async def _in_store(request: Request, work: Callable[[ResponseStore, str], T]) -> T:
    """Raises what `from_store` raises."""
    return await from_store(
        request,
        lambda process: process.responses,
        lambda store, caller: work(store, caller.name),
        none="no responses are stored here",
        hint="set STORE_RESPONSES=true",
    )


def _load_response(store: ResponseStore, response_id: str, caller: str) -> Mapping[str, Any]:
    response = store.response(response_id, caller=caller)
    if response is None:
        raise _unknown()
    return response


def _unknown() -> NotFound:
    return NotFound("there is no such response", field="response_id")
