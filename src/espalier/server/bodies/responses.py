"""Types of the body of `/v1/responses`, and which fields of OpenAI's are refused there. `asking/responses/` decides
what values mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from espalier.server.bodies.base import Body
from espalier.server.bodies.fields import UnsupportedField
from espalier.server.bodies.foreign import ForeignBody

Key = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Text = Annotated[str, StringConstraints(max_length=512)]
LOGPROBS = "message.output_text.logprobs"
ENCRYPTED = "reasoning.encrypted_content"
INCLUDABLE: Mapping[str, str] = {
    LOGPROBS: "",
    ENCRYPTED: "reasoning is given as plain text, so nothing is encrypted",
    "file_search_call.results": "there is no file search",
    "web_search_call.results": "there is no web search",
    "web_search_call.action.sources": "there is no web search",
    "message.input_image.image_url": "there are no images",
    "computer_call_output.output.image_url": "there are no images",
    "code_interpreter_call.outputs": "there is no code interpreter",
}
"""Values of `include`, and why one has no effect."""

NOT_HERE: Mapping[str, UnsupportedField] = {
    "background": UnsupportedField(idle=(False,), why="wait for the reply, stream it, or send a batch"),
    "background_options": UnsupportedField(why="there are no background responses"),
    "conversation": UnsupportedField(why="use previous_response_id"),
    "context_management": UnsupportedField(idle=([],), why='use "truncation": "auto"'),
    "prompt": UnsupportedField(why="there are no stored prompts: use `espalier.preset`, or send the text"),
    "moderation": UnsupportedField(why="there is no moderation here: use `espalier.safety`"),
    "image": UnsupportedField(why="there is text only"),
}
"""Refused fields, unless their value asks for nothing."""
HINTS: Mapping[str, str] = {
    "max_tool_calls": "it counts built-in tools, of which there are none",
    "access_programs": "there are none",
    "client_metadata": "labels of the client's own",
}
"""Fields without effect here, beside those of every route."""


class TextFormat(Body):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None


class TextOptions(Body):
    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Body):
    """context, mode: hints. generate_summary: the old name of summary."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: str | None = None


class ResponseStreamOptions(Body):
    include_obfuscation: bool | None = None


class CompactBody(ForeignBody):
    """The body of `/v1/responses/compact`, with the fields of every generating route, which are those of the summary.
    input: a text, or items. stream: there is no stream."""

    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    previous_response_id: str | None = None
    stream: Literal[False] | None = None


class ResponsesBody(ForeignBody):
    """OpenAI's fields, and those which every generating route has. input: a text, or items."""

    NOT_HERE = NOT_HERE
    OWN_HINTS = HINTS

    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    text: TextOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    include: list[str] | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    metadata: dict[Key, Text] | None = Field(default=None, max_length=16)
    previous_response_id: str | None = None
    store: bool | None = None
    stream_options: ResponseStreamOptions | None = None  # type: ignore[assignment]  # its own, of another shape
    top_logprobs: int | None = Field(default=None, ge=0)
    truncation: Literal["auto", "disabled"] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
