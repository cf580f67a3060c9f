"""Types of the bodies and the replies of text-generation-inference (TGI), for validation and the OpenAPI document."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from espalier.server.bodies.base import Body
from espalier.server.bodies.replies import Reply


class TgiGrammar(Body):
    """A constraint: a JSON Schema (`json`, or `json_schema` with its `schema` inside), or a regular expression."""

    type: Literal["json", "json_schema", "regex"]
    value: dict[str, Any] | str | bool


class TgiParameters(Body):
    """truncate: the most tokens of the prompt, of which the first are dropped. top_n_tokens: candidates beside each
    token. Without sampling parameters the most probable token is taken, as TGI does."""

    OBJECTS = ("grammar",)
    best_of: int | None = Field(default=None, ge=1)
    decoder_input_details: bool | None = None
    details: bool | None = None
    do_sample: bool | None = None
    frequency_penalty: float | None = None
    grammar: TgiGrammar | None = None
    max_new_tokens: int | None = Field(default=None, ge=1)
    repetition_penalty: float | None = None
    return_full_text: bool | None = None
    seed: int | None = None
    stop: list[str] | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_n_tokens: int | None = Field(default=None, ge=0)
    top_p: float | None = None
    truncate: int | None = Field(default=None, ge=1)
    typical_p: float | None = None
    watermark: bool | None = None
    adapter_id: str | None = None


class TgiBody(Body):
    """The body of `/generate` and `/generate_stream`. stream: of `/generate`, as `/generate_stream`."""

    OBJECTS: ClassVar[tuple[str, ...]] = ("parameters",)
    inputs: str
    parameters: TgiParameters | None = None
    stream: bool | None = None
    model: str | None = None


class TgiToken(Reply):
    id: int
    text: str
    logprob: float | None
    special: bool


class TgiDetails(Reply):
    finish_reason: Literal["length", "eos_token", "stop_sequence", "content_filter"]
    generated_tokens: int
    seed: int | None
    prefill: list[TgiToken]
    tokens: list[TgiToken]
    top_tokens: list[list[TgiToken]] | None = None


class TgiReply(Reply):
    generated_text: str
    details: TgiDetails | None = None


class TgiErrorReply(Reply):
    error: str
    error_type: str
    param: str | None = None
    code: str | None = None
