"""Types of replies, for the OpenAPI document only: `answering/replies.py` builds replies as plain JSON."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Reply(BaseModel):
    model_config = ConfigDict(extra="forbid")


class PromptDetails(Reply):
    cached_tokens: int


class CompletionDetails(Reply):
    reasoning_tokens: int


class Usage(Reply):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails | None = None


class Output(Reply):
    """One output under the key `espalier`. score: a beam's. weighing: weights of faithful sampling. drafting: passes
    and drafted tokens of the strategy `draft`. closed_by_budget: whether the token limit decided how the output ends.
    rewinds: text that was taken back. safety: by category and pattern, how often a filter refused the most probable
    token and took text back. truncated: how many tokens the prompt lost."""

    index: int
    seed: int
    strategy: str
    stop_reason: str | int | None
    verdict: dict[str, Any] | None
    score: float | None = None
    weighing: dict[str, Any] | None = None
    drafting: dict[str, Any] | None = None
    closed_by_budget: bool | None = None
    rewinds: list[dict[str, Any]] | None = None
    safety: dict[str, dict[str, dict[str, int]]] | None = None
    truncated: int | None = None
    fault: str | None = None
    summary: dict[str, Any] | None = None
    trace_id: str | None = None
    trace: dict[str, Any] | None = None


class Report(Reply):
    contract: list[dict[str, str]] | None
    outputs: list[Output]


class Timings(Reply):
    """llama-server's, in milliseconds. cache_n: prompt tokens found in the prefix cache; prompt_n: the others."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float


class Completion(Reply):
    id: str
    created: int
    model: str
    system_fingerprint: str
    request_id: str | None = None
    usage: Usage
    timings: Timings
    espalier: Report | None = None


class TopLogprob(Reply):
    id: int | None = None
    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Reply):
    content: list[TokenLogprob]
    refusal: None


class Function(Reply):
    name: str
    arguments: str


class Call(Reply):
    id: str
    type: Literal["function"]
    function: Function


class CustomText(Reply):
    name: str
    input: str


class CustomCall(Reply):
    id: str
    type: Literal["custom"]
    custom: CustomText


class Message(Reply):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[Call | CustomCall] = Field(default=[])


class PromptLogprob(Reply):
    logprob: float
    rank: int
    decoded_token: str


class ChatChoice(Reply):
    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: Literal["stop", "length", "tool_calls", "content_filter"]
    token_ids: list[int] = Field(default=[])
    stop_reason: str | int = Field(default="")


class ChatCompletion(Completion):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    prompt_logprobs: list[dict[str, PromptLogprob] | None] = Field(default=[])
    prompt_token_ids: list[int] = Field(default=[])


class TextLogprobs(Reply):
    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class TextChoice(Reply):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Literal["stop", "length", "content_filter"]
    token_ids: list[int] = Field(default=[])
    stop_reason: str | int = Field(default="")
    prompt_logprobs: list[dict[str, PromptLogprob] | None] = Field(default=[])
    prompt_token_ids: list[int] = Field(default=[])


class TextCompletion(Completion):
    object: Literal["text_completion"]
    choices: list[TextChoice]


class Model(Reply):
    """OpenAI's first four; then llama-server's, vLLM's and Anthropic's."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    aliases: list[str]
    meta: dict[str, int]
    root: str
    parent: None
    max_model_len: int | None
    type: Literal["model"]
    display_name: str
    created_at: str
    lifecycle: Literal["active"]
    max_input_tokens: int | None
    max_tokens: int | None
    capabilities: dict[str, Any]


class ModelList(Reply):
    """models: llama-server's list. first_id, last_id, has_more: Anthropic's, for pages."""

    object: Literal["list"]
    data: list[Model]
    models: list[dict[str, Any]]
    first_id: str
    last_id: str
    has_more: bool
