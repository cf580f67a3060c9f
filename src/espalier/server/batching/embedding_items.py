"""Items of batches of `/v1/embeddings`, which generate nothing: vectors as the route gives them."""

from __future__ import annotations

from espalier.jobs.values import ItemAnswer
from espalier.server.process.state import Process
from espalier.server.routes.embeddings import Json, embed_body

ROUTE = "/v1/embeddings"


async def answer_embeddings(data: Json, process: Process, *, caller: str, request_id: str) -> ItemAnswer:
    """The vectors of a body's texts, which are made in a thread. Raises what the route raises."""
    asked, body = await process.pools.tokens.run(lambda: embed_body(data, process), owner=caller)
    lines = [*asked.warnings, *asked.notes]  # an item has no headers
    if lines:
        body["espalier"] = {"warnings": lines}
    return ItemAnswer(status=200, body=body, request_id=request_id, model=asked.model, prompt_tokens=asked.tokens)
