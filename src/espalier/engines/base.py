"""Values that pass between edges and engines: a Request goes in, events and a Result come out. No behaviour.

`protocols.py` says what an engine does with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from espalier.chat.reading.deltas import Delta, Turn
from espalier.chat.reasoning import Reasoning
from espalier.chat.tools import AUTO, Tool, ToolCall, ToolChoice
from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import Verdict
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Weighing
from espalier.sampling.config import SamplingConfig
from espalier.sampling.filters import LogitFilter
from espalier.trace.recorders.protocol import Recorder
from espalier.trace.records import StepRecord, Trace, TraceLevel

Message: TypeAlias = Mapping[str, Any]
Sampler: TypeAlias = Literal["espalier", "native"]
"""native: the engine's own chain and random generator, in its own order. Where `Capabilities.native_sampler`."""
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]
"""tool_calls: the turn is complete and calls tools. A call that was cut off ends with `length`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One generation. `prompt` is text; `messages` are rendered by the model's chat template; exactly one is given.

    raw: take `prompt` as it is; otherwise a model with a chat template sees it as one user message. soft: biases beside
    the constraint. filters: of your own, each a fresh copy in every run. stream: which of the sampling's `n` outputs
    this is, from 0; same seed and stream, same output. prompt_ids: the tokens of a raw prompt, taken as they are;
    `prompt` is then their text.

    tools: what the model may call; tool_choice: whether it may or must. tool_format: a name of `WIRE_FORMATS`, None for
    what the chat template shows. max_calls: in one turn, None for any number. The constraint then holds the content of
    a turn without calls. enable_thinking: for templates that read it. template_variables: more that the chat template
    may read; none of the names that it is given anyway. reasoning: the markers between which the model may think first,
    free of the constraint; `auto` finds them. max_reasoning: after so many tokens the reasoning must end.
    schema_in_prompt: the constraint's schema is put into the prompt too. recorders: told of every step, in the thread
    that reads the events; request_id: what they call it.
    """

    prompt: str | None = None
    messages: tuple[Message, ...] | None = None
    constraint: Spec | None = None
    soft: tuple[SoftSpec, ...] = ()
    filters: tuple[LogitFilter, ...] = ()
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    decoding: Decoding = field(default_factory=Decoding)
    trace: TraceLevel = "steps"
    trace_top_k: int = 10
    raw: bool = False
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = AUTO
    tool_format: str | None = None
    max_calls: int | None = None
    reasoning: Reasoning | Literal["auto"] | None = None
    max_reasoning: int | None = None
    schema_in_prompt: bool = False
    enable_thinking: bool | None = None
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] | None = None
    stream: int = 0
    sampler: Sampler = "espalier"
    recorders: tuple[Recorder, ...] = ()
    request_id: str = ""

    @property
    def strategy(self) -> str:
        """Its name."""
        return self.decoding.strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """reasoning_tokens: of the completion, its markers among them; 0 where reasoning is not split. cached_tokens: of
    the prompt, spared by what was computed for another; that is how it was made, not what, so it does not compare."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    cached_tokens: int = field(default=0, compare=False)

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A finished generation. `parsed` is the JSON value of a JSON constraint, else the text; None if cut short.

    text: all that was generated; turn: the same, split into reasoning, content and calls. stop_reason: the stop text or
    id that ended it, None for EOS and length. mask_seconds: what the constraint's masks took in all, None without one
    and where it was not timed. score: a beam's. weighing: what faithful sampling knows. closed_by_budget: whether the
    limit on tokens decided how it ends. others: the further texts of the same run, best first (num_return_sequences).
    records: what was measured of each step, at level `summary` too, whose trace keeps none of it; () with no trace.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None
    usage: Usage
    seed: int
    turn: Turn
    parsed: Any = None
    verdict: Verdict | None = None
    trace: Trace | None = None
    mask_seconds: float | None = field(default=None, compare=False)
    score: float | None = None
    weighing: Weighing | None = None
    closed_by_budget: bool = False
    others: tuple[Result, ...] = ()
    records: tuple[StepRecord, ...] = field(default=(), compare=False, repr=False)

    @property
    def content(self) -> str:
        """The text without reasoning and calls."""
        return self.turn.content

    @property
    def reasoning(self) -> str | None:
        """What the model thought before it answered, None where that was not asked for or did not happen."""
        return self.turn.reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in order; one that was cut off says so."""
        return self.turn.calls


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """One token was taken. `text` is what may be shown now: whole characters, with a possible stop text held back.

    index: which request of the batch. record: None when tracing is off. deltas: what the text adds to the turn's
    reasoning, content and calls; it may lag behind the text.
    """

    index: int
    token_id: int
    text: str
    record: StepRecord | None = None
    deltas: tuple[Delta, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The end of one request of the batch; `text` is the last held-back piece, `deltas` what was still held back."""

    index: int
    text: str
    result: Result
    deltas: tuple[Delta, ...] = ()


Event: TypeAlias = TokenEvent | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do. A request that asks for more is refused before anything is generated.

    logits: it shows its logits, so every strategy, filter and soft constraint can be applied. constraints: the kinds
    that it enforces. truncate: tokens can be taken back out of a sequence. fork: a sequence can be copied. max_context:
    tokens of one sequence, 0 where that is not known. max_sequences: how many one run may hold, None where that is not
    known. native_sampler: it has a sampler of its own.
    """

    logits: bool = False
    constraints: frozenset[str] = frozenset()
    chat_template: bool = False
    truncate: bool = False
    fork: bool = False
    max_context: int = 0
    max_sequences: int | None = None
    native_sampler: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a request is. compiled: seconds that compiling its constraint took, or finding it compiled. queued:
    seconds that it waited for its place, None while it waits."""

    compiled: float = 0.0
    queued: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a serving engine is doing. waiting: taken, not begun. tokens_held, capacity: of the KV cache.

    steps: forward passes since the beginning. reused: prompt tokens that a kept prefix spared, since the beginning.
    """

    running: int = 0
    waiting: int = 0
    tokens_held: int = 0
    capacity: int = 0
    steps: int = 0
    reused: int = 0
    prefilled: int = 0
