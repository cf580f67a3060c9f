"""Types of the bodies of llama-server's routes, and of vLLM's `/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, create_model

from espalier.engines.request_options import OF_SCHEMAS
from espalier.server.bodies.base import Body
from espalier.server.bodies.sampling_fields import SamplingFields, option_fields

if TYPE_CHECKING:
    _SchemaOptionFields = SamplingFields
else:
    of_schemas = ((option.name, option) for option in OF_SCHEMAS)
    _SchemaOptionFields = create_model("_SchemaOptionFields", __base__=SamplingFields, **option_fields(of_schemas))


class LlamaBody(_SchemaOptionFields):
    """The body of `/completion`. prompt: a text, token ids, both mixed, or a list of these.

    The options of schemas and safety are ours: see EspalierOptions. id_slot and cache_prompt have no effect. n_indent:
    a line that begins with fewer spaces ends the text. t_max_predict_ms: the first new line after so much time of
    generation does. Other fields of llama-server are refused by name.
    """

    prompt: str | list[int | str | list[int | str]]
    model: str | None = None
    stream: bool | None = None
    # sampling
    max_tokens: int | None = Field(default=None, ge=-1)
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: list[list[int | str | float | bool]] | dict[str, float | bool] | None = None
    # constraints
    grammar: str | None = None
    json_schema: dict[str, Any] | bool | None = None
    safety: Any = None
    # the reply
    n_probs: int | None = Field(default=None, ge=0)
    post_sampling_probs: bool | None = None
    return_tokens: bool | None = None
    timings_per_token: bool | None = None
    return_progress: bool | None = None
    response_fields: list[str] | None = None
    n_indent: int | None = Field(default=None, ge=0)
    t_max_predict_ms: float | None = None
    # without effect
    cache_prompt: bool | None = None
    id_slot: int | None = Field(default=None, ge=-1)
    # refused unless they ask for nothing
    grammar_lazy: Literal[False] | None = None
    grammar_triggers: list[Any] | None = Field(default=None, max_length=0)


class InfillBody(LlamaBody):
    """The body of `/infill`: the text before and after the gap. prompt: what stands after the prefix already."""

    prompt: str | list[int | str] = ""  # type: ignore[assignment]  # one prompt alone
    input_prefix: str
    input_suffix: str
    input_extra: list[Any] | None = Field(default=None, max_length=0)


class TokenizeBody(Body):
    """The body of `/tokenize`: llama-server's with `content`, vLLM's with `prompt` or `messages`."""

    content: str | None = None
    add_special: bool | None = None
    parse_special: bool | None = None
    with_pieces: bool | None = None
    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(Body):
    """The body of `/detokenize`: llama-server's, or vLLM's with `model`."""

    tokens: list[int]
    model: str | None = None
