"""Types of the bodies of Ollama's routes, and which of its fields are refused. `asking/ollama/` decides what values
mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from espalier.server.bodies.base import Body, FieldWarnings
from espalier.server.bodies.fields import UnsupportedField
from espalier.server.bodies.foreign import ForeignBody
from espalier.server.bodies.sampling_fields import SamplingFields

NOT_HERE: Mapping[str, UnsupportedField] = {
    "images": UnsupportedField(idle=([],), why="this model reads text only"),
    "width": UnsupportedField(idle=(0,), why="this model writes text only"),
    "height": UnsupportedField(idle=(0,), why="this model writes text only"),
    "steps": UnsupportedField(idle=(0,), why="this model writes text only"),
    "_debug_render_only": UnsupportedField(idle=(False,), why="use /apply-template"),
}
"""Refused fields, unless their value asks for nothing."""
HINTS: Mapping[str, str] = {
    "keep_alive": "the model stays loaded as long as the server runs",
    "shift": "a text ends where the context is full",
}
"""Fields without effect here, beside those of every route."""
Format = str | dict[str, Any] | bool


class OllamaErrorReply(BaseModel):
    error: str
    param: str | None
    code: str


class OllamaOptions(SamplingFields):
    """Options of the sampling by the names of llama.cpp's requests, most of which are Ollama's too. num_predict: -1 and
    -2 are all that fit. num_ctx: no effect, as the context is the model's; a larger one is told."""

    num_predict: int | None = Field(default=None, ge=-2)
    num_ctx: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None


class OllamaBody(ForeignBody):
    """The fields that Ollama's two generating routes share, and those of every generating route. stream: true where it
    is left out. truncate: whether a prompt that is too long is cut; true where it is left out."""

    NOT_HERE = NOT_HERE
    OWN_HINTS = HINTS
    OBJECTS: ClassVar[tuple[str, ...]] = (*ForeignBody.OBJECTS, "options")

    format: Format | None = None
    options: OllamaOptions | None = None
    think: bool | Literal["low", "medium", "high", "max"] | None = None
    truncate: bool | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0)

    @classmethod
    def as_sent(cls, data: Mapping[str, Any], *, strict: bool) -> tuple[dict[str, Any], FieldWarnings]:
        """As every body's; whole numbers among the options may be written as 40.0."""
        fields, told = super().as_sent(data, strict=strict)
        if isinstance(options := fields.get("options"), Mapping):
            fields["options"] = {
                name: int(value) if isinstance(value, float) and value.is_integer() else value
                for name, value in options.items()
            }
        return fields, told


class OllamaChatBody(OllamaBody):
    """The body of `/api/chat`. Without messages it only asks for the model to be loaded. tool_choice,
    parallel_tool_calls: OpenAI's, which Ollama does not have."""

    messages: list[dict[str, Any]] = Field(default_factory=list)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


class OllamaGenerateBody(OllamaBody):
    """The body of `/api/generate`. Without a prompt it only asks for the model to be loaded. raw: the prompt is taken
    as it is. template: in Ollama's notation, in place of the model's own. context: from an earlier reply, which this
    one goes on from."""

    prompt: str = ""
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    raw: bool | None = None
    context: list[int] | None = None


class OllamaEmbedBody(Body):
    """The body of `/api/embed`. truncate: whether a text that is too long is cut; true where it is left out."""

    input: str | list[str] | None = None
    model: str | None = None
    truncate: bool | None = None
    dimensions: int | None = Field(default=None, ge=1)
    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None


class OllamaEmbeddingsBody(Body):
    """The body of `/api/embeddings`, the older form: one text."""

    prompt: str | None = None
    model: str | None = None
    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None


class OllamaModelBody(Body):
    """The body of `/api/show` and `/api/pull`. name: the old name of model. The other fields have no effect."""

    model: str | None = None
    name: str | None = None
    verbose: bool | None = None
    system: str | None = None
    template: str | None = None
    options: dict[str, Any] | None = None
    insecure: bool | None = None
    stream: bool | None = None
