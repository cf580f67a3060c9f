"""Values between body and engine: a `RequestDraft` while the body is read, then `ParsedRequest` with the engine's
requests.

It reads no body and runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import Spec
from espalier.engines.base import Message, Request
from espalier.errors import EspalierError
from espalier.schema.order import Order
from espalier.server.asking.decoding import DecodingFields
from espalier.server.asking.naming import rename
from espalier.server.bodies.base import FieldWarnings
from espalier.server.process.hidden_states import HiddenStates
from espalier.trace.records import TraceLevel

ReasoningPlace: TypeAlias = Literal["separate", "content", "omitted", "both"]
"""Where a reply has the reasoning: in its own field, in the content with its markers, nowhere, or in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyOptions:
    """Options of the reply.

    include_usage: whether a stream ends with the usage. top_logprobs: how many candidates beside each token, None
    without log probabilities. processed_logprobs: whether these are of what the constraint and the samplers left, as
    vLLM's mode of this name. token_ids: whether choices have `token_ids`. shows_prompt_ids: whether the reply has the
    ids of the prompt. prompt_logprobs: whether the reply has those of the prompt's tokens. report: whether the reply
    has the key `espalier`. has_functions: whether calls are told as OpenAI's old `function_call`. custom_tools: names
    of tools whose calls are told with a text in place of arguments. shown_trace: how much of the trace the key holds.
    stream_steps: each step comes with its token.
    """

    stream: bool = False
    include_usage: bool = False
    top_logprobs: int | None = None
    #: Whether `max_top_logprobs` limits them; llama-server gives as many as there are tokens.
    has_most_top: bool = True
    processed_logprobs: bool = False
    token_ids: bool = False
    shows_prompt_ids: bool = False
    prompt_logprobs: bool = False
    report: bool = False
    has_functions: bool = False
    custom_tools: frozenset[str] = frozenset()
    shown_trace: Literal["none", "summary", "steps"] = "none"
    stream_steps: bool = False
    #: Whether each chunk of a stream has llama-server's `timings`.
    timings_per_token: bool = False
    #: Where the reply has the reasoning.
    reasoning_place: ReasoningPlace = "separate"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestDraft(ReplyOptions):
    """A request body, read but not yet turned into the engine's requests.

    prompts: texts or conversations, with the token ids of those that were given as ids (None for the others).
    default_order: of properties in the schemas of the constraint, where nothing else states one.
    sampling: only what was given, in our names. defaults: sampling for fields that are not given, unless a preset is
    named. options: further arguments of `make_request`. request: further fields of each Request. default_beams: the
    number of beams that search where the body does not say how to decode, and the field that asks for them.
    states: the store that the request names. strict: unknown keywords of schemas are refused.
    trace: the least level that the body needs. echo: whether prompts are repeated before their outputs. names: from
    the field that an error names to the field of the body. warnings: for the client. told: of the body's fields.
    """

    model: str | None
    prompts: tuple[str | tuple[Message, ...], ...]
    ids: tuple[tuple[int, ...] | None, ...]
    constraint: Spec | None = None
    default_order: Order | None = None
    soft: tuple[SoftSpec, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    default_beams: tuple[int, str] | None = None
    decoded: DecodingFields = field(default_factory=DecodingFields)
    trace: TraceLevel = "off"
    strict: bool = False
    states: HiddenStates | None = None
    echo: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    told: FieldWarnings = field(default_factory=FieldWarnings)

    @property
    def is_chat(self) -> bool:
        """Whether the prompt is a conversation."""
        return not isinstance(self.prompts[0], str)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequest(ReplyOptions):
    """The engine's requests of one HTTP request, and what the reply needs to know.

    requests: every run of every prompt, in the order of the choices. n: runs of one prompt. returned: choices that one
    run gives, its Result and its `others`. model: as the reply names it. ends: token ids that end an output and are no
    part of it. echo: for each run, the text before its output. keep_trace: whether the store keeps the traces.
    hints: fields of the body that have no effect.
    truncated: how many tokens each prompt lost, empty until prompts are cut. prompt_ids: of each run, where the reply
    has them; empty until prompts are cut. states: the store of hidden states
    that the request names, None for the server's own. input_limit: the most tokens of a prompt, beside the server's
    own limit.
    """

    requests: tuple[Request, ...]
    model: str
    n: int
    returned: int
    ends: frozenset[int]
    echo: tuple[str, ...]
    keep_trace: bool
    constraint: Spec | None
    names: Mapping[str, str]
    warnings: tuple[str, ...]
    hints: tuple[str, ...] = ()
    truncated: tuple[int, ...] = ()
    prompt_ids: tuple[tuple[int, ...], ...] = ()
    states: HiddenStates | None = None
    input_limit: int | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """All warnings and hints about the request."""
        return FieldWarnings(hints=self.hints, warnings=self.warnings).lines()

    def named(self, error: EspalierError) -> EspalierError:
        """The error, its field now as the body calls it."""
        rename(error, self.names)
        return error
