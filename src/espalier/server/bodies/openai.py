"""Types of the bodies of `/v1/chat/completions` and `/v1/completions`, for validation and the OpenAPI document.

They check types and simple bounds; `asking/` decides what values mean. Fields without effect and unsupported fields are
in `fields.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, BeforeValidator, Field, create_model

from espalier.decoding.options import OPTIONS as DECODING
from espalier.engines.request_options import OPTIONS as REQUEST
from espalier.server.bodies.base import Body, FieldWarnings
from espalier.server.bodies.echoed import as_sent
from espalier.server.bodies.sampling_fields import OpenAISamplingFields, option_fields

Texts = Annotated[list[str], Field(fail_fast=True)]
Ids = Annotated[list[int], Field(fail_fast=True)]
"""Without `fail_fast` a list of a million ids is a million errors where texts are tried first."""


class StreamOptions(Body):
    include_usage: bool | None = None


class CalledFunction(Body):
    name: str
    arguments: str | dict[str, Any] = "{}"


class PastCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction


class ChatMessage(Body):
    """A message as `echoed.py` leaves it."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[PastCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class NamedSchema(Body):
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """OpenAI's format, llama-server's with `schema` beside `type`, TGI's with `value`, as Hugging Face's client sends
    it, and the structural tags of vLLM and SGLang."""

    type: Literal["text", "json_object", "json_schema", "structural_tag", "json", "regex"]
    json_schema: NamedSchema | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    value: Any = None
    structures: list[Any] | None = None
    triggers: list[Any] | None = None
    format: dict[str, Any] | None = None


class StructuredOutputs(Body):
    """vLLM's field: exactly one of the first six is given."""

    json_: dict[str, Any] | str | bool | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    whitespace_pattern: str | None = None


if TYPE_CHECKING:

    class _OptionFields(Body):
        """The fields that code reads by name; there are those of all options."""

        preset: str | None = None
        sampler: str | None = None

else:
    _OptionFields = create_model(
        "_OptionFields",
        __base__=Body,
        **option_fields(REQUEST.items()),
        **option_fields(DECODING.items(), are_checked=False),  # `Decoding` does, which knows the field's name
    )


class EspalierOptions(_OptionFields):
    """Options of Espalier's own. If this object is given, even empty, the reply has a key `espalier`.

    trace: true or `summary` for sums, `steps` or `full` for every step. stream_steps: each step of the trace comes with
    its token, and not again at the end. allow: `checked` also takes schema keywords that can only be checked on the
    complete text. formats: `annotate` takes `format` in schemas for a remark. constraint: any constraint with its
    `kind`. strict: unknown fields of the body are refused. soft: soft constraints with their `kind`. extra: fields of
    plug-ins' samplers. activations: true, or fields of `Activations`: the hidden states go to the server's store. The
    other fields are the options of docs/options.md.
    """

    trace: bool | Literal["summary", "steps", "full"] | None = None
    stream_steps: bool | None = None
    allow: Literal["checked"] | None = None
    formats: Literal["assert", "annotate"] | None = None
    constraint: dict[str, Any] | None = None
    strict: bool | None = None
    soft: dict[str, Any] | list[dict[str, Any]] | None = None
    extra: dict[str, Any] | None = None
    safety: Any = None
    activations: bool | dict[str, Any] | None = None


BEAMS = {option.openai: option for option in DECODING.values() if option.openai is not None}
"""Options of strategies that stand in the body itself too, as with transformers, vLLM and the word-list server."""

if TYPE_CHECKING:
    _Shared = OpenAISamplingFields
else:
    _Shared = create_model("_Shared", __base__=OpenAISamplingFields, **option_fields(BEAMS.items(), are_checked=False))


class SharedBody(_Shared):
    """Fields of both routes. grammar: a text, or TGI's object with `type` and `value`."""

    OBJECTS: ClassVar[tuple[str, ...]] = ("stream_options", "structured_outputs")
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # constraints
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    grammar: str | ResponseFormat | None = None
    json_schema: dict[str, Any] | str | bool | None = None
    choice: list[str] | None = None
    # SGLang's
    regex: str | None = None
    ebnf: str | None = None
    structural_tag: Any = None
    # the word-list server's
    vocab_lang: str | None = None
    vocab_n_words: int | None = None
    vocab_constraint_mode: Literal["hard", "soft"] | None = None
    vocab_soft_tier2_max_rank_multiplier: float | None = None
    vocab_soft_tier2_penalty: float | None = None
    vocab_soft_tier3_penalty: float | None = None
    enable_thinking: bool | None = None
    # vLLM's
    use_beam_search: bool | None = None
    # the logging server's
    lmdb_path: str | None = None
    logprobs_mode: Literal["raw_logprobs", "processed_logprobs"] | None = None
    # the reply
    return_token_ids: bool | None = None
    espalier: EspalierOptions | None = None


class ReasoningFields(Body):
    """Where a reply has the reasoning, by the names of vLLM and OpenRouter, SGLang, and llama-server and Groq; bodies
    whose prompt the chat template renders have them."""

    include_reasoning: bool | None = None
    separate_reasoning: bool | None = None
    reasoning_format: Literal["auto", "none", "deepseek", "deepseek-legacy", "raw", "parsed", "hidden"] | None = None
    reasoning_in_content: bool | None = None


class PromptLogprobs(Body):
    """vLLM's field: the log probabilities of the prompt's tokens, each with so many of the most probable ones."""

    prompt_logprobs: int | None = Field(default=None, ge=0)


class ChatThinking(Body):
    """Anthropic's field, as DeepSeek, GLM and Kimi have it on the chat route. auto: as the chat template says."""

    type: Literal["enabled", "disabled", "adaptive", "auto"]
    budget_tokens: int | None = None


class ChatReasoning(Body):
    """OpenAI's field of the Responses API, with OpenRouter's `max_tokens`, `enabled` and `exclude`."""

    effort: str | None = None
    max_tokens: int | None = None
    enabled: bool | None = None
    exclude: bool | None = None


class ChatBody(ReasoningFields, PromptLogprobs, SharedBody):
    """logprobs: true, or as llama-server takes it, the number of candidates, which is then `top_logprobs`."""

    OBJECTS = (*SharedBody.OBJECTS, "reasoning", "thinking")
    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | Annotated[int, Field(ge=0)] | None = None
    top_logprobs: int | None = Field(default=None, ge=0)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[dict[str, Any]] | None = None
    timings_per_token: bool | None = None
    function_call: Literal["none", "auto"] | dict[str, Any] | None = None
    # the chat template's
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    reasoning_: ChatReasoning | None = Field(default=None, alias="reasoning")
    thinking: ChatThinking | None = None
    thinking_token_budget: int | None = None
    thinking_budget_tokens: int | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None

    @classmethod
    def as_sent(cls, data: Mapping[str, Any], *, strict: bool) -> tuple[dict[str, Any], FieldWarnings]:
        """The fields by class, and the messages without what was only echoed."""
        fields, told = super().as_sent(data, strict=strict)
        if "messages" in fields:
            fields["messages"], warnings = as_sent(fields["messages"], strict=strict)
            told += FieldWarnings(warnings=warnings)
        return fields, told


def _count_of(value: Any) -> Any:
    """A number of candidates where a front end says only whether it wants some, as llama-server reads it."""
    return (1 if value else None) if isinstance(value, bool) else value


class CompletionBody(PromptLogprobs, SharedBody):
    """prompt: texts, or token ids, which are used unchanged. suffix: the text behind the gap that is to be filled."""

    prompt: str | Texts | Ids | Annotated[list[Ids], Field(fail_fast=True)]
    logprobs: Annotated[int | None, BeforeValidator(_count_of)] = Field(default=None, ge=0)
    echo: bool | None = None
    timings_per_token: bool | None = None
    suffix: str | None = None


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(BaseModel):
    error: ErrorDetail
