"""Counts the tokens of the prompt that a generating route would read. Nothing is generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from starlette.responses import Response

from espalier.errors import EspalierError, LimitExceeded
from espalier.server.answering.route import Dialect
from espalier.server.http.errors import TooCostly
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse
from espalier.server.process.deps import admitted, while_connected
from espalier.time_limit import time_limit

COUNTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "`input_tokens`.",
        "content": {"application/json": {"schema": {"type": "object", "required": ["input_tokens"]}}},
    }
}


async def answer_count(request: Request, dialect: Dialect[Any], **more: str) -> Response:
    """`input_tokens` of the prompt of a body, which is read as the dialect reads it; a schema is not compiled for that.
    more: further fields of the reply. Raises what the dialect raises."""
    async with admitted(request) as (process, caller):
        data = await dialect.read(request, process.settings)

        def count() -> tuple[int, Sequence[str]]:
            with time_limit(process.settings.compile_seconds, what="this"):
                asked = dialect.asked(data, process)
                try:
                    return len(process.engine.engine.prompt_ids(asked.requests[0])), asked.lines
                except EspalierError as error:
                    raise asked.named(error) from None

        try:
            tokens, lines = await while_connected(request, process.pools.tokens.run(count, owner=caller.name))
        except LimitExceeded as error:
            raise TooCostly(error.message, hint=error.hint, field=error.field) from error
        return JsonResponse({"input_tokens": tokens, **more}, headers=warning_header(lines))
