"""Builds replies in llama-server's shape, whole and as a stream. It waits for nothing and runs nothing.

Fields of features that are not here, such as speculation, are left out. `generation_settings.seed` is the seed that was
used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from espalier.engines.base import Event, FinishEvent, Result, TokenEvent
from espalier.server.answering.counts import StreamTimings
from espalier.server.answering.generation import Generation
from espalier.server.answering.logprobs import finite, of_probability
from espalier.server.answering.replies import Head, ReplyChunks, result_report
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.llama import ParsedLlamaRequest
from espalier.trace.records import Candidate, StepRecord

Json = dict[str, Any]
STOPS = {"length": "limit", "stop": "eos"}


def whole_llama(parsed: ParsedRequest, head: Head, results: Sequence[Result]) -> Json:
    """Every output, without its timings, which `finish_llama` adds."""
    assert isinstance(parsed, ParsedLlamaRequest)
    return {"results": [_final(parsed, index, result) for index, result in enumerate(results)]}


def finish_llama(reply: Json, running: Generation) -> Any:
    """One output, or a list of several, with timings, reduced to `response_fields`."""
    parsed = running.asked
    assert isinstance(parsed, ParsedLlamaRequest)
    replies = [
        _pick_fields(parsed, {**result, **named_by(running), **running.timings([index])})
        for index, result in enumerate(reply["results"])
    ]
    return replies[0] if len(replies) == 1 else replies


def named_by(running: Generation) -> Json:
    """The name under which a rejection log has the request, if the reply can be merged with one."""
    return {"request_id": running.request_id} if running.asked.top_logprobs is not None else {}


def _final(parsed: ParsedLlamaRequest, index: int, result: Result) -> Json:
    body = parsed.body
    stopped = isinstance(result.stop_reason, str)
    text = outdented(result.text, body.n_indent or 0)
    is_cut = len(text) < len(result.text)
    final: Json = {
        "index": index,
        "content": text,
        "tokens": list(result.token_ids) if body.return_tokens else [],
        "id_slot": -1 if body.id_slot is None else body.id_slot,
        "stop": True,
        "model": parsed.model,
        "tokens_predicted": result.usage.completion_tokens,
        "tokens_evaluated": result.usage.prompt_tokens,
        "generation_settings": _settings(parsed, result),
        "prompt": parsed.requests[index].prompt,
        "has_new_line": "\n" in text,
        "truncated": bool(parsed.truncated and parsed.truncated[index]),
        "stop_type": _stop_type(result, is_cut=is_cut),
        "stopping_word": result.stop_reason if stopped and not is_cut else "",
        "tokens_cached": result.usage.prompt_tokens + result.usage.completion_tokens - 1,
    }
    if body.n_probs and result.trace is not None:
        final["completion_probabilities"] = [probabilities(parsed, step) for step in result.records]
    return final


def _stop_type(result: Result, *, is_cut: bool) -> str:
    """llama-server's `stop_type`; `none` of its values for a text that breaks what was called enforced."""
    if result.breach is not None:
        return "none"
    return "limit" if is_cut else "word" if isinstance(result.stop_reason, str) else STOPS[result.finish_reason]


def outdented(text: str, least: int) -> str:
    """The text up to the first line, after the first one, that begins with fewer than `least` spaces and tabs; its own
    spaces stay, as in llama-server. An unfinished line of spaces alone is no such line."""
    if least < 1:
        return text
    at = text.find("\n") + 1
    while at:
        begins = at
        while begins < len(text) and text[begins] in " \t":
            begins += 1
        if begins < len(text) and begins - at < least:
            return text[:begins]
        at = text.find("\n", begins) + 1
    return text


def _settings(parsed: ParsedLlamaRequest, result: Result) -> Json:
    body, sampling = parsed.body, parsed.sampling
    schema = {} if body.json_schema is None else {"json_schema": body.json_schema}
    return {
        **sampling,
        "logit_bias": [*sampling["logit_bias"], *({"bias": None, "token": token} for token in _banned_ends(parsed))],
        "seed": result.seed,
        "max_tokens": sampling["n_predict"],
        "n_keep": 0,
        "n_discard": 0,
        "stream": parsed.stream,
        "n_probs": body.n_probs or 0,
        "grammar": body.grammar or "",
        **schema,
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
        "chat_format": "Content-only",
        "timings_per_token": bool(body.timings_per_token),
        "post_sampling_probs": bool(body.post_sampling_probs),
        "lora": [],
    }


def _banned_ends(parsed: ParsedLlamaRequest) -> list[int]:
    """The tokens that `ignore_eos` bans, which llama-server lists among the biases."""
    return sorted(parsed.ends) if parsed.body.ignore_eos else []


def probabilities(parsed: ParsedLlamaRequest, step: StepRecord) -> Json:
    """An entry of `completion_probabilities`: from the softmax of the raw logits, or after the sampler chain."""
    top = parsed.body.n_probs or 0
    token = _token(parsed, step.token_id, step.text, step.bytes)
    if parsed.body.post_sampling_probs:
        tops = [_candidate(parsed, candidate) | {"prob": candidate.prob} for candidate in step.post_chain[:top]]
        return {**token, "prob": step.resampled.prob, "top_probs": tops}
    tops = [
        _candidate(parsed, candidate) | {"logprob": of_probability(candidate.prob)}
        for candidate in step.pre_masking[:top]
    ]
    return {**token, "logprob": finite(step.logprob), "top_logprobs": tops}


def _candidate(parsed: ParsedLlamaRequest, candidate: Candidate) -> Json:
    return _token(parsed, candidate.id, candidate.text, candidate.bytes)


def _token(parsed: ParsedLlamaRequest, token: int, text: str, raw: bytes) -> Json:
    """The token; one that ends the output has an empty text, as in llama-server."""
    return {"id": token, "token": "" if token in parsed.ends else text, "bytes": list(raw)}


def _pick_fields(parsed: ParsedLlamaRequest, reply: Json) -> Json:
    """The reply reduced to `response_fields`: the value of each path, under the path. Unknown paths are left out."""
    if not parsed.body.response_fields:
        return reply
    picked = {}
    for path in parsed.body.response_fields:
        value: Any = reply
        for part in path.split("/"):
            value = value.get(part, ...) if isinstance(value, dict) else ...
        if value is not ...:
            picked[path] = value
    return picked


@dataclass(slots=True)
class LlamaChunks(ReplyChunks):
    """A chunk for each piece of text with its tokens, and a last chunk of each output with everything else."""

    _clock: StreamTimings = field(default_factory=StreamTimings)

    def first(self) -> list[Json]:
        return []

    def last(self) -> list[Json]:
        return []

    def of(self, run: int, happened: Event, trace_id: str | None) -> list[Json]:
        asked, index = self.asked, run
        assert isinstance(asked, ParsedLlamaRequest)
        if isinstance(happened, TokenEvent):
            self._clock.count(index, happened)
            self._ids.setdefault(index, []).append(happened.token_id)
            begins = self._clock.of(index).count == 1
            if happened.record is not None and asked.body.n_probs:
                self._steps.setdefault(index, []).append(happened.record)
            told = [self._progress(asked, index)] if begins and asked.body.return_progress else []
            return [*told, self._piece(asked, index, happened.text)] if happened.text else told
        assert isinstance(happened, FinishEvent)
        self.results[index] = happened.result
        usage, progress = happened.result.usage, self._clock.of(index)
        progress.prompt_tokens, progress.cached_tokens = usage.prompt_tokens, usage.cached_tokens
        pieces = [self._piece(asked, index, happened.text)] if happened.text or self._ids.get(index) else []
        final = {**_final(asked, index, happened.result), "content": "", "tokens": []}
        final.pop("completion_probabilities", None)  # each was sent with its token
        last = _pick_fields(asked, {**final, **self.head.named(), "timings": self._clock.so_far(index, usage)})
        return [*pieces, {**last, **result_report(happened.result)}]

    def _count_prompt(self, index: int) -> Json:
        """How many tokens the prompt has, where the engine knows it before the end."""
        total = self._clock.of(index).prompt_tokens
        return {} if total is None else {"tokens_evaluated": total}

    def _progress(self, parsed: ParsedLlamaRequest, index: int) -> Json:
        """The chunk of `return_progress`: the prompt has been read. It comes once, before the first token, for prompts
        are read beside the steps of others and not chunk by chunk for one request."""
        output = self._clock.of(index)
        assert output.first is not None
        total, took = output.prompt_tokens or 0, 1000 * (output.first - self._clock.began)
        progress = {"total": total, "cache": output.cached_tokens or 0, "processed": total, "time_ms": round(took)}
        return {
            "index": index,
            "content": "",
            "tokens": [],
            "stop": False,
            "id_slot": -1 if parsed.body.id_slot is None else parsed.body.id_slot,
            "tokens_predicted": 0,
            **self._count_prompt(index),
            "prompt_progress": progress,
        }

    def _piece(self, parsed: ParsedLlamaRequest, index: int, text: str) -> Json:
        piece: Json = {
            "index": index,
            "content": text,
            "tokens": self._ids.pop(index, []),
            "stop": False,
            "id_slot": -1 if parsed.body.id_slot is None else parsed.body.id_slot,
            "tokens_predicted": self._clock.of(index).count,
            **self._count_prompt(index),
        }
        if parsed.body.timings_per_token:
            piece["timings"] = self._clock.so_far(index)
        if steps := self._steps.pop(index, None):
            piece["completion_probabilities"] = [probabilities(parsed, step) for step in steps]
        return piece
