"""Stores a response with the items that it answers, and lists these. It knows no database."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from espalier.errors import EspalierError
from espalier.server.answering.generation import Generation
from espalier.server.answering.responses.reply import PREFIX, ResponsesChunks
from espalier.server.asking.responses.ask import ParsedResponsesRequest

log = logging.getLogger(__name__)
Json = dict[str, Any]
PREFIXES = {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc", "compaction": "cmp"}


def keep_whole(reply: Json, running: Generation) -> Json:
    """Store a whole response, if it is to be stored, and return it. Blocks. Its `store` says what happened: a store
    that fails is logged, and ends no generation."""
    asked, store = running.asked, running.process.responses
    assert isinstance(asked, ParsedResponsesRequest)
    if asked.kept and store is not None:
        body = {"response": reply, "items": listed(asked.items, reply["id"])}
        try:
            store.save_response(reply["id"], body, caller=running.caller.name)
        except EspalierError as error:
            log.warning("not stored: %s", error, extra={"fields": {"request_id": running.request_id}})
            reply["store"] = False
    return reply


def keep_streamed(chunks: Any, running: Generation) -> None:
    """Store the response of a stream that has ended."""
    assert isinstance(chunks, ResponsesChunks)
    if chunks.response is not None:
        keep_whole(chunks.response, running)


def listed(items: Sequence[Mapping[str, Any]], response_id: str) -> list[Json]:
    """The items as OpenAI lists them: with ids, types, and contents of parts."""
    suffix = response_id.removeprefix(f"{PREFIX}_")
    shown_items = []
    for index, item in enumerate(items):
        kind = item.get("type", "message")
        output_item: Json = {
            "id": f"{PREFIXES.get(kind, 'out')}_{suffix}in{index:03d}",
            "type": kind,
            "status": "completed",
        }
        output_item |= {name: value for name, value in item.items() if value is not None}
        more: Json
        if kind == "message" and isinstance(output_item["content"], str):
            part = "output_text" if output_item["role"] == "assistant" else "input_text"
            more = {"annotations": []} if part == "output_text" else {}
            output_item["content"] = [{"type": part, "text": output_item["content"], **more}]
        shown_items.append(output_item)
    return shown_items
