"""Log probabilities in OpenAI's two shapes, for chat and for text completions.

They are of the model's own distribution, before constraint and samplers, as in vLLM and llama-server; on request
(`logprobs_mode`) of what these leave, which is what a classification by a choice is after. Impossible tokens have
-9999.0, since JSON has no infinity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from espalier.decoding.prompt_scores import PromptToken
from espalier.server.asking.draft import ParsedRequest
from espalier.trace.records import Candidate, StepRecord

IMPOSSIBLE = -9999.0


class Logprobs(Protocol):
    """The log probabilities of one output, in one call or piece by piece."""

    def of(self, steps: Sequence[StepRecord]) -> dict[str, Any]: ...


class StageLogprobs:
    """The log probabilities of a step at the stage that the request asks for. Base class."""

    def __init__(self, parsed: ParsedRequest) -> None:
        self._top = parsed.top_logprobs or 0
        self._is_processed = parsed.processed_logprobs
        self._is_greedy = parsed.requests[0].sampling.is_greedy

    def _own(self, step: StepRecord) -> float:
        """Of the token itself."""
        if not self._is_processed:
            return finite(step.logprob)
        candidates = self._candidates(step)
        return of_probability(next((each.prob for each in candidates if each.id == step.token_id), 0.0))

    def _best(self, step: StepRecord) -> Sequence[Candidate]:
        return self._candidates(step)[: self._top]

    def _candidates(self, step: StepRecord) -> Sequence[Candidate]:
        """The most probable first; the token of the step is among them. A greedy step has no chain, and then the
        constraint's is the last stage."""
        if not self._is_processed:
            return step.pre_masking
        return step.post_grammar if self._is_greedy else step.post_chain


class ChatLogprobsLog(StageLogprobs):
    """`{"content": [{token, bytes, logprob, top_logprobs}]}`, one entry per generated token without EOS.

    with_ids: whether tokens also have their `id`, as in llama-server's replies, where it is known.
    """

    def __init__(self, parsed: ParsedRequest, *, with_ids: bool = False) -> None:
        super().__init__(parsed)
        self._with_ids = with_ids

    def of(self, steps: Sequence[StepRecord]) -> dict[str, Any]:
        return {"content": [self._one(step) for step in steps], "refusal": None}

    def _one(self, step: StepRecord) -> dict[str, Any]:
        tops = [
            self._token(candidate.id, candidate.text, candidate.bytes) | {"logprob": of_probability(candidate.prob)}
            for candidate in self._best(step)
        ]
        token = self._token(step.token_id, step.text, step.bytes)
        return token | {"logprob": self._own(step), "top_logprobs": tops}

    def _token(self, number: int, text: str, raw: bytes) -> dict[str, Any]:
        named = {"token": text, "bytes": list(raw)}
        return {"id": number, **named} if self._with_ids and number >= 0 else named


class TextLogprobsLog(StageLogprobs):
    """`{tokens, token_logprobs, top_logprobs, text_offset}`. Offsets are in characters and start with 0 at the first
    token that is shown."""

    def __init__(self, parsed: ParsedRequest) -> None:
        super().__init__(parsed)
        self._offset = 0

    def of(self, steps: Sequence[StepRecord]) -> dict[str, Any]:
        offsets = []
        for step in steps:
            offsets.append(self._offset)
            self._offset += len(step.text)
        return {
            "tokens": [spelled(step.text, step.bytes) for step in steps],
            "token_logprobs": [self._own(step) for step in steps],
            "top_logprobs": [self._tops(step) for step in steps] if self._top else None,
            "text_offset": offsets,
        }

    def with_prompt(self, prompt: Sequence[PromptToken], steps: Sequence[StepRecord]) -> dict[str, Any]:
        """The log probabilities of an echoed prompt and of every generated token, EOS too: clients count the tokens
        from both ends."""
        texts, logprobs, tops, offsets = [], [], [], []
        for prompt_token in prompt:
            own = prompt_token.token
            offsets.append(self._offset)
            self._offset += len(own.text)
            texts.append(spelled(own.text, own.bytes))
            logprobs.append(None if own.logprob is None else finite(own.logprob))
            by_text: dict[str, float] = {}
            for two in (*prompt_token.top, own):
                if two.logprob is not None:
                    by_text.setdefault(spelled(two.text, two.bytes), finite(two.logprob))
            tops.append(by_text if own.logprob is not None else None)
        rest = self.of(steps)
        return {
            "tokens": texts + rest["tokens"],
            "token_logprobs": logprobs + rest["token_logprobs"],
            "top_logprobs": tops + rest["top_logprobs"] if self._top else None,
            "text_offset": offsets + rest["text_offset"],
        }

    def _tops(self, step: StepRecord) -> dict[str, float]:
        """The log probabilities by text; of two tokens with the same text, that of the more probable one."""
        by_text: dict[str, float] = {}
        for candidate in self._best(step):
            by_text.setdefault(spelled(candidate.text, candidate.bytes), of_probability(candidate.prob))
        by_text.setdefault(spelled(step.text, step.bytes), self._own(step))
        return by_text


def prompt_logprobs(prompt: Sequence[PromptToken]) -> list[dict[str, Any] | None]:
    """As vLLM has them: for each token but the first, which nothing comes before, the token itself and the most
    probable ones, by id."""
    entries: list[dict[str, Any] | None] = []
    for each in prompt:
        named = (each.token, *each.top)
        entry = {
            str(token.token_id): {
                "logprob": finite(token.logprob),
                "rank": token.rank,
                "decoded_token": spelled(token.text, token.bytes),
            }
            for token in named
            if token.logprob is not None
        }
        entries.append(entry or None)
    return entries


def spelled(text: str, raw: bytes) -> str:
    """A token's text; bytes that are not UTF-8 as OpenAI writes them."""
    try:
        return raw.decode() or text
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def finite(logprob: float) -> float:
    return max(logprob, IMPOSSIBLE) if not math.isnan(logprob) else IMPOSSIBLE


def of_probability(probability: float) -> float:
    return math.log(probability) if probability > 0 else IMPOSSIBLE
