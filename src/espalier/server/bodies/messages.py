"""Types of the bodies of `/v1/messages` and `/v1/messages/count_tokens`, and which fields of Anthropic's are refused.
`asking/messages/` decides what values mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from espalier.jobs.intake import MOST_LINES
from espalier.server.bodies.base import Body
from espalier.server.bodies.fields import UnsupportedField
from espalier.server.bodies.foreign import ForeignBody

NOT_HERE: Mapping[str, UnsupportedField] = {
    "container": UnsupportedField(why="there are no containers"),
    "mcp_servers": UnsupportedField(idle=([],), why="there are no MCP servers: use `tools`"),
}
"""Refused fields, unless their value asks for nothing."""
HINTS: Mapping[str, str] = {
    "metadata": "a label for Anthropic's abuse checks",
    "cache_control": "the prefix cache keeps prefixes as long as there is room",
    "inference_geo": "there is one place",
    "speed": "there is one speed",
    "diagnostics": "there are none",
    "user_profile_id": "a label of the client's own",
    "workspace_id": "a label of the client's own",
}
"""Fields without effect here, beside those of every route."""


class Thinking(Body):
    """budget_tokens: the most tokens of reasoning. display: `omitted` leaves its text out of the reply."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = Field(default=None, ge=1)
    display: Literal["summarized", "omitted"] | None = None


class OutputFormat(Body):
    type: Literal["json_schema"]
    schema_: dict[str, Any] | bool = Field(alias="schema")


class OutputConfig(Body):
    format: OutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class MessagesBody(ForeignBody):
    """Anthropic's fields, and those which every generating route has. max_tokens: only `count_tokens` goes without."""

    NOT_HERE = NOT_HERE
    OWN_HINTS = HINTS

    messages: list[dict[str, Any]] = Field(min_length=1)
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    thinking: Thinking | None = None
    output_format: OutputFormat | None = None
    output_config: OutputConfig | None = None
    context_management: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class BatchedMessage(Body):
    """params: the body of one message."""

    custom_id: Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]
    params: dict[str, Any]


class MessageBatchesBody(Body):
    """The body of `/v1/messages/batches`."""

    requests: list[BatchedMessage] = Field(min_length=1, max_length=MOST_LINES)
