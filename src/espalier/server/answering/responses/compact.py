"""Builds the reply of `/v1/responses/compact`: the user's messages, and one item with the model's summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from espalier.engines.base import Result
from espalier.server.answering.replies import Head
from espalier.server.answering.responses.keeping import listed
from espalier.server.answering.responses.reply import PREFIX, usage_of
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.responses.ask import ParsedResponsesRequest
from espalier.server.asking.responses.items import OWN_SUMMARY

Json = dict[str, Any]


def whole_compaction(parsed: ParsedRequest, head: Head, results: Sequence[Result]) -> Json:
    """A `response.compaction`. The summary is no secret: it stands behind a word that tells it from others'."""
    assert isinstance(parsed, ParsedResponsesRequest)
    (result,) = results
    *items, _ = listed(parsed.items, head.id)  # without the message that asks for the summary
    suffix = head.id.removeprefix(f"{PREFIX}_")
    summary = {"id": f"cmp_{suffix}", "type": "compaction", "encrypted_content": OWN_SUMMARY + (result.content or "")}
    return {
        "id": head.id,
        "object": "response.compaction",
        "created_at": head.created,
        "output": [*(item for item in items if item.get("role") == "user"), summary],
        "usage": usage_of(result),
    }
