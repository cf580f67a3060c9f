"""The resources: a stored trace as `trace://{id}`, a preset as `preset://{name}`, both as JSON.

A caller sees its own traces only. What is listed is looked up in threads.
"""

from __future__ import annotations

import json
from functools import partial

from mcp import types

from espalier.agents.tracing import MOST, stored_rows, stored_trace
from espalier.errors import EspalierError, UnknownName
from espalier.server.http.wire import to_bytes_by_parts
from espalier.server.mcp.calls import Visit
from espalier.wording import in_words

TRACE, PRESET = "trace://", "preset://"
JSON = "application/json"
TEMPLATES = (
    types.ResourceTemplate(
        name="trace",
        uri_template="trace://{id}",
        mime_type=JSON,
        description="A stored trace: every step, what the model wanted, what the constraint left, sums.",
    ),
    types.ResourceTemplate(
        name="preset",
        uri_template="preset://{name}",
        mime_type=JSON,
        description="A preset: sampling, constraint and filters.",
    ),
)


async def listed(visit: Visit) -> list[types.Resource]:
    """Every preset, and the caller's latest traces. Raises EspalierError."""
    process = visit.process
    listed = [
        types.Resource(name=name, uri=f"{PRESET}{name}", mime_type=JSON, description=_about(visit, name))
        for name in process.presets.names()
    ]
    if process.store is None:
        return listed
    async with process.gate.admit(visit.caller):
        rows, _ = await process.pools.reading.run(partial(stored_rows, visit.desk, limit=MOST), owner=visit.caller.name)
    return listed + [
        types.Resource(
            name=str(row["id"]),
            uri=f"{TRACE}{row['id']}",
            mime_type=JSON,
            description=f"{row['tokens']} tokens, {row['finish_reason']}",
        )
        for row in rows
    ]


def _about(visit: Visit, name: str) -> str | None:
    try:
        return visit.process.presets.get(name).description or None
    except EspalierError as error:  # one broken file does not hide the others
        return in_words(f"unusable: {error.message}", "tool")


async def read_resource(visit: Visit, uri: str) -> str:
    """JSON text. Raises UnknownName for an address of nothing, and what the store and a broken preset raise."""
    process, caller = visit.process, visit.caller
    if uri.startswith(PRESET):
        async with process.gate.admit(caller):
            preset = await process.pools.reading.run(
                partial(process.presets.get, uri.removeprefix(PRESET)), owner=caller.name
            )
        return json.dumps(preset.to_json(), ensure_ascii=False)
    if not uri.startswith(TRACE):
        raise UnknownName(f"there is no resource {uri!r:.80}", hint="trace://{id}, preset://{name}", field="uri")

    def work() -> str:
        trace = stored_trace(visit.desk, uri.removeprefix(TRACE))
        return to_bytes_by_parts(trace, is_ascii=True).decode()

    async with process.gate.admit(caller):
        return await process.pools.reading.run(work, owner=caller.name)
