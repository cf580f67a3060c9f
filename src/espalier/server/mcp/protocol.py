"""The server of the protocol: from its messages to calls and resources, and back. It knows no transport.

Arguments are checked here and not by the SDK, so that a malformed call is an answer that a model can read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from espalier.agents.arguments import told
from espalier.agents.table import TOOLS, failure
from espalier.agents.verb import Answer, Verb
from espalier.errors import EspalierError, UnknownName
from espalier.server.asgi import new_id
from espalier.server.mcp.calls import TESTS_AT_ONCE, Visit, answered
from espalier.server.mcp.resources import TEMPLATES, listed, read_resource
from espalier.server.ports import Caller
from espalier.server.process.state import Process
from espalier.version import __version__
from espalier.wording import in_words

log = logging.getLogger(__name__)
NO_RESOURCE = -32002
ABOUT = (
    "Espalier generates text with a local model under constraints that are enforced at every token, and shows what "
    "they cost. Start with generate_structured (JSON under a schema) or list_presets; check_schema says what of a "
    "schema is enforced; explain says what a constraint costs, and why."
)
Context: TypeAlias = ServerRequestContext[Any, Any]
Found: TypeAlias = tuple[Process, Caller]
Find: TypeAlias = Callable[[Context], Awaitable[Found]]
"""The process and the caller of a message. Raises EspalierError."""


@dataclass(frozen=True, slots=True)
class Handlers:
    """Answer each message of the protocol."""

    find: Find
    tests: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(TESTS_AT_ONCE))

    async def tools(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[described(verb) for verb in TOOLS.values()])

    async def call(self, ctx: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Every error is a result that the model reads, but for a tool that there is not."""
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name[:80]}")
        request_id = new_id("mcp-")

        async def tell(done: float, total: float | None) -> None:
            await ctx.session.report_progress(done, total)

        try:
            visit = await self._visit(ctx, request_id)
            answer = await answered(visit, params.name, params.arguments or {}, tell)
        except EspalierError as error:
            log.info("%s: %s", params.name, error.code, extra={"fields": {"request_id": request_id}})
            return _write_error(params.name, error)
        except Exception:
            log.exception("a call failed", extra={"fields": {"request_id": request_id, "tool": params.name}})
            return _write_error(params.name, EspalierError(f"a fault in the server; its log has it under {request_id}"))
        text = types.TextContent(type="text", text=json.dumps(answer, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content=answer)

    async def resources(self, ctx: Context, params: types.PaginatedRequestParams | None) -> types.ListResourcesResult:
        visit = await self._find_visit(ctx)
        return types.ListResourcesResult(resources=await listed(visit))

    async def templates(
        self, ctx: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=list(TEMPLATES))

    async def read(self, ctx: Context, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        visit = await self._find_visit(ctx)
        try:
            text = await read_resource(visit, params.uri)
        except EspalierError as error:
            code = NO_RESOURCE if isinstance(error, UnknownName) else types.INVALID_PARAMS
            raise MCPError(code, told(error), {"uri": params.uri[:200]}) from error
        held = types.TextResourceContents(uri=params.uri, mime_type="application/json", text=text)
        return types.ReadResourceResult(contents=[held])

    async def _visit(self, ctx: Context, request_id: str) -> Visit:
        process, caller = await self.find(ctx)
        state = {} if ctx.request is None else ctx.request.scope.setdefault("state", {})
        return Visit(process=process, caller=caller, request_id=request_id, tests=self.tests, log_state=state)

    async def _find_visit(self, ctx: Context) -> Visit:
        try:
            return await self._visit(ctx, new_id("mcp-"))
        except EspalierError as error:
            raise MCPError(types.INTERNAL_ERROR, told(error)) from error


def make_server(find: Find) -> Server[Any]:
    """The server, for any transport."""
    does = Handlers(find)
    return Server(
        "espalier",
        version=__version__,
        title="Espalier",
        instructions=ABOUT,
        on_list_tools=does.tools,
        on_call_tool=does.call,
        on_list_resources=does.resources,
        on_list_resource_templates=does.templates,
        on_read_resource=does.read,
    )


def described(verb: Verb) -> types.Tool:
    """A verb as the protocol describes tools."""
    return types.Tool(
        name=verb.name,
        title=verb.title,
        description=verb.about,
        input_schema=verb.input_schema,
        output_schema=verb.output_schema,
        annotations=types.ToolAnnotations(
            read_only_hint=verb.is_read_only, destructive_hint=False, open_world_hint=False
        ),
    )


def _write_error(name: str, error: EspalierError) -> types.CallToolResult:
    """An error as a model reads it; programs find its parts in `_meta`."""
    shaped: Answer | None = failure(name, told(error))
    message, hint = in_words(error.message, "tool"), error.hint and in_words(error.hint, "tool")
    meta = {"espalier/error": {"message": message, "hint": hint, "field": error.field, "code": error.code}}
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=told(error))], structured_content=shaped, is_error=True, _meta=meta
    )
