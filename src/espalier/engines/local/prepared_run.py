"""One run, ready to start, and the events that its reader gets: tokens, and at the end the Result and its Trace.

It works in the thread that calls it. It knows no model and no driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b

from espalier.activations.capture.tree import CaptureTree
from espalier.activations.store.record import CapturedVectors, RequestRecord
from espalier.chat.call_ids import call_id
from espalier.chat.reading.deltas import CallBegun, Delta, Turn
from espalier.constraints.judging import Judge, in_this_process
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import CUT, Verdict, breach_of, cut_by_stop, parse
from espalier.decoding.plan import Job, MakePlan, Outcome, Plan, SampledToken
from espalier.decoding.prompt_scores import PromptScores, PromptToken
from espalier.decoding.text.stops import TextAssembler
from espalier.engines.base import Event, FinishEvent, Request, Result, TokenEvent, Usage
from espalier.engines.local.lost_properties import LostProperties
from espalier.engines.local.lost_texts import LostTexts
from espalier.engines.local.turns import PreparedTurn, calls_tools
from espalier.errors import CutByStop
from espalier.lexicon.files import WordFiles
from espalier.schema.python.instances import BuildError
from espalier.trace.recorders.protocol import RunInfo, RunRecorder
from espalier.trace.records import LEVELS, StepRecord, Trace, TraceLevel
from espalier.trace.summary import summarise

FEW, SHORT = 64, 16_384
"""Tokens of an output, and characters of texts, that are little work."""
UNMADE = 8
"""Step records that are little work to make, 13 us each without lists; a thread costs some 100 us."""


def watched(request: Request) -> TraceLevel:
    """The trace level at which steps are measured: the highest that the request or its recorders need."""
    return max(request.trace, *(one.level for one in request.recorders), "off", key=LEVELS.index)


def _last_user_text(request: Request) -> str:
    """The last text that a person wrote: the last user message, or the prompt."""
    for message in reversed(request.messages or ()):
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            return str(message["content"])
    return request.prompt or ""


class PreparedRun:
    """One run that is ready to start, and what its reader has received so far. For one reader."""

    #: Whether a matcher holds the text to its constraint; otherwise the verdict only checks it.
    is_enforced = True

    def __init__(
        self,
        model: str,
        request: Request,
        turn: PreparedTurn,
        seed: int,
        job: Job,
        make_plan: MakePlan,
        words: WordFiles,
        compile_seconds: float = 0.0,
        *,
        sequences: int = 1,
        watch: CaptureTree | None = None,
        scores: PromptScores | None = None,
        lost: LostProperties | LostTexts | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """watch: gets the hidden states. scores: gets the measured prompt. lost: says what of the text the
        constraint lost. now: epoch seconds, noted with captured states."""
        self.model, self.request, self.turn, self.seed = model, request, turn, seed
        self.compile_seconds = compile_seconds
        self.sequences = sequences  # how many the model holds at once
        # The part of the judged and parsed text that is in the prompt already.
        self.begun = "" if turn.spec is None else turn.spec.begun(turn.before)
        self.job, self.make_plan, self.words = job, make_plan, words
        self.watch, self._now = watch, now
        self._scores, self._lost = scores, lost
        self._has_told = False  # the measured prompt
        self.parser = turn.parser()
        self.judge: Judge = in_this_process
        self.owner = ""
        self.records: list[StepRecord] = []
        self._recording: list[RunRecorder] | None = None  # from the first event on
        self.reasoned = 0  # tokens of reasoning
        self._open_tokens = 0  # tokens of a text that may still become reasoning

    @property
    def cost_key(self) -> bytes | None:
        """Equal for equal constraints; None without a constraint."""
        if self.turn.spec is None:
            return None
        return blake2b(self._spec_key.encode("utf-8", "surrogatepass"), digest_size=16).digest()

    @property
    def size(self) -> int:
        """The most tokens that its sequences can hold together."""
        # Forks share the prompt; the last token generated needs no place in the cache.
        return len(self.job.prompt) + self.sequences * (self.job.max_tokens - 1)

    def judge_with(self, judge: Judge, owner: str) -> None:
        """Have the output judged elsewhere than in this process. owner: who is charged."""
        self.judge, self.owner = judge, owner

    def plan(self) -> Plan:
        """The plan, not started. Call it once: from then on the job's matcher, chain and stream belong to the plan."""
        return self.make_plan(replace(self.job, owner=self.owner))

    def event(
        self, happened: SampledToken | Outcome, index: int = 0, *, reused: int = 0, after: float | None = None
    ) -> Event:
        """The event for what happened, in order. index: the request's place in its batch. reused: prompt tokens that
        were not computed. after: as in TokenEvent."""
        if isinstance(happened, SampledToken):
            deltas = self._heard(happened.text)
            if happened.record is not None and self.request.recorders:
                for one in self._recorders():
                    one.step(happened.record)
            record = self._asked_of(happened.record)
            if record is not None:
                self.records.append(record)
            return TokenEvent(
                index=index,
                token_id=happened.token,
                text=happened.text,
                record=record,
                deltas=deltas,
                prompt_tokens=len(self.job.prompt),
                cached_tokens=reused,
                measured=() if self._scores is None else self._measure_prompt(),
                after=after,
            )
        deltas = self.deltas(happened.tail, is_last=True)
        result = self.result(happened, reused)
        self._end(result.trace)
        return FinishEvent(index=index, text=happened.tail, result=result, deltas=deltas)

    def is_soon_told(self, outcome: Outcome) -> bool:
        """Whether `event` of the end takes so little that a thread would cost more: nothing is judged, captured or
        recorded, there is little to sum up, and few records of steps are still to be made."""
        request, spec = self.request, self.turn.spec
        is_judged = spec is not None and (
            outcome.is_complete or outcome.finish == "stop" or len(self._spec_key) > SHORT
        )
        is_large = len(outcome.tokens) > FEW or len(outcome.text) > SHORT or len(self.turn.text) > SHORT
        is_more = outcome.others or request.recorders or self.watch is not None or self._scores is not None
        is_traced = len(self.records) > UNMADE or request.trace not in ("off", "summary")
        return not (is_judged or is_large or is_more or is_traced or request.tools)

    @cached_property
    def _spec_key(self) -> str:
        return "" if self.turn.spec is None else self.turn.spec.key()

    def _measure_prompt(self) -> tuple[PromptToken, ...]:
        """The measured tokens of the prompt, once."""
        if self._scores is None or self._has_told:
            return ()
        self._has_told = True
        return tuple(self._scores.tokens)

    def _asked_of(self, record: StepRecord | None) -> StepRecord | None:
        """The part of a step record that the request itself asked for; a recorder may have needed more."""
        level = self.request.trace
        if record is None or level == "off":
            return None
        if self.job.watch.level == "full" and level != "full":
            record = replace(record, distribution=None)
        if level == "summary" and self.job.watch.level != level:
            blame = record.blame if self.job.watch.counts else None
            record = replace(record, pre_masking=(), post_grammar=(), post_chain=(), blame=blame)
        return record

    def close(self) -> None:
        """The reader has left: ends the recorders that have not ended yet. Idempotent."""
        if self._recording:
            self._end(None)

    def _recorders(self) -> list[RunRecorder]:
        if self._recording is None:
            info = RunInfo(
                request_id=self.request.request_id,
                model=self.model,
                strategy=self.request.strategy,
                output=self.request.stream,
                seed=self.seed,
            )
            self._recording = []
            for one in self.request.recorders:
                self._recording.append(one.begin(info))  # every recorder that began is ended, whatever happens
        return self._recording

    def _end(self, trace: Trace | None) -> None:
        begun, self._recording = self._recorders(), []
        with ExitStack() as stack:  # end every recorder, even if one fails
            for one in reversed(begun):
                stack.callback(one.end, trace)

    def _heard(self, text: str) -> tuple[Delta, ...]:
        """The deltas of one token. It counts as reasoning if any part of it is."""
        was_reasoning = self.parser.is_reasoning
        deltas = self.deltas(text)
        is_reasoning = self.parser.is_reasoning
        if was_reasoning or is_reasoning or (was_reasoning is None and self.parser.heard_reasoning):
            self.reasoned += 1 + self._open_tokens
        self._open_tokens = self._open_tokens + 1 if is_reasoning is None else 0
        return deltas

    def deltas(self, text: str, *, is_last: bool = False) -> tuple[Delta, ...]:
        """The deltas of more text; calls get their ids."""
        found = self.parser.feed(text)
        if is_last:
            found = [*found, *self.parser.finish()]
        if not found:
            return ()
        return tuple(
            replace(one, id=call_id(self.turn.text, self.seed, one.index)) if isinstance(one, CallBegun) else one
            for one in found
        )

    def result(self, outcome: Outcome, reused: int = 0, *, place: int = 0) -> Result:
        """The Result. Further texts of the run are parsed as turns of their own. place: among the texts of the run."""
        others = []
        for number, one in enumerate(outcome.others, start=1):
            alone = PreparedRun(
                self.model,
                self.request,
                self.turn,
                self.seed,
                self.job,
                self.make_plan,
                self.words,
                watch=self.watch,
                lost=self._lost,
            )
            alone.judge_with(self.judge, self.owner)
            alone.records = [record for step in one.records if (record := self._asked_of(step)) is not None]
            thoughts = self.job.thoughts
            pieces = TextAssembler(self.request.sampling.stop, None if thoughts is None else thoughts())
            for token in one.tokens:
                alone._heard(pieces.feed(self._spell_token(token)).text)
            alone.deltas(pieces.finish().text, is_last=True)
            others.append(alone.result(one, place=number))
        spec, turn = self.turn.spec, self._turn()
        lost: tuple[str, ...] = ()
        if self._lost is not None:
            lost = self._lost.notes(outcome.tokens, self._spell_token, self.turn.before, refused=outcome.refused)
        verdict = None if spec is None else self._judge(spec, outcome)
        unread = (turn.fault,) if turn.fault and spec is None and outcome.finish == "stop" else ()
        parsed = None
        # A text that was closed by the token limit is complete.
        if (outcome.finish == "stop" or outcome.closed_by_budget) and (verdict is None or verdict.valid is not False):
            try:
                parsed = turn.content if spec is None else parse(spec, self.begun + outcome.text)
            except BuildError as error:  # the type asks for more than its schema says
                verdict = Verdict(valid=False, judge="the Python type", errors=(error.message,), breaks="checked")
        return Result(
            text=outcome.text,
            token_ids=outcome.tokens,
            finish_reason="tool_calls" if outcome.finish == "stop" and calls_tools(turn) else outcome.finish,
            stop_reason=outcome.stop,
            usage=Usage(
                prompt_tokens=len(self.job.prompt),
                completion_tokens=len(outcome.tokens),
                reasoning_tokens=self.reasoned,
                cached_tokens=reused,
            ),
            seed=self.seed,
            turn=turn,
            parsed=parsed,
            verdict=verdict,
            breach=breach_of(spec, verdict),
            trace=None if self.request.trace == "off" else self._trace(outcome, verdict),
            records=tuple(self.records),
            mask_seconds=outcome.mask_seconds,
            score=outcome.score,
            weighing=outcome.weighing,
            drafting=outcome.drafting,
            closed_by_budget=outcome.closed_by_budget,
            others=tuple(others),
            notes=tuple(dict.fromkeys((*self.request.notes, *self.turn.notes, *unread, *lost))),
            lost=lost,
            unread=unread,
            activations=None if self.watch is None else self._capture_output(self.watch, outcome, place),
            prompt_tokens=() if self._scores is None else tuple(self._scores.tokens),
        )

    def _judge(self, spec: Spec, outcome: Outcome) -> Verdict:
        """The verdict on the text. Raises CutByStop where a stop text may not cut it."""
        is_stopped = outcome.finish == "stop" and not outcome.is_complete
        if not (outcome.is_complete or is_stopped):
            return CUT
        verdict = self.judge(spec, self.begun + outcome.text, self.words, self.owner)
        if is_stopped and verdict.valid is not True:
            cut = cut_by_stop(spec, outcome.stop)
            if self.request.decoding.on_stop == "error":
                hint = "leave the stop text out: the constraint ends the text; or on_stop=cut"
                raise CutByStop(cut.errors[0], hint=hint, field="stop")
            return cut
        if verdict.breaks == "enforced" and not self.is_enforced:
            return replace(verdict, breaks="checked")
        return verdict

    def _capture_output(self, watch: CaptureTree, outcome: Outcome, place: int) -> CapturedVectors:
        request, prompt = self.request, self.job.prompt
        returned = request.decoding.num_return_sequences
        positions, vectors = watch.vectors((*prompt, *outcome.tokens))
        record = RequestRecord(
            prompt=self.turn.text,
            response=outcome.text,
            model=self.model,
            input_length=len(prompt),
            timestamp=self._now(),
            prompt_ids=prompt,
            response_ids=outcome.tokens,
            positions=positions,
            sites=watch.options.sites,
            layers=watch.layers,
            hidden=next((one.shape[1] for one in vectors.values()), 0),
            dtype=watch.options.dtype,
            messages=None if request.messages is None else tuple(dict(one) for one in request.messages),
            request_id=request.request_id or None,
            run_id=watch.options.run_id,
            sample_index=request.stream * returned + place if request.sampling.n * returned > 1 else None,
            sample_group_id=request.sample_group,
            target_layers=str(watch.options.to_json()["layers"]),
            sequence_mode=watch.options.positions,
        )
        return CapturedVectors(record, vectors)

    def _trace(self, outcome: Outcome, verdict: Verdict | None) -> Trace:
        spec, request = self.turn.spec, self.request
        constraint = spec.to_json() if spec is not None else None
        is_summed = request.trace == "summary"
        return Trace(
            steps=() if is_summed else tuple(self.records),
            sums=summarise(self.records, constraint, outcome.text, outcome.rewinds) if is_summed else None,
            level=request.trace,
            text=outcome.text,
            finish_reason=outcome.finish,
            model=self.model,
            prompt=self.turn.text,
            asked=_last_user_text(request),
            constraint=constraint,
            soft=tuple(soft.to_json() for soft in request.soft),
            sampling=request.sampling.to_json() | {"seed": self.seed} | self._sampler(),
            strategy=request.strategy,
            verdict=verdict.to_json() if verdict else None,
            decoding=request.decoding.to_json(),
            closed_by_budget=outcome.closed_by_budget,
            rewinds=outcome.rewinds,
            drafts=() if outcome.drafting is None else outcome.drafting.drafts,
            score=outcome.score,
            weighing=None if outcome.weighing is None else outcome.weighing.to_json(),
            prompt_ids=self.job.prompt,
            setup={
                "before": self.turn.before,
                "stream": request.stream,
                "max_tokens": self.job.max_tokens,
                "filters": [one.name for one in request.filters],
                **self.turn.reasoning_setup(),
            },
        )

    def _spell_token(self, token: int) -> bytes:
        """The bytes that a token adds to the text."""
        job = self.job
        if token in job.chain.config.stop_ids:
            return b""
        return job.spelled.get(token) or job.vocab.bytes_of(token)

    def _sampler(self) -> dict[str, str]:
        """The sampler's name in the trace, if it is not ours."""
        return {} if self.request.sampler == "espalier" else {"sampler": self.request.sampler}

    def _turn(self) -> Turn:
        """The parsed turn; calls get their ids."""
        found = self.parser.turn
        calls = (replace(call, id=call_id(self.turn.text, self.seed, call.index)) for call in found.calls)
        return replace(found, calls=tuple(calls))
