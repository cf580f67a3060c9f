"""Builds OpenAI's replies as JSON: whole completions and stream chunks. It waits for nothing and runs nothing.

Beyond OpenAI's fields there are only `reasoning` and `stop_reason` (vLLM's), `reasoning_content` and, beside log
probabilities, `request_id` and an `id` in each of a chat's (llama-server's), on request `token_ids` and `espalier`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, ContentDelta, Delta, ReasoningDelta
from espalier.decoding.prompt_scores import PromptToken
from espalier.engines.base import Event, FinishEvent, Result, TokenEvent
from espalier.errors import EspalierError
from espalier.server.answering.counts import StreamTimings, no_timings, usage
from espalier.server.answering.custom_calls import CustomDeltas, as_custom
from espalier.server.answering.endings import finish_reason, plain_reason, stop_reason
from espalier.server.answering.logprobs import ChatLogprobsLog, Logprobs, TextLogprobsLog, prompt_logprobs
from espalier.server.asgi import new_id
from espalier.server.asking.draft import ParsedRequest
from espalier.server.http.errors import error_body
from espalier.server.http.sse import event
from espalier.server.http.wire import text_to_bytes
from espalier.trace.records import StepRecord

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The fields with which a reply and each of its chunks begin. request_id: under which a rejection log has the
    request; in replies with log probabilities, which can be merged with one."""

    id: str
    kind: str
    created: int
    model: str
    fingerprint: str
    request_id: str = ""

    def json(self, *, chunk: bool = False) -> Json:
        kind = f"{self.kind}.chunk" if chunk and self.kind == "chat.completion" else self.kind
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            **self.named(),
        }

    def named(self) -> Json:
        return {"request_id": self.request_id} if self.request_id else {}


def chat_head(parsed: ParsedRequest, fingerprint: str) -> Head:
    return Head(
        id=new_id("chatcmpl-"),
        kind="chat.completion",
        created=int(time.time()),
        model=parsed.model,
        fingerprint=fingerprint,
    )


def text_head(parsed: ParsedRequest, fingerprint: str) -> Head:
    return replace(chat_head(parsed, fingerprint), id=new_id("cmpl-"), kind="text_completion")


def outputs(parsed: ParsedRequest, results: Sequence[Result]) -> Iterator[tuple[int, int, int, Result]]:
    """Every output of all runs: the index of its choice, the index of its run, its place in the run, the Result."""
    for run, result in enumerate(results):
        for place, output in enumerate((result, *result.others)):
            yield run * parsed.returned + place, run, place, output


def report(parsed: ParsedRequest, choice: int, run: int, result: Result, trace_id: str | None) -> Json:
    """The entry of one output under the key `espalier`. choice: index of the choice. run: index of its run."""
    report: Json = {
        "index": choice,
        "seed": result.seed,
        "strategy": parsed.requests[run].strategy,
        "stop_reason": result.stop_reason,
        "verdict": None if result.verdict is None else result.verdict.to_json(),
    }
    report |= result.occasional()
    if parsed.truncated and parsed.truncated[run]:
        report["truncated"] = parsed.truncated[run]
    if result.activations is not None:
        report["prompt_hash"] = result.activations.record.prompt_hash
    if result.turn.fault:
        report["fault"] = result.turn.fault
    if parsed.shown_trace != "none" and result.trace is not None:
        report["summary"] = result.trace.summary()
    if trace_id is not None:
        report["trace_id"] = trace_id
    if parsed.shown_trace == "steps" and not parsed.stream_steps and result.trace is not None:
        report["trace"] = result.trace.to_json()
    return report


def reports(
    contract: Sequence[Mapping[str, str]] | None,
    outputs: Iterable[Json],
    parsed: ParsedRequest,
    results: Sequence[Result],
) -> Json:
    """The key `espalier`. contract: what is enforced of each keyword of a schema, None for other constraints. results:
    of the runs that are reported."""
    lines = [*parsed.lines, *result_lines(results)]
    return {"contract": contract, "outputs": list(outputs), **({"warnings": lines} if lines else {})}


def result_lines(results: Iterable[Result]) -> tuple[str, ...]:
    """What a reply says of texts that break what was called enforced, that a stop text cut or that could not be read
    as a turn, and of what the constraint lost, each sentence once."""
    lines = ([*result.faults, *result.lost] for result in results)
    return tuple(dict.fromkeys(line for told in lines for line in told))


def result_report(result: Result) -> Json:
    """The key `espalier` of the last chunk of an output of which there is something to say, since the headers of a
    stream are sent before; {} for any other output."""
    lines = result_lines([replace(result, others=())])
    return {"espalier": {"warnings": list(lines)}} if lines else {}


def whole_chat(parsed: ParsedRequest, head: Head, results: Sequence[Result]) -> Json:
    """A `chat.completion`."""
    choices = []
    for index, _, _, result in outputs(parsed, results):
        message: Json = {"role": "assistant", "content": result.content, "refusal": None}
        if result.reasoning is not None:
            message |= {"reasoning": result.reasoning, "reasoning_content": result.reasoning}
        if result.tool_calls:
            message["content"] = result.content or None
            message |= _calls([call.to_json() for call in result.tool_calls], parsed)
        finish = finish_reason(result, parsed)
        choice: Json = {"index": index, "message": message, "logprobs": None, "finish_reason": finish}
        if parsed.top_logprobs is not None:
            choice["logprobs"] = ChatLogprobsLog(parsed, with_ids=True).of(steps_of(parsed, result))
        choices.append(_with_more(choice, parsed, result))
    return head.json() | {"choices": choices, "usage": usage(results, parsed.n), **_of_prompt(parsed, 0, results[0])}


def _calls(calls: list[Json], parsed: ParsedRequest) -> Json:
    """The calls of a message, or the one call of who asked with `functions`."""
    if parsed.has_functions:
        return {"function_call": calls[0]["function"]}
    return {"tool_calls": [as_custom(call, parsed.custom_tools) for call in calls] if parsed.custom_tools else calls}


def whole_text(parsed: ParsedRequest, head: Head, results: Sequence[Result]) -> Json:
    """A `text_completion`."""
    choices = []
    for index, run, _, result in outputs(parsed, results):
        before = parsed.echo[run]
        choice: Json = {
            "index": index,
            "text": before + result.text,
            "logprobs": None,
            "finish_reason": plain_reason(result),
        }
        if parsed.top_logprobs is not None:
            shown, measured = TextLogprobsLog(parsed), () if parsed.prompt_logprobs else results[run].prompt_tokens
            choice["logprobs"] = (
                shown.with_prompt(measured, result.records) if measured else shown.of(steps_of(parsed, result))
            )
        choices.append(_with_more(choice, parsed, result) | _of_prompt(parsed, run, results[run]))
    return head.json() | {"choices": choices, "usage": usage(results, parsed.n)}


def _of_prompt(parsed: ParsedRequest, run: int, result: Result) -> Json:
    """vLLM's fields: of a text completion in each choice, of a chat beside the choices."""
    measured = {"prompt_logprobs": prompt_logprobs(result.prompt_tokens)} if parsed.prompt_logprobs else {}
    return measured | _prompt_ids(parsed, run)


def _prompt_ids(parsed: ParsedRequest, run: int) -> Json:
    return {"prompt_token_ids": list(parsed.prompt_ids[run])} if parsed.prompt_ids else {}


def _with_more(choice: Json, parsed: ParsedRequest, result: Result) -> Json:
    return choice | stop_reason(result) | ({"token_ids": list(result.token_ids)} if parsed.token_ids else {})


def steps_of(parsed: ParsedRequest, result: Result) -> list[StepRecord]:
    return [step for step in result.records if step.token_id not in parsed.ends]


@dataclass(slots=True)
class ReplyChunks(ABC):
    """Makes the chunks of one stream from events; subclasses know the shape of a route. timings: as
    `Generation.timings`. results: those of the finished runs, by index."""

    asked: ParsedRequest
    head: Head
    contract: Sequence[Mapping[str, str]] | None
    timings: Callable[[Sequence[int] | None], Json] = no_timings
    results: dict[int, Result] = field(default_factory=dict)
    _steps: dict[int, list[StepRecord]] = field(default_factory=dict)
    _ids: dict[int, list[int]] = field(default_factory=dict)

    @abstractmethod
    def first(self) -> list[Json]:
        """The chunks before all others."""

    @abstractmethod
    def of(self, run: int, happened: Event, trace_id: str | None) -> list[Json]:
        """The chunks of one event."""

    @abstractmethod
    def last(self) -> list[Json]:
        """The chunks after all others."""

    def failed(self, error: EspalierError) -> list[Json]:
        """The chunks with which a stream ends that fails."""
        return [error_body(error)]

    def encoded(self, chunk: Json, *, by_parts: bool = False) -> bytes:
        """A chunk as an event. by_parts: as in `event`."""
        return event(chunk, by_parts=by_parts)

    def sent(self, run: int, happened: Event, trace_id: str | None, *, by_parts: bool = False) -> bytes:
        """The chunks of one event as they are sent."""
        return b"".join(self.encoded(chunk, by_parts=by_parts) for chunk in self.of(run, happened, trace_id))


@dataclass(slots=True)
class NamedChunks(ReplyChunks):
    """Chunks that are events with their `type` as a name."""

    def encoded(self, chunk: Json, *, by_parts: bool = False) -> bytes:
        """A chunk as an event."""
        return event(chunk, name=chunk["type"], by_parts=by_parts)


@dataclass(slots=True)
class ChoiceChunks(ReplyChunks):
    """Chunks with `choices`, as OpenAI's. If a run gives several outputs, the first is streamed, and each of the others
    comes at the end in one piece."""

    _logprobs: dict[int, Logprobs] = field(default_factory=dict)
    _frames: dict[int, tuple[bytes, bytes]] = field(default_factory=dict)
    _clock: StreamTimings = field(default_factory=StreamTimings)

    def sent(self, run: int, happened: Event, trace_id: str | None, *, by_parts: bool = False) -> bytes:
        """The chunks of one event as they are sent. What is only text is put into a frame that is made once."""
        parsed = self.asked
        if (
            isinstance(happened, TokenEvent)
            and parsed.top_logprobs is None
            and not (parsed.token_ids or parsed.stream_steps or parsed.timings_per_token)
        ):
            text = self.only_text(run, happened)
            if text is not None:
                return self._frame_text(run, text) if text else b""
        return ReplyChunks.sent(self, run, happened, trace_id, by_parts=by_parts)

    def _frame_text(self, run: int, text: str) -> bytes:
        frame = self._frames.get(run)
        if frame is None:
            index = run * self.asked.returned
            whole = self.encoded(self._chunk([self._complete_choice(index, self.with_text(""))]))
            before, _, after = whole.rpartition(b'""')  # no other value is an empty text
            frame = self._frames[run] = before, after
        return frame[0] + text_to_bytes(text) + frame[1]

    def first(self) -> list[Json]:
        """The chunks before all others."""
        chunks = []
        for run in range(len(self.asked.requests)):
            chunks += [self._chunk([opening]) for opening in self.opening(run * self.asked.returned, run)]
        return chunks

    @abstractmethod
    def opening(self, index: int, run: int) -> list[Json]:
        """The first choice of an output, if there is one."""

    @abstractmethod
    def at_once(self, result: Result) -> Json | None:
        """A choice, as from `pieces`, with the whole output; None for an empty output."""

    @abstractmethod
    def only_text(self, run: int, happened: TokenEvent) -> str | None:
        """The text of an event that gives a choice with a text and no more, empty for no choice; None for others."""

    @abstractmethod
    def with_text(self, text: str) -> Json:
        """A choice, as from `pieces`, of such an event."""

    @abstractmethod
    def pieces(self, index: int, happened: Event) -> list[Json]:
        """The choices of one event, without logprobs and finish_reason."""

    @abstractmethod
    def ending(self, index: int, result: Result) -> Json:
        """The last choice of an output."""

    @abstractmethod
    def logprobs(self) -> Logprobs: ...

    def shows(self, _run: int, step: StepRecord) -> bool:
        """Whether the log probabilities have this step."""
        return step.token_id not in self.asked.ends

    def of(self, run: int, happened: Event, trace_id: str | None) -> list[Json]:
        """The chunks of one event. Log probabilities are held back until the text of their tokens is sent."""
        index = run * self.asked.returned
        if isinstance(happened, TokenEvent):
            if happened.record is not None and self.shows(run, happened.record):
                self._steps.setdefault(index, []).append(happened.record)
            self._ids.setdefault(index, []).append(happened.token_id)
        choices = [self._complete_choice(index, choice) for choice in self.pieces(index, happened)]
        chunks = [self._chunk([choice]) for choice in choices]
        if self.asked.stream_steps and isinstance(happened, TokenEvent) and happened.record is not None:
            chunks = chunks or [self._chunk([])]  # the text of the token is still held back
            chunks[0]["espalier"] = {"steps": [{"index": index, **happened.record.to_json()}]}
        if self.asked.timings_per_token and isinstance(happened, TokenEvent):
            self._clock.count(run, happened)
            chunks = [chunk | {"timings": self._clock.so_far(run)} for chunk in chunks]
        if isinstance(happened, FinishEvent):
            self.results[run] = happened.result
            chunks.append(self._end_output(index, run, happened.result, trace_id))
            for other in happened.result.others:
                index += 1
                chunks += self._chunk_whole_output(index, run, other)
        return chunks

    def _end_output(self, index: int, run: int, result: Result, trace_id: str | None) -> Json:
        last = self._chunk([self._complete_choice(index, self.ending(index, result))])
        if not self.asked.include_usage and index == run * self.asked.returned:
            last |= self.timings([run])
        if self.asked.report:
            entry = report(self.asked, index, run, result, trace_id)
            return {**last, "espalier": reports(self.contract, [entry], self.asked, [replace(result, others=())])}
        return last | result_report(result)

    def _chunk_whole_output(self, index: int, run: int, result: Result) -> list[Json]:
        """All chunks of an output that was not streamed."""
        chunks = [self._chunk([opening]) for opening in self.opening(index, run)]
        self._steps[index] = [step for step in result.records if self.shows(run, step)]
        self._ids[index] = list(result.token_ids)
        if (whole := self.at_once(result)) is not None:
            chunks.append(self._chunk([self._complete_choice(index, whole)]))
        if self.asked.stream_steps:
            steps = [{"index": index, **step.to_json()} for step in result.records]
            chunks.append({**self._chunk([]), "espalier": {"steps": steps}})
        return [*chunks, self._end_output(index, run, result, None)]

    def last(self) -> list[Json]:
        """The usage, if the request includes it. Other chunks have no such field, as in llama-server and vLLM: some
        clients take a null for the end."""
        if not self.asked.include_usage:
            return []
        results = [self.results[index] for index in sorted(self.results)]
        return [{**self._chunk([]), "usage": usage(results, self.asked.n), **self.timings(None)}]

    def _complete_choice(self, index: int, choice: Json) -> Json:
        completed = {"index": index, **choice}
        completed.setdefault("logprobs", None)
        completed.setdefault("finish_reason", None)
        if self.asked.top_logprobs is not None and (steps := self._steps.pop(index, None)):
            completed["logprobs"] = self._logprobs.setdefault(index, self.logprobs()).of(steps)
        if self.asked.token_ids:
            completed["token_ids"] = self._ids.pop(index, [])
        return completed

    def _chunk(self, choices: list[Json]) -> Json:
        return {**self.head.json(chunk=True), "choices": choices}


@dataclass(slots=True)
class ChatChunks(ChoiceChunks):
    """`chat.completion.chunk`s."""

    _custom: CustomDeltas = field(default_factory=CustomDeltas)

    def first(self) -> list[Json]:
        """The chunks before all others; as vLLM's, with the ids of their prompts where these are shown."""
        chunks = ChoiceChunks.first(self)
        return [chunk | _prompt_ids(self.asked, run) for run, chunk in enumerate(chunks)]

    def opening(self, index: int, run: int) -> list[Json]:
        role = {"role": "assistant", "content": ""}
        return [{"index": index, "delta": role, "logprobs": None, "finish_reason": None}]

    def at_once(self, result: Result) -> Json | None:
        delta: Json = {}
        if result.reasoning is not None:
            delta |= {"reasoning": result.reasoning, "reasoning_content": result.reasoning}
        if result.content:
            delta["content"] = result.content
        if result.tool_calls:
            calls = enumerate(call.to_json() for call in result.tool_calls)
            delta |= _calls([{"index": place, **call} for place, call in calls], self.asked)
        return {"delta": delta} if delta else None

    def only_text(self, run: int, happened: TokenEvent) -> str | None:
        deltas = happened.deltas
        if not deltas:
            return ""
        return deltas[0].text if len(deltas) == 1 and isinstance(deltas[0], ContentDelta) else None

    def with_text(self, text: str) -> Json:
        return {"delta": {"content": text}}

    def pieces(self, index: int, happened: Event) -> list[Json]:
        deltas = [_delta(delta) for delta in happened.deltas]
        if self.asked.has_functions:
            deltas = [_calls(delta["tool_calls"], self.asked) if "tool_calls" in delta else delta for delta in deltas]
        if self.asked.custom_tools:
            deltas = [self._custom.of(index, delta, self.asked.custom_tools) for delta in deltas]
        return [{"delta": delta} for delta in deltas if delta]

    def ending(self, index: int, result: Result) -> Json:
        return {"delta": {}, "finish_reason": finish_reason(result, self.asked), **stop_reason(result)}

    def logprobs(self) -> Logprobs:
        return ChatLogprobsLog(self.asked, with_ids=True)


def _delta(delta: Delta) -> Json:
    """The part of a message that a delta adds, empty for nothing."""
    if isinstance(delta, ContentDelta):
        return {"content": delta.text} if delta.text else {}
    if isinstance(delta, ReasoningDelta):
        return {"reasoning": delta.text, "reasoning_content": delta.text} if delta.text else {}
    if isinstance(delta, CallBegun):
        function = {"name": delta.name, "arguments": ""}
        return {"tool_calls": [{"index": delta.index, "id": delta.id, "type": "function", "function": function}]}
    if isinstance(delta, ArgumentsDelta):
        return {"tool_calls": [{"index": delta.index, "function": {"arguments": delta.text}}]} if delta.text else {}
    return {}


@dataclass(slots=True)
class TextChunks(ChoiceChunks):
    """`text_completion` chunks. An echoed prompt whose tokens are measured comes with its first event, not before."""

    _measured: dict[int, Sequence[PromptToken]] = field(default_factory=dict)  # by run
    _with_prompt: set[int] = field(default_factory=set)  # outputs whose prompt's ids were told

    def of(self, run: int, happened: Event, trace_id: str | None) -> list[Json]:
        """The chunks of one event."""
        begin: list[Json] = []
        if self._measures(run) and run not in self._measured:
            self._measured[run] = (
                happened.measured if isinstance(happened, TokenEvent) else happened.result.prompt_tokens
            )
            begin = [self._chunk([opening]) for opening in self.opening(run * self.asked.returned, run)]
        return begin + ChoiceChunks.of(self, run, happened, trace_id)

    def _complete_choice(self, index: int, choice: Json) -> Json:
        """As vLLM's, the first choice of an output has the ids of its prompt where these are shown."""
        completed = ChoiceChunks._complete_choice(self, index, choice)
        if self.asked.prompt_ids and index not in self._with_prompt:
            self._with_prompt.add(index)
            completed |= _prompt_ids(self.asked, index // self.asked.returned)
        return completed

    def shows(self, run: int, step: StepRecord) -> bool:
        """Whether the log probabilities have this step: beside those of a prompt, EOS is counted too."""
        return self._measures(run) or ChoiceChunks.shows(self, run, step)

    def _measures(self, run: int) -> bool:
        return self.asked.requests[run].prompt_top is not None

    def opening(self, index: int, run: int) -> list[Json]:
        text, logprobs = self.asked.echo[run], None
        if self._measures(run):
            if run not in self._measured:
                return []
            shown = TextLogprobsLog(self.asked)
            self._logprobs[index] = shown
            logprobs = shown.with_prompt(self._measured[run], ())
        return [{"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}] if text or logprobs else []

    def at_once(self, result: Result) -> Json | None:
        return {"text": result.text} if result.text else None

    def only_text(self, run: int, happened: TokenEvent) -> str | None:
        return None if self._measures(run) and run not in self._measured else happened.text

    def with_text(self, text: str) -> Json:
        return {"text": text}

    def pieces(self, index: int, happened: Event) -> list[Json]:
        return [{"text": happened.text}] if happened.text else []

    def ending(self, index: int, result: Result) -> Json:
        return {"text": "", "finish_reason": plain_reason(result), **stop_reason(result)}

    def logprobs(self) -> Logprobs:
        return TextLogprobsLog(self.asked)
