"""Bodies of requests as types: what `/v1/chat/completions` and `/v1/completions` take, and their OpenAPI.

They check shapes alone: what a value means, and whether it is in range, is said where it is used (`asking/`). Fields
that change nothing or cannot be had are in `fields.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from espalier.server.bodies.fields import unknown, without_idle
from espalier.server.http.errors import BadRequest, field_path


class Body(BaseModel):
    """An object whose fields are all known, and of exactly their type."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, populate_by_name=True)


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


class CalledFunction(Body):
    name: str
    arguments: str | dict[str, Any]


class PastCall(Body):
    id: str | None = None
    type: Literal["function"] = "function"
    function: CalledFunction
    index: int | None = None


class ChatMessage(Body):
    """refusal, annotations and the like are taken as our own replies have them, so that a reply can be sent back."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    name: str | None = None
    tool_calls: list[PastCall] | None = None
    tool_call_id: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: list[Any] | None = Field(default=None, max_length=0)
    audio: None = None
    function_call: None = None


class NamedSchema(Body):
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    """OpenAI's, and llama-server's with `schema` beside the type."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema | None = None
    schema_: dict[str, Any] | bool | None = Field(default=None, alias="schema")


class StructuredOutputs(Body):
    """vLLM's: exactly one of the first six."""

    json_: dict[str, Any] | str | bool | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: Any = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    whitespace_pattern: str | None = None
    disable_fallback: bool | None = None
    backend: Literal["auto"] | None = None


class EspalierOptions(Body):
    """What only we have. With it, also empty, the reply has a key `espalier` too.

    preset: sampling and constraint by name. trace: true or `summary` for sums, `steps` or `full` for every step.
    stream_steps: in a stream, each step of the trace comes with its token, and not again at the end. strategy to
    max_rewinds: how to decode, as `Decoding` has it. allow: `checked` takes keywords of a
    schema that can only be checked when the text is complete. constraint: any constraint with its `kind`. soft: biases
    with their `kind`. reasoning: `auto`, a name, or two markers.
    """

    preset: str | None = None
    trace: bool | Literal["summary", "steps", "full"] | None = None
    stream_steps: bool | None = None
    allow: Literal["checked"] | None = None
    constraint: dict[str, Any] | None = None
    soft: dict[str, Any] | list[dict[str, Any]] | None = None
    reasoning: str | list[str] | None = None
    max_reasoning: int | None = Field(default=None, ge=1)
    max_calls: int | None = Field(default=None, ge=1)
    tool_format: str | None = None
    schema_in_prompt: bool | None = None
    sampler: Literal["espalier", "native"] | None = None
    strategy: str | None = None
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    num_return_sequences: int | None = None
    particles: int | None = None
    ess_threshold: float | None = None
    target: Literal["full", "truncated"] | None = None
    on_budget: Literal["close", "truncate", "error"] | None = None
    max_rewinds: int | None = None
    safety: Any = None


class SharedBody(Body):
    """What both routes take."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # OpenAI's sampling
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, ge=0, le=1)
    n: int | None = Field(default=None, ge=1)
    stop: str | list[str] | None = None
    seed: int | None = None
    max_tokens: int | None = None
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[str, float] | None = None
    # vLLM's sampling
    top_k: int | None = Field(default=None, ge=-1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, gt=0)
    min_tokens: int | None = Field(default=None, ge=0)
    stop_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    ignore_eos: bool | None = None
    # llama-server's sampling
    n_predict: int | None = Field(default=None, ge=-1)
    n_cmpl: int | None = Field(default=None, ge=1)
    repeat_penalty: float | None = Field(default=None, gt=0)
    repeat_last_n: int | None = Field(default=None, ge=-1)
    typical_p: float | None = None
    typ_p: float | None = None
    top_n_sigma: float | None = None
    min_keep: int | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    dynatemp_range: float | None = None
    dynatemp_exponent: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    dry_sequence_breakers: list[str] | None = None
    mirostat: int | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    samplers: list[str] | None = None
    # constraints
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: dict[str, Any] | str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | bool | None = None
    # the word-list server's
    vocab_lang: str | None = None
    vocab_n_words: int | None = None
    vocab_constraint_mode: Literal["hard", "soft"] | None = None
    vocab_soft_tier2_max_rank_multiplier: float | None = None
    vocab_soft_tier2_penalty: float | None = None
    vocab_soft_tier3_penalty: float | None = None
    enable_thinking: bool | None = None
    custom_id: str | None = None
    # beams: the word-list server's, transformers' and vLLM's
    num_beams: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    use_beam_search: bool | None = None
    # what of the reply
    return_token_ids: bool | None = None
    espalier: EspalierOptions | None = None


class ChatBody(SharedBody):
    messages: list[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None


class CompletionBody(SharedBody):
    """prompt: texts, or token ids, which are taken as they are."""

    prompt: str | list[str] | list[int] | list[list[int]]
    logprobs: int | None = Field(default=None, ge=0)
    echo: bool | None = None


class ErrorDetail(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(BaseModel):
    error: ErrorDetail


BodyType = TypeVar("BodyType", bound=Body)


def read_body(cls: type[BodyType], data: Mapping[str, Any]) -> BodyType:
    """A body from parsed JSON. Raises BadRequest, UnknownParameter and UnsupportedParameter, each naming its field as a
    path such as `messages[0].content`."""
    given = without_idle(data, _names(cls))
    try:
        return cls.model_validate(given)
    except ValidationError as error:
        raise _first(cls, error) from None


def _names(cls: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in cls.model_fields.items()}


def _first(cls: type[BaseModel], error: ValidationError) -> Exception:
    """The first thing that is wrong. Of a union all members complain; what is about the field comes first."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = field_path(found["loc"])
    if found["type"] == "extra_forbidden":
        within, _, name = path.rpartition(".")
        return unknown(name, _siblings(cls, found["loc"][:-1]), within=within)
    if found["type"] == "missing":
        return BadRequest(f"{path} is missing", field=path)
    return BadRequest(f"{path}: {found['msg'][0].lower()}{found['msg'][1:]}", field=path)


def _siblings(cls: type[BaseModel], loc: tuple[int | str, ...]) -> set[str]:
    """The names of the fields of the object at this place."""
    for part in loc:
        field = next((f for n, f in cls.model_fields.items() if (f.alias or n) == part), None)
        inner = None if field is None else _model_in(field.annotation)
        cls = inner or cls
    return _names(cls)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for one in getattr(annotation, "__args__", ()) if (found := _model_in(one))), None)
