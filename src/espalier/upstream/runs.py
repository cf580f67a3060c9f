"""One answer of a server or program, made into events and a Result as our own runs are: checked text by text against
the constraint, parsed, judged, traced.

The text is the answer: it is read byte by byte, since tokens of others may hide the bytes of half characters. Ids of
tokens and their log probabilities stand beside it where the other side tells them. It knows no protocol.
"""

from __future__ import annotations

import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from espalier.constraints.base import Matcher
from espalier.constraints.compiler import Compiler
from espalier.constraints.joining.rule import is_filter
from espalier.constraints.judging import Judge
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import Verdict
from espalier.decoding.masking import MASK
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.plan import FinishReason, Job, Outcome, SampledToken
from espalier.decoding.step.record import Watch
from espalier.decoding.text.run import EndRule, TextEnd, TextRun
from espalier.engines.base import Event, Request, Result, TokenEvent, Usage
from espalier.engines.local.prepared_run import PreparedRun, watched
from espalier.engines.local.turns import PreparedTurn
from espalier.engines.protocols import Interruptible
from espalier.errors import Cancelled, CapabilityError, InputError, UpstreamError
from espalier.sampling.chain import Chain
from espalier.sampling.config import MAX_N, SamplingConfig
from espalier.sampling.draw import RandomStream
from espalier.trace.records import StepRecord

NO_ID = -1
"""The id of a token that nobody told."""
SEEDS = 2**32 - 1
ENDLESS = 2**62  # bytes: how long a text is, the other side decides


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEnd:
    """What the other side says at the end. stop: the stop text that ended it. token_ids: () where it tells none, or not
    all."""

    finish: FinishReason
    stop: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    token_ids: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


class UpstreamRun(PreparedRun):
    """A PreparedRun whose tokens are bytes to us. `told` is set before the outcome is made. holds: whether a text
    satisfies a constraint of a kind without a judge, where no matcher followed the text."""

    told = AnswerEnd(finish="stop")
    holds: Callable[[str], bool] | None = None

    def result(self, outcome: Outcome, reused: int = 0, *, place: int = 0) -> Result:
        result, told = super().result(outcome, reused, place=place), self.told
        if self.holds is not None and result.verdict is not None and result.verdict.valid is None:
            result = _held_to(self.holds, result)
        usage = Usage(
            prompt_tokens=told.prompt_tokens,
            completion_tokens=told.completion_tokens,
            reasoning_tokens=result.usage.reasoning_tokens,
            cached_tokens=told.cached_tokens,
        )
        trace = result.trace
        if trace is not None:  # the run here counts bytes, and has no limit of them
            setup = {**trace.setup, "max_tokens": self.request.sampling.max_tokens}
            trace = replace(trace, prompt_ids=(), setup=setup)
        notes = tuple(dict.fromkeys((*result.notes, *told.notes)))
        return replace(result, token_ids=told.token_ids, usage=usage, trace=trace, notes=notes)


def _held_to(holds: Callable[[str], bool], result: Result) -> Result:
    if holds(result.text):
        return replace(result, verdict=Verdict(valid=True, judge="matcher"))
    broken = Verdict(
        valid=False, judge="matcher", errors=("the text does not satisfy the constraint",), breaks="checked"
    )
    return replace(result, verdict=broken, parsed=None)


class IncomingAnswer:
    """One answer while it arrives. compiled: whether the text is held to the constraint byte by byte; otherwise only
    the verdict at the end says whether it satisfies it."""

    def __init__(
        self,
        *,
        model: str,
        request: Request,
        turn: PreparedTurn,
        compiler: Compiler,
        is_followed: bool = True,
        is_enforced: bool = True,
        follows: Spec | None = None,
        follows_from: str = "",
        stops: tuple[str, ...] = (),
    ) -> None:
        """is_enforced: whether the contract says that the other side enforces the whole constraint. follows: what the
        text is held to while it comes, if not the turn's own constraint; follows_from: what the prompt holds of it.
        stops: stop texts that the other side does not know; the text is cut at the first of them here. Raises
        InputError and its subclasses for a request that is wrong in itself, UnsupportedError and LimitExceeded for a
        constraint that cannot be compiled."""
        check(request)
        config = request.sampling
        self.seed = secrets.randbelow(2**32 - MAX_N) if config.seed is None else config.seed
        if self.seed + request.stream >= SEEDS:
            raise InputError(f"seed: {self.seed} must be below {SEEDS - request.stream}", field="seed")
        self.turn, self.request, self.name = turn, request, model
        self.matcher: Matcher | None = None
        spec = follows or turn.spec
        if spec is not None and is_followed:
            self.matcher = compiler.compile(spec).matcher(before=follows_from if follows else turn.before)
        self.vocab = compiler.vocab
        job = Job(
            vocab=self.vocab,
            prompt=(0,),  # unused: the prompt is the other side's
            matcher=self.matcher,
            chain=Chain(SamplingConfig(seed=self.seed, stop=stops)),
            stream=RandomStream(self.seed, request.stream),
            max_tokens=ENDLESS,
            watch=Watch(watched(request), request.trace_top_k),
            thoughts=None if turn.reasoning is None or request.hold_reasoning else turn.thoughts,
        )
        # The sampler is the other side's own, and so it stands in the trace.
        native = replace(request, sampler="native")
        self.run = UpstreamRun(model, native, turn, self.seed, job, MASK.make_plan, compiler.words)
        self.run.is_enforced = is_enforced and self.matcher is not None
        self._text = TextRun(EndRule(job))
        self._measured = 0  # tokens whose probabilities were told

    @property
    def is_traced(self) -> bool:
        return watched(self.request) != "off"

    @property
    def stopped(self) -> int | None:
        """The bytes up to the end of the first of `stops`, None while none was met."""
        return None if self._text.ending is None else len(self._text.tokens)

    def take(self, piece: str, *, token: int = NO_ID, record: StepRecord | None = None, index: int = 0) -> TokenEvent:
        """More text. Raises UpstreamError where the constraint does not allow it."""
        shown = []
        for byte in piece.encode("utf-8", "surrogatepass"):
            if self.stopped is not None:
                break
            if self.matcher is not None:
                if not self.matcher.allows(byte):
                    raise self._describe_break(byte)
                self.matcher.advance(byte)
            shown.append(self._text.take(byte))
        self._measured += record is not None
        event = self.run.event(SampledToken(token=token, text="".join(shown), record=record), index)
        assert isinstance(event, TokenEvent)
        return event

    def end(self, end: AnswerEnd, *, index: int = 0) -> Event:
        """The end. Raises UpstreamError where the other side ended a text that is not complete."""
        if self._text.ending is not None:
            end = replace(end, finish="stop", stop=str(self._text.ending.stop))
        if self.request.logprobs and self._text.tokens and not self._measured:
            raise UpstreamError(f"{self.name} tells no log probabilities", hint="leave logprobs out")
        self.run.told = end
        if self.matcher is not None and end.finish == "stop" and end.stop is None:
            if not self.matcher.is_accepting:
                raise UpstreamError(
                    f"{self.name} ended a text that does not satisfy {self._kind} yet",
                    hint="it did not keep to the constraint; is its version too old?",
                )
            self.matcher.advance(self.vocab.eos_ids[0])
        self._text.ending = TextEnd(end.finish, end.stop)
        outcome = self._text.outcome(self.matcher)
        if self.matcher is None and end.finish == "length" and not self._is_filtered:
            outcome = replace(outcome, is_complete=False)
        return self.run.event(outcome, index)

    @property
    def _is_filtered(self) -> bool:
        """Whether the constraint only takes texts away, so that a cut text may satisfy it too."""
        return self.turn.spec is not None and is_filter(self.turn.spec)

    @property
    def _kind(self) -> str:
        return "its constraint" if self.turn.spec is None else self.turn.spec.kind

    def _describe_break(self, byte: int) -> UpstreamError:
        blame = None if self.matcher is None else MatcherQuestions(self.matcher).why_refused(byte)
        why = "" if blame is None or not blame.reason else f": {blame.reason}"
        shown = repr(bytes([byte]))[1:]
        return UpstreamError(
            f"{self.name} did not keep to {self._kind}: after {len(self._text.tokens)} bytes it wrote {shown}{why}",
            hint="nothing of it is passed on as valid; is its version too old?",
        )


def check(request: Request) -> None:
    """Refuses what only an engine with logits has, beside what `check_capabilities` refuses. Raises CapabilityError and
    InputError naming the field."""
    if watched(request) == "full":
        raise CapabilityError(
            "whole distributions cannot be had from a server", hint="trace the steps instead", field="trace"
        )
    has_constraint = request.constraint is not None or bool(request.tools)
    if has_constraint and request.sampling.ignore_eos:
        raise InputError(
            "ignore_eos cannot be combined with a constraint",
            hint="a complete text must be allowed to end",
            field="ignore_eos",
        )


def no_matcher(spec: Spec | None) -> tuple[str, ...]:
    """The note on a constraint that is judged, and neither enforced nor followed here."""
    if spec is None:
        return ()
    return (f"{spec.kind} is checked by the verdict: whether the server enforces it is not known here",)


class Current:
    """What an engine waits for at the moment, so that another thread can end it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waits_for: Interruptible | None = None
        self._is_over = False

    def is_now(self, running: Interruptible) -> None:
        """Raises Cancelled if the run was interrupted before."""
        with self._lock:
            if self._is_over:
                raise Cancelled
            self._waits_for = running

    def interrupt(self) -> None:
        with self._lock:
            self._is_over, waited_for = True, self._waits_for
        if waited_for is not None:
            waited_for.interrupt()


Begin = Callable[[Current, int], Iterator[Event]]
"""Asks for one answer and yields its events: (what is waited for, the request's place)."""


class Events:
    """The events of prepared requests, one after the other: an iterator that another thread can interrupt."""

    def __init__(self, runs: Sequence[UpstreamRun], begins: Sequence[Begin]) -> None:
        self._runs, self._current = runs, Current()
        self._events = self._all(begins)

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        return next(self._events)

    def judge_with(self, judge: Judge, owner: str) -> None:
        """Have the texts judged elsewhere than in this process."""
        for run in self._runs:
            run.judge_with(judge, owner)

    def interrupt(self) -> None:
        """From any thread: whoever waits for the next event gets Cancelled, and the other side sees that we left."""
        self._current.interrupt()

    def close(self) -> None:
        """End what is under way. Idempotent."""
        self._events.close()
        for run in self._runs:
            run.close()

    def _all(self, begins: Sequence[Begin]) -> Generator[Event, None, None]:
        for index, begin in enumerate(begins):
            yield from begin(self._current, index)


class UpstreamEngine(ABC):
    """What the engines over a server or program share: running prepared answers, until it is closed."""

    _is_closed = False

    @abstractmethod
    def _prepare(self, request: Request) -> tuple[IncomingAnswer, Begin]:
        """The answer, and what asks for it. Raises what is wrong with the request."""

    def run(self, requests: Sequence[Request]) -> Events:
        """The requests one after the other. Raises before the first event what is wrong with any."""
        if self._is_closed:
            raise InputError("this engine is closed", hint="open it again")
        prepared = [self._prepare(request) for request in requests]
        return Events([answer.run for answer, _ in prepared], [begin for _, begin in prepared])

    def close(self) -> None:
        self._is_closed = True
