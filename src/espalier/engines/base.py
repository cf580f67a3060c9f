"""Values that pass between edges and engines: requests, events, results, capabilities. No behaviour.

`protocols.py` says what an engine does with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias

from espalier.activations.capture.options import Activations
from espalier.activations.store.record import CapturedVectors
from espalier.chat.reading.deltas import Delta, Turn
from espalier.chat.reasoning import Reasoning
from espalier.chat.tools import AUTO, Tool, ToolCall, ToolChoice
from espalier.constraints.soft.spec import SoftSpec
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import Breach, Verdict
from espalier.decoding.options import Decoding
from espalier.decoding.plan import Drafting, Weighing
from espalier.decoding.prompt_scores import PromptToken
from espalier.engines import shown
from espalier.sampling.config import SamplingConfig
from espalier.sampling.filters import LogitFilter
from espalier.schema.order import Order
from espalier.trace.recorders.protocol import Recorder
from espalier.trace.records import StepRecord, Trace, TraceLevel

if TYPE_CHECKING:  # of Python 3.13: a Result without an argument is one of anything
    from typing_extensions import TypeVar

    Parsed = TypeVar("Parsed", default=Any, covariant=True)
else:
    from typing import TypeVar

    Parsed = TypeVar("Parsed", covariant=True)

Message: TypeAlias = Mapping[str, Any]
SamplerName: TypeAlias = Literal["espalier", "native"]
"""native: the engine's own sampler chain and random generator, in its own order; needs `Capabilities.native_sampler`.
"""
TurnStart: TypeAlias = Literal["new", "continue", "none"]
"""How the model's turn begins: as the chat template begins one; by going on with the last message, the assistant's; or
without anything after the messages."""
FinishReason: TypeAlias = Literal["stop", "length", "tool_calls"]
"""tool_calls: the turn is complete and calls tools. A turn whose call was cut off ends with `length`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One generation. `prompt` is text; `messages` are rendered by the model's chat template; exactly one of them is
    given.

    raw: take `prompt` as it is; otherwise a model with a chat template gets it as one user message. prompt_ids: the
    token ids of a raw prompt, used instead of encoding `prompt`, which is then their text. constraint: what the output
    must satisfy; with tools, it constrains the content of a turn that calls none. soft: logit biases beside the
    constraint. filters: LogitFilters of the caller; every run gets a fresh copy. stream: which of the sampling's `n`
    outputs this is, from 0; the same seed and stream give the same output.

    tools: what the model may call. tool_choice: whether it may or must call. tool_format: a name in `WIRE_FORMATS`,
    None for the one that the chat template shows. max_calls: calls in one turn, None for no limit. enable_thinking: for
    templates that read it. template_variables: further variables of the chat template, none of the names that it gets
    anyway. reasoning: the markers between which the model may reason first, free of the constraint; None and `auto`
    detect them, `none` asks for an answer without reasoning. max_reasoning: the most tokens of reasoning.
    hold_reasoning: bans and stop texts hold for the reasoning too. schema_in_prompt: also puts the constraint's schema
    into the prompt. turn: how the model's turn begins. schema_order: the order of properties in the tools' arguments;
    the constraint has it already. logprobs: the answer shows log probabilities, so that one without them fails.
    prompt_top: measure the prompt's tokens too, each with so many most probable ones.
    only_prompt: read the prompt and generate nothing. line_seconds: end the text at the first new line after so many
    seconds of generation, as cut. live: the records of steps are read as they come, so each is made with its token, as
    it is for recorders. whole: nobody reads a token before the end, so a reader on an event loop is woken once, then.
    recorders: get every step, in the thread that reads the events. request_id: the request's name in recorders. notes:
    for the user: what of a preset was replaced, and what is not enforced. preset_fields: the sampling fields that a
    preset states and nothing else does: an engine that has no such field leaves it out, and a note says so.
    sample_group: the same for all outputs that were asked for together.
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
    reasoning: Reasoning | Literal["auto", "none"] | None = None
    max_reasoning: int | None = None
    hold_reasoning: bool = False
    schema_in_prompt: bool = False
    schema_order: Order | None = None
    enable_thinking: bool | None = None
    turn: TurnStart = "new"
    logprobs: bool = False
    prompt_top: int | None = None
    only_prompt: bool = False
    template_variables: Mapping[str, Any] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] | None = None
    stream: int = 0
    line_seconds: float | None = None
    sampler: SamplerName = "espalier"
    live: bool = field(default=False, compare=False)
    whole: bool = field(default=False, compare=False)
    recorders: tuple[Recorder, ...] = ()
    request_id: str = ""
    notes: tuple[str, ...] = ()
    preset_fields: frozenset[str] = frozenset()
    activations: Activations | None = None
    sample_group: str | None = field(default=None, compare=False)

    @property
    def strategy(self) -> str:
        """The name of the decoding strategy."""
        return self.decoding.strategy


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts. reasoning_tokens: part of the completion, markers included; 0 where reasoning is not split off.
    cached_tokens: prompt tokens that a kept prefix spared; they say how a result was computed, so they do not count in
    comparisons."""

    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    cached_tokens: int = field(default=0, compare=False)

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Generic[Parsed]):
    """A finished generation. `parsed` is the JSON value under a JSON constraint, an instance of the type where the
    constraint is a Python type, otherwise the text; None if the text was cut short.

    text: everything that was generated. turn: the same text, split into reasoning, content and calls. stop_reason: the
    stop text or stop id that ended it, None for EOS and length. mask_seconds: time spent on token masks, None without a
    constraint or where it was not measured. score: a beam's. weighing: what faithful sampling reports.
    drafting: passes and drafts of the strategy `draft`; it says how a text was computed, so it does not count in
    comparisons.
    closed_by_budget: whether the token limit decided how the text ends. others: further texts of the same run, best
    first (num_return_sequences). records: the measured steps, also at level `summary`, whose trace keeps none; ()
    without a trace. notes: what was replaced, and what is not enforced: the request's notes, and those of its turn.
    activations: the captured hidden states, None where none were asked for. prompt_tokens: the measured tokens of the
    prompt, () where they were not asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None
    usage: Usage
    seed: int
    turn: Turn
    parsed: Parsed | None = None
    verdict: Verdict | None = None
    #: Set where the verdict says that the text breaks what was called enforced.
    breach: Breach | None = None
    trace: Trace | None = None
    mask_seconds: float | None = field(default=None, compare=False)
    score: float | None = None
    weighing: Weighing | None = None
    drafting: Drafting | None = field(default=None, compare=False)
    closed_by_budget: bool = False
    others: tuple[Result, ...] = ()
    records: tuple[StepRecord, ...] = field(default=(), compare=False, repr=False)
    notes: tuple[str, ...] = ()
    #: The notes on properties that the model wanted and that the order of the schema had passed, and on tags that it
    #: wanted within a raw text of a call; `notes` has them too.
    lost: tuple[str, ...] = ()
    #: The fault of a complete turn without a constraint, as where the model calls a tool that it was not offered;
    #: `notes` has it too. Elsewhere the verdict says so.
    unread: tuple[str, ...] = ()
    activations: CapturedVectors | None = field(default=None, compare=False, repr=False)
    prompt_tokens: tuple[PromptToken, ...] = field(default=(), compare=False, repr=False)

    @property
    def content(self) -> str:
        """The text without reasoning and calls."""
        return self.turn.content

    @property
    def reasoning(self) -> str | None:
        """The model's reasoning, None where none was asked for or none was generated."""
        return self.turn.reasoning

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls, in order; a call that was cut off is marked as incomplete."""
        return self.turn.calls

    @property
    def breaches(self) -> tuple[Breach, ...]:
        """The breaches of this text and of the further texts of the run."""
        return tuple(one.breach for one in (self, *self.others) if one.breach is not None)

    @property
    def is_cut_by_stop(self) -> bool:
        """Whether a stop text cut this text before it satisfied its constraint."""
        return self.finish_reason == "stop" and self.verdict is not None and self.verdict.breaks == "cut"

    @property
    def faults(self) -> tuple[str, ...]:
        """What whoever reads the texts must know: each breach, each text that a stop text cut, and what was not read of
        a turn."""
        texts = (self, *self.others)
        cuts = (error for text in texts if text.is_cut_by_stop and text.verdict for error in text.verdict.errors)
        return (*(breach.told for breach in self.breaches), *cuts, *(fault for text in texts for fault in text.unread))

    def __repr__(self) -> str:
        """One line: the beginning of the text, why it ended, the verdict, and what the constraint cost."""
        return shown.line(self.text, self._facts())

    def _repr_html_(self) -> str:
        """For notebooks: the text, the verdict, what the constraint cost, and a link that saves the trace's page."""
        return shown.block(self.text, self._facts(), self.verdict, self.trace)

    def _facts(self) -> str:
        return shown.facts(
            finish_reason=self.finish_reason, verdict=self.verdict, tokens=len(self.token_ids), trace=self.trace
        )

    def occasional(self) -> dict[str, Any]:
        """The facts that only some runs have, as JSON values: `notes`, `score`, `weighing`, `drafting`,
        `closed_by_budget`, `rewinds`, and `safety` (what filters refused and rewound, by category and pattern)."""
        found: dict[str, Any] = {"notes": list(self.notes)} if self.notes else {}
        if self.score is not None:
            found["score"] = self.score
        if self.weighing is not None:
            found["weighing"] = self.weighing.to_json()
        if self.drafting is not None:
            found["drafting"] = self.drafting.to_json()
        if self.closed_by_budget:
            found["closed_by_budget"] = True
        if self.trace is not None and self.trace.rewinds:
            found["rewinds"] = [one.to_json() for one in self.trace.rewinds]
        if self.trace is not None and (counts := self.trace.safety_counts()):
            found["safety"] = counts
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """One token was generated. `text` is what may be shown now: whole characters, with a possible stop text held back.

    index: the request's place in the batch. record: None when tracing is off. deltas: what the text adds to the turn's
    reasoning, content and calls; they may lag behind the text. prompt_tokens, cached_tokens: as in Usage; None where
    the engine does not know them before the end. measured: of the first event, the measured tokens of the prompt; see
    Result. after: seconds from submission to this token, of a request whose events are read at its end; None otherwise.
    """

    index: int
    token_id: int
    text: str
    record: StepRecord | None = None
    deltas: tuple[Delta, ...] = ()
    prompt_tokens: int | None = field(default=None, compare=False)
    cached_tokens: int | None = field(default=None, compare=False)
    measured: tuple[PromptToken, ...] = field(default=(), compare=False, repr=False)
    after: float | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEvent:
    """The end of one request of the batch. `text` is the last held-back piece, `deltas` the last held-back deltas."""

    index: int
    text: str
    result: Result
    deltas: tuple[Delta, ...] = ()


Event: TypeAlias = TokenEvent | FinishEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine can do. A request that asks for more is refused before anything is generated.

    logits: the engine gives its logits, so every strategy, filter and soft constraint works. logprobs: without logits,
    it tells the log probabilities of tokens and of the likeliest ones, where it is asked. constraints: the kinds
    that it enforces. truncate: tokens can be removed from the end of a sequence. fork: a sequence can be copied.
    max_context: tokens of one sequence, 0 if unknown. max_sequences: sequences that one run may hold, None if unknown.
    native_sampler: the engine has a sampler of its own. activations: the sites whose hidden states it can capture.
    draft_model: a smaller model is open to draft for this one. kv_unified: all sequences share one KV cache, or each
    has its own; None where an engine has no such choice. thought_limits: without logits, a limit of reasoning tokens is
    held all the same. token_ids: results have the ids of their tokens.
    """

    logits: bool = False
    logprobs: bool = False
    constraints: frozenset[str] = frozenset()
    chat_template: bool = False
    truncate: bool = False
    fork: bool = False
    max_context: int = 0
    max_sequences: int | None = None
    native_sampler: bool = False
    activations: tuple[str, ...] = ()
    draft_model: bool = False
    kv_unified: bool | None = None
    thought_limits: bool = False
    token_ids: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a request is. compiled: seconds spent on compiling its constraint, or on finding it compiled. queued:
    seconds spent waiting for a place, None while it still waits."""

    compiled: float = 0.0
    queued: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What a serving engine is doing. running, waiting: requests. sequences: of the model, kept prefixes too.
    tokens_held, capacity: tokens in the KV cache, and the most it holds.

    Since the start: steps: forward passes; prefilled: prompt tokens that were computed; reused: prompt tokens that a
    kept prefix spared.
    """

    running: int = 0
    waiting: int = 0
    sequences: int = 0
    tokens_held: int = 0
    capacity: int = 0
    steps: int = 0
    reused: int = 0
    prefilled: int = 0
